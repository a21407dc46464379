"""What the command line adds to the latency log: the same records as the server's, as the same settings say.

A completion that the shared process makes is logged here as well, by whoever asked for it; that process only
hands its record to the exporters.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lsp_server.records import costs_of
from lsp_server.settings import resolve
from lsp_server.telemetry import TelemetryWriter, request_record
from lsp_server.telemetry_writer import log_path
from speculation.request import CompletionMetrics

if TYPE_CHECKING:
    from speculation.completion import Completer
    from speculation.request import CompletionRequest

OUT_OF_MEMORY = 4  # the exit code of errors that mean it


class CommandLog:
    """The log of one command; a context manager, so that nothing is left unwritten at its end."""

    def __init__(self) -> None:
        settings, _ = resolve()
        self._traces = settings.trace == "text"
        self._writer = TelemetryWriter(log_path() if settings.telemetry_log else None)

    def costs(self, engine: Completer) -> None:
        """The engine is loaded: what its passes cost."""
        self._writer.write(costs_of(engine))

    def logged(self, request: CompletionRequest, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``answer`` gives, its metrics written to the log; a failure is written too, and raised."""
        started = time.perf_counter()
        try:
            given = answer()
        except Exception as error:
            self._writer.write(_failed(request, (time.perf_counter() - started) * 1000, error))
            raise
        record = given["metrics"]
        if self._traces:
            before = request.text[: request.offset].rpartition("\n")[2]
            record = {**record, "trace": {"path": request.path, "before": before, "text": [given["text"]]}}
        self._writer.write(record)
        return given

    def __enter__(self) -> CommandLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()


def _failed(request: CompletionRequest, total_ms: float, error: Exception) -> dict[str, Any]:
    return request_record(
        id=uuid.uuid4().hex[:12],
        trigger="command",
        route="dropped",
        reason="failed",
        total_ms=total_ms,
        queue_ms=total_ms,
        metrics=CompletionMetrics(oom_count=int(getattr(error, "exit_code", 0) == OUT_OF_MEMORY)),
        language=request.language,
        document=request.path,
        sampling=request.sampling,
        speculation=request.speculation,
    )
