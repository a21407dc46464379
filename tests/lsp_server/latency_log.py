"""A latency log made by hand, small enough to work every figure out on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ENGINE = {"model": "m", "engine": "int8", "device": "cpu"}
COSTS = {"v": 1, "kind": "costs", "at": "2026-03-01T08:00:00.000Z", **ENGINE}
COSTS |= {"positions": [1, 2, 5, 9], "pass_ms": [20.0, 22.0, 30.0, 40.0]}


def request(id_: str, at: str, route: str, total_ms: float, **values: Any) -> dict[str, Any]:
    """A request's record with the fields that matter; the others keep their defaults."""
    return {
        "v": 1,
        "kind": "request",
        "id": id_,
        "at": at,
        "route": route,
        "total_ms": total_ms,
        **ENGINE,
        **values,
    }


def outcome(id_: str, kind: str, characters: int = 0, at: str = "2026-03-01T10:59:00.000Z") -> dict[str, Any]:
    """An outcome event."""
    return {"v": 1, "kind": "outcome", "id": id_, "at": at, "outcome": kind, "characters": characters}


DRAFTED = request(  # passes cost what the table says: 20 + 2 × 30
    "1", "2026-03-01T09:00:00.000Z", "generated", 105.0, language="python",
    queue_ms=1.0, tokenise_ms=1.0, prefill_ms=20.0, draft_ms=1.0, verify_ms=80.0, sample_ms=2.0, ttft_ms=45.0,
    tpot_ms=8.0, forwards=3, drafted=8, accepted=5, committed=8, text_tokens=7, characters=30,
    reused_tokens=290, new_tokens=10, rejected_depth={"1": 1}, passes_by_positions={"1": 1, "5": 2},
    drafted_by_source={"request": 8}, accepted_by_source={"request": 5},
    by_match={"request": {"3": [4, 4], "12": [4, 1]}}, device_memory_bytes=700_000_000,
)  # fmt: skip
PLAIN = request(  # nothing to copy
    "2", "2026-03-01T09:10:00.000Z", "generated", 50.0, language="rust",
    prefill_ms=10.0, verify_ms=40.0, ttft_ms=30.0, tpot_ms=20.0, forwards=2, committed=2, text_tokens=2,
    characters=5, new_tokens=100, passes_by_positions={"1": 2}, oom_count=1, device_memory_bytes=900_000_000,
    sampling={"temperature": 0.5, "top_k": 20, "seed": 7},
)  # fmt: skip
TYPED = request(
    "3", "2026-03-01T09:20:00.000Z", "typed-through", 1.0, language="python", queue_ms=1.0, characters=29
)
DROPPED = request(
    "4", "2026-03-01T10:00:00.000Z", "dropped", 10.0, language="python", queue_ms=10.0, reason="superseded"
)
CONTINUED = request(  # under load: the pass of five cost 45 ms instead of 30
    "5", "2026-03-01T10:30:00.000Z", "continued", 46.0, language="python",
    draft_ms=1.0, verify_ms=45.0, tpot_ms=9.0, forwards=1, drafted=4, accepted=4, committed=5, text_tokens=5,
    characters=20, passes_by_positions={"5": 1},
    drafted_by_source={"open": 4}, accepted_by_source={"open": 4},
    by_match={"open": {"20": [4, 4]}},
)  # fmt: skip
REQUESTS = [DRAFTED, PLAIN, TYPED, DROPPED, CONTINUED]
OUTCOMES = [
    outcome("1", "shown"), outcome("1", "partial", 10),
    outcome("1", "accepted", 30), outcome("1", "kept", 24),
    outcome("2", "shown"), outcome("2", "rejected"),
    outcome("3", "shown"), outcome("3", "shown"), outcome("3", "superseded"),
    outcome("unknown", "accepted", 3),
]  # fmt: skip


def write(path: Path, *records: dict[str, Any]) -> Path:
    """Writes a log as the writer does."""
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    return path


def whole(path: Path) -> Path:
    """The log with everything in it."""
    return write(path, COSTS, *REQUESTS, *OUTCOMES)
