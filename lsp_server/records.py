"""One latency record per request.

Put together here, written to the log and sent to clients that ask for it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lsp_server.device_memory import DeviceMemory
from lsp_server.gate import path_of
from lsp_server.telemetry import (
    STAGES,
    Route,
    TelemetryWriter,
    costs_record,
    metrics_since,
    request_record,
    snapshot,
)
from speculation.request import CompletionMetrics, CompletionRequest
from speculation.verifier.base import OutOfMemoryError

if TYPE_CHECKING:
    from lsp_server.flight import Flight
    from lsp_server.items import Offer
    from lsp_server.settings import Settings
    from lsp_server.ticket import Ticket
    from speculation.completion import Completer
    from speculation.request import CompletionEngine

OUT_OF_MEMORY = (MemoryError, OutOfMemoryError)


@dataclass(frozen=True, slots=True)
class Source:
    """Where an answer came from."""

    route: Route
    flight: Flight | None = None
    finish_reason: str = ""


@dataclass(slots=True)
class EngineFacts:
    """What is the same in all records of a process."""

    model: str = ""
    engine: str = ""
    device: str = ""
    speculation: bool = True
    off_share: float = 0.0
    sampling: Mapping[str, Any] | None = None
    traces: bool = False
    logged: bool = True
    memory: Callable[[], int | None] = lambda: None

    def of_engine(self, engine: CompletionEngine) -> None:
        """The engine is loaded."""
        self.model, self.engine = engine.model, engine.name
        verifier = getattr(engine, "verifier", None)  # scripted engines have none
        self.device = verifier.capabilities.device if verifier is not None else ""
        self.memory = DeviceMemory(self.device)

    def of_settings(self, settings: Settings) -> None:
        """The settings in force changed."""
        self.speculation, self.off_share = settings.speculation, settings.speculation_off_share
        self.sampling = settings.active_sampling()
        self.traces = settings.trace == "text"
        self.logged = settings.telemetry_log


def copied(metrics: CompletionMetrics | None) -> CompletionMetrics:
    """The metrics as they are now; the engine goes on changing its own."""
    return CompletionMetrics() if metrics is None else snapshot(metrics)


def command_record(
    engine: CompletionEngine,
    request: CompletionRequest,
    metrics: CompletionMetrics | None,
    *,
    text: str,
    finish_reason: str,
    total_ms: float,
    queue_ms: float,
) -> dict[str, Any]:
    """The record of a completion that was asked for on the command line."""
    facts = EngineFacts()
    facts.of_engine(engine)
    return request_record(
        id=uuid.uuid4().hex[:12],
        trigger="command",
        route="generated",
        total_ms=total_ms,
        metrics=metrics,
        queue_ms=queue_ms,
        finish_reason=finish_reason,
        characters=len(text),
        language=request.language,
        document=request.path,
        model=facts.model,
        engine=facts.engine,
        device=facts.device,
        device_memory_bytes=facts.memory(),
        sampling=request.sampling,
        speculation=request.speculation,
    )


def costs_of(engine: Completer) -> dict[str, Any]:
    """What a pass costs, for the log: what a request would have cost without speculation follows from it."""
    measured = engine.costs.measured
    return costs_record(
        model=engine.model,
        engine=engine.name,
        device=engine.verifier.capabilities.device,
        positions=list(measured),
        pass_ms=list(measured.values()),
    )


class Recorder:
    """Makes the records of one client's requests, on the event loop.

    What must be read at the moment of the answer is; the record is put together after the answer has gone out.
    """

    def __init__(self, writer: TelemetryWriter, send: Callable[[Mapping[str, Any]], None]) -> None:
        """``send`` gets every record; whether the client wants it is its business."""
        self._writer = writer
        self._send = send
        self.facts = EngineFacts()

    def answered(self, ticket: Ticket, offers: Sequence[Offer], source: Source, built_s: float) -> None:
        """A request was answered; ``built_s`` is when its items began to be made."""
        route: Route = source.route if offers else "dropped"
        post_ms = (time.perf_counter() - built_s) * 1000
        given: dict[str, Any] = {"reason": "nothing_new"}
        if offers:
            given = {"answer": offers[0].id, "characters": len(offers[0].text)}
            if self.facts.traces:
                text = [offer.text for offer in offers]
                given["trace"] = {"path": path_of(ticket.uri), "before": ticket.place.before, "text": text}
        self._record(ticket, source, route, post_ms, **given)

    def dropped(self, ticket: Ticket, reason: str, source: Source) -> None:
        """A request was answered with nothing."""
        self._record(ticket, source, "dropped", 0.0, reason=reason)

    def export(self, record: Mapping[str, Any]) -> None:
        """The record of a script's completion: the script writes it to the log, as its own settings say."""
        self._writer.write(record, keep=False)

    def write(self, record: Mapping[str, Any]) -> None:
        """Any other record; after those that came before it."""
        self._later(lambda: self._keep(record))

    def _later(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def _keep(self, record: Mapping[str, Any]) -> None:
        self._writer.write(record, keep=self.facts.logged)
        self._send(record)

    def _record(self, ticket: Ticket, source: Source, route: Route, post_ms: float, **rest: Any) -> None:
        total_ms = (time.perf_counter() - ticket.received_s) * 1000
        facts, flight = self.facts, source.flight
        speculation = facts.speculation if flight is None else flight.plan.speculation
        # the metrics of a generation that goes on are read now
        taken = None if flight is None or flight.done else _spent(ticket, flight, total_ms - post_ms)

        def make() -> dict[str, Any]:
            metrics, queue_ms = taken or _spent(ticket, flight, total_ms - post_ms)
            return request_record(
                id=ticket.id,
                trigger="automatic" if ticket.automatic else "invoked",
                route=route,
                total_ms=total_ms,
                metrics=metrics,
                queue_ms=queue_ms,
                post_ms=post_ms,
                finish_reason=source.finish_reason,
                language=ticket.language,
                document=ticket.uri,
                model=facts.model,
                engine=facts.engine,
                device=facts.device,
                device_memory_bytes=facts.memory(),
                sampling=facts.sampling,
                speculation=speculation,
                off_fraction=facts.off_share,
                **rest,
            )

        self._later(lambda: self._keep(make()))


def _spent(
    ticket: Ticket, flight: Flight | None, elapsed_ms: float
) -> tuple[CompletionMetrics | None, float]:
    """The engine's share of a request, and what it waited before: for its debounce and for the worker."""
    if flight is None or not flight.started_s:
        return None, elapsed_ms
    metrics = copied(flight.metrics)
    if isinstance(flight.error, OUT_OF_MEMORY):
        metrics.oom_count = max(1, metrics.oom_count)
    if ticket.joined is not None:
        metrics = metrics_since(metrics, ticket.joined)
    queue_ms = max(0.0, (flight.started_s - ticket.received_s) * 1000)
    engine_ms = sum(getattr(metrics, stage) for stage in STAGES if stage != "queue_ms")
    if metrics.ttft_ms:  # from this request's receipt, also where the generation began before it
        metrics.ttft_ms = max(0.0, metrics.ttft_ms + (flight.started_s - ticket.received_s) * 1000)
    missing_ms = elapsed_ms - queue_ms - engine_ms
    if missing_ms > 0 and not flight.done:  # answered during a pass, which is in no counter yet
        stage = "verify_ms" if metrics.committed or metrics.forwards else "prefill_ms"
        metrics = replace(metrics, **{stage: getattr(metrics, stage) + missing_ms})
    elif missing_ms < 0 and ticket.joined is not None:  # the pass that it joined had begun before it
        stage = "prefill_ms" if metrics.prefill_ms > metrics.verify_ms else "verify_ms"
        metrics = replace(metrics, **{stage: max(0.0, getattr(metrics, stage) + missing_ms)})
    elif missing_ms > 0:  # parked for others' passes, and the way from the worker's thread to the loop
        queue_ms += missing_ms
    return metrics, queue_ms
