"""The latency log: what is recorded of every request, and the one writer of it.

A record is one JSON object on one line; `telemetry_schema.json` documents every field. Records never hold
source text, and documents only as a keyed hash, unless the user turned on trace. Time stamps (`at`) are wall
time for people; every duration comes from a monotonic clock.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timezone
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from lsp_server.telemetry_schema import VERSION
from lsp_server.telemetry_writer import TelemetryWriter
from speculation.request import CompletionMetrics

if TYPE_CHECKING:
    from speculation.sampling import SamplingParameters

__all__ = [
    "TelemetryWriter",
    "costs_record",
    "metrics_since",
    "outcome_record",
    "request_record",
    "snapshot",
    "summary_line",
    "unattributed_ms",
]

Route = Literal["typed-through", "continued", "generated", "dropped"]
Outcome = Literal["shown", "accepted", "partial", "rejected", "superseded", "kept"]

STAGES = ("queue_ms", "tokenise_ms", "prefill_ms", "draft_ms", "verify_ms", "sample_ms", "post_ms")
SHOWN_AFTER_MS = 250  # ghost text on screen for less was not read
KEPT_AFTER_MS = 30_000  # when accepted text is looked at again

_PROCESS_KEY = secrets.token_bytes(16)  # document hashes can't be guessed back, nor joined across processes


def request_record(
    *,
    id: str,  # noqa: A002 - the field's name in the log
    trigger: str,
    route: Route,
    total_ms: float,
    metrics: CompletionMetrics | None = None,
    queue_ms: float = 0.0,
    post_ms: float = 0.0,
    reason: str = "",
    finish_reason: str = "",
    answer: str = "",
    characters: int = 0,
    language: str = "",
    document: str = "",
    model: str = "",
    engine: str = "",
    device: str = "",
    device_memory_bytes: int | None = None,
    sampling: SamplingParameters | Mapping[str, Any] | None = None,
    speculation: bool = True,
    off_fraction: float = 0.0,
    batch_size: int = 1,
    trace: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of one answered request.

    Args:
        id: the request's own, unique in the log.
        trigger: "automatic" | "invoked" | "command".
        route: where the answer came from; "dropped" needs a ``reason`` code.
        total_ms: from the request's receipt to its answer, by a monotonic clock.
        metrics: what the engine measured *for this request* (see `metrics_since`); None: it was not asked.
        queue_ms: debounce, waiting for the worker and for the passes of other requests.
        post_ms: clean-up and building the answer, added to the engine's own ``post_ms``.
        answer: the id that outcomes of the returned text will have; several requests return the same answer
            while it is typed through. Empty: the request's own.
        characters: length of the text that was returned.
        document: URI or path; only its keyed hash is kept.
        off_fraction: the share of requests that are answered without speculation to check the estimated
            saving; 0 when nothing is sampled. ``speculation`` then says which side this request fell on.
        trace: text and path, only where the user turned on trace.
    """
    values = _metric_values(metrics if metrics is not None else _NO_METRICS)
    record: dict[str, Any] = {
        "v": VERSION,
        "kind": "request",
        "id": id,
        "at": _now(),
        "trigger": trigger,
        "route": route,
        "reason": reason,
        "finish_reason": finish_reason,
        "queue_ms": round(queue_ms, 3),
    }
    for name, value in zip(_METRIC_NAMES, values, strict=True):
        kind = type(value)
        record[name] = round(value, 3) if kind is float else _plain(value) if kind is dict else value
    record["post_ms"] = round(record["post_ms"] + post_ms, 3)
    record["total_ms"] = round(total_ms, 3)
    record |= {
        "answer": answer or id,
        "characters": characters,
        "batch_size": batch_size,
        "speculation": speculation,
        "off_fraction": off_fraction,
        "sampling": _sampling(sampling),
        "model": model,
        "engine": engine,
        "device": device,
        "device_memory_bytes": device_memory_bytes,
        "language": language,
        "document": _document_hash(document),
    }
    if trace is not None:
        record["trace"] = dict(trace)
    return record


def outcome_record(
    id: str,  # noqa: A002 - the field's name in the log
    outcome: Outcome,
    *,
    after_ms: float = 0.0,
    characters: int = 0,
    units: int = 0,
    unit: str = "",
) -> dict[str, Any]:
    """What became of an answer; written when it is known, joined with its requests' ``answer`` by ``id``.

    "shown": on screen for at least `SHOWN_AFTER_MS`. "partial": ``units`` of ``unit`` ("word" | "line" |
    "character") were taken, ``characters`` in all. "accepted": ``characters`` inserted. "kept": of these,
    ``characters`` were still there `KEPT_AFTER_MS` later. ``after_ms`` is the time since the answer.
    """
    record: dict[str, Any] = {"v": VERSION, "kind": "outcome", "id": id, "at": _now(), "outcome": outcome}
    record |= {"after_ms": round(after_ms, 1), "characters": characters}
    if unit:
        record |= {"units": units, "unit": unit}
    return record


