"""`specComplete/complete`: one completion for a script, by the engine that the editors share."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from lsp_server.cleanup import deadline_cut
from lsp_server.messages import InvalidParamsError
from lsp_server.records import Recorder, command_record
from lsp_server.service import CompletionService, Job, Priority, Update
from speculation.request import CompletionRequest

# what may be asked: the fields of `CompletionRequest` that are plain values, and their types
FIELDS: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "offset": int,
    "path": str,
    "root": str,
    "language": str,
    "anchor_line": (int, type(None)),
    "max_tokens": int,
    "stop": str,
    "speculation": bool,
}

MOST_TOKENS = 1024  # one script must not hold the device for long


def complete(service: CompletionService, recorder: Recorder, params: Any) -> asyncio.Future[dict[str, Any]]:
    """Starts a completion; the future has what `spec-complete complete --json` prints.

    ``params``: the fields of `FIELDS`, ``sampling`` (an object of its parameters) and ``deadline_ms``.
    Raises `InvalidParamsError`.
    """
    fields = _fields(params)
    sampling, deadline_ms = _sampling(params), _deadline_ms(params)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[dict[str, Any]] = loop.create_future()
    started = time.perf_counter()
    request = CompletionRequest(**fields)

    def build() -> CompletionRequest:
        if sampling is not None:
            from speculation.sampling import SamplingParameters  # brings torch, which the engine has loaded

            request.sampling = SamplingParameters(**sampling)
        return request

    def cut(text: str) -> str:
        late = deadline_ms is not None and (time.perf_counter() - started) * 1000 >= deadline_ms
        return deadline_cut(text) if late else ""

    def progress(update: Update) -> None:
        if answer.done() or not update.done:
            return
        if update.error is not None:
            answer.set_exception(update.error)
            return
        try:
            result = _result(service, update, request, started)
        except Exception as error:
            answer.set_exception(error)
        else:
            recorder.export(result["metrics"])
            answer.set_result(result)

    job = Job(build, Priority.ASKED, progress, cut=cut)
    answer.add_done_callback(lambda done: job.cancel() if done.cancelled() else None)
    service.submit(job)
    return answer


def _fields(params: Any) -> dict[str, Any]:
    if not isinstance(params, dict):
        raise InvalidParamsError("parameters are missing")
    for name in ("text", "offset"):
        if name not in params:
            raise InvalidParamsError(f"{name} is missing")
    for name, kind in FIELDS.items():
        value = params.get(name)
        if name in params and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise InvalidParamsError(f"{name} has the wrong type")
    fields = {name: params[name] for name in FIELDS if name in params}
    if not 0 <= fields["offset"] <= len(fields["text"]):
        raise InvalidParamsError("offset is not in the text")
    if "max_tokens" in fields:
        fields["max_tokens"] = min(fields["max_tokens"], MOST_TOKENS)
    return fields


def _sampling(params: dict[str, Any]) -> dict[str, Any] | None:
    sampling = params.get("sampling")
    if sampling is not None and not isinstance(sampling, dict):
        raise InvalidParamsError("sampling must be an object")
    return sampling


def _deadline_ms(params: dict[str, Any]) -> float | None:
    deadline_ms = params.get("deadline_ms")
    if deadline_ms is not None and (
        isinstance(deadline_ms, bool) or not isinstance(deadline_ms, (int, float))
    ):
        raise InvalidParamsError("deadline_ms must be a number")
    return deadline_ms


def _result(
    service: CompletionService, update: Update, request: CompletionRequest, started: float
) -> dict[str, Any]:
    engine = service.engine
    assert engine is not None
    record = command_record(
        engine,
        request,
        update.metrics,
        text=update.text,
        finish_reason=update.finish_reason or "",
        total_ms=(time.perf_counter() - started) * 1000,
        queue_ms=max(0.0, (update.started_s - started) * 1000),
    )
    return {
        "text": update.text,
        "finish_reason": update.finish_reason,
        "model": engine.model,
        "engine": engine.name,
        "token_ids": list(update.token_ids),
        "metrics": record,
    }