def costs_record(
    *, model: str, engine: str, device: str, positions: Sequence[int], pass_ms: Sequence[float]
) -> dict[str, Any]:
    """The measured cost of one decode pass, t(m); written when it was measured or has changed much."""
    record: dict[str, Any] = {"v": VERSION, "kind": "costs", "at": _now()}
    record |= {"model": model, "engine": engine, "device": device}
    return record | {"positions": list(positions), "pass_ms": [round(ms, 3) for ms in pass_ms]}


def snapshot(metrics: CompletionMetrics) -> CompletionMetrics:
    """The metrics as they are now; the engine goes on changing its own."""
    taken = CompletionMetrics(*_metric_values(metrics))
    for name in _TABLES:
        setattr(taken, name, _copy(getattr(taken, name)))
    return taken


def metrics_since(now: CompletionMetrics, earlier: CompletionMetrics) -> CompletionMetrics:
    """What a generation spent after ``earlier``: the share of the request that goes on with it."""
    difference = CompletionMetrics()
    for name in _METRIC_NAMES:
        setattr(difference, name, _minus(getattr(now, name), getattr(earlier, name)))
    # the prompt, the anchor and the first token's time are facts of the generation, not amounts
    difference.prompt_tokens, difference.context_tokens = now.prompt_tokens, now.context_tokens
    difference.anchor_line = now.anchor_line
    difference.ttft_ms = 0.0 if earlier.committed else now.ttft_ms
    difference.tpot_ms = now.tpot_ms
    return difference


def unattributed_ms(record: Mapping[str, Any]) -> float:
    """What the stage times leave unexplained; negative when they overlap."""
    return float(record["total_ms"]) - sum(float(record[stage]) for stage in STAGES)


def summary_line(record: Mapping[str, Any]) -> str:
    """One readable latency line for an editor's log; the plugins write the same one, in their own languages."""
    line = f"{record['route']} {_rounded(record['total_ms'])} ms"
    if record["reason"]:
        line += f" ({record['reason']})"
    if record["forwards"]:
        line += (
            f": first token {_rounded(record['ttft_ms'])} ms, {record['committed']} tokens in"
            f" {record['forwards']} passes ({_rounded(record['committed'] / record['forwards'], '0.1')} a pass),"
            f" drafts {record['accepted']}/{record['drafted']} accepted,"
            f" prompt {record['reused_tokens']} reused + {record['new_tokens']} new"
        )
    return line


def _rounded(number: float, step: str = "1") -> str:
    """Halves go up, as in JavaScript and Lua; Python's own formatting has 1.25 as 1.2."""
    return str(Decimal(number).quantize(Decimal(step), ROUND_HALF_UP))


_METRIC_NAMES = tuple(field.name for field in fields(CompletionMetrics))
_NO_METRICS = CompletionMetrics()
_metric_values = attrgetter(*_METRIC_NAMES)
_TABLES = tuple(name for name in _METRIC_NAMES if isinstance(getattr(_NO_METRICS, name), dict))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _sampling(sampling: SamplingParameters | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The parameters as a plain object; None for plain greedy decoding."""
    if sampling is None:
        return None
    values = dict(sampling) if isinstance(sampling, Mapping) else asdict(sampling)
    return None if values["temperature"] == 0 and values["repetition_penalty"] == 1 else values


@lru_cache(maxsize=64)
def _document_hash(document: str) -> str:
    if not document:
        return ""
    return hashlib.blake2b(
        document.encode(errors="surrogatepass"), key=_PROCESS_KEY, digest_size=6
    ).hexdigest()


def _plain(table: dict[Any, Any]) -> dict[str, Any]:
    """A copy that later changes to the metrics don't reach, with the string keys that JSON has."""
    return {str(key): _plain(item) if type(item) is dict else _copy(item) for key, item in table.items()}


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return value[:] if type(value) is list else value


def _minus(now: Any, earlier: Any) -> Any:
    if isinstance(now, dict):
        differences = {
            key: _minus(item, earlier[key]) if key in earlier else item for key, item in now.items()
        }
        return {key: item for key, item in differences.items() if item and item != [0, 0]}
    if isinstance(now, list):
        return [a - b for a, b in zip(now, earlier, strict=True)]
    return now - earlier
