"""How the engine takes wrong use and being interrupted, on the real model. Run by `benchmarks.engine`.

``python -m benchmarks.engine_conduct wrong-use MODEL`` or ``… cancellation MODEL``; JSON on stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from cache.models import resolve
from lsp_server.service import CompletionService, Job, Priority, Progress
from speculation.completion import Completer
from speculation.loading import load_engine
from speculation.request import CompletionRequest
from speculation.verifier.base import Verifier, VerifierError
from speculation.verifier.choice import choose

HELD = 100  # positions in the slot that is used wrongly
PAST = 20_000  # positions, more than any context
LINES = "".join(f"def f{i}(a, b):\n    return a + b * {i}\n\n" for i in range(60))
CANCELS = 12

WRONG_USE: dict[str, Callable[[Verifier, int], object]] = {
    "rollback past the start": lambda v, s: v.rollback(s, -1),
    "rollback past the end": lambda v, s: v.rollback(s, HELD + 1),
    "no tokens": lambda v, s: v.verify(s, []),
    "too many nodes": lambda v, s: v.verify(s, [1] * 1000),
    "an id past the vocabulary": lambda v, s: v.verify(s, [1, v.capabilities.vocab_size]),
    "a negative id": lambda v, s: v.prefill(s, [-1]),
    "a tree with a cycle": lambda v, s: v.verify(s, [1, 2, 3], [-1, 2, 1]),
    "a node that is its own parent": lambda v, s: v.verify(s, [1, 2], [-1, 1]),
    "too few parents": lambda v, s: v.verify(s, [1, 2], [-1]),
    "positions past the context": lambda v, s: v.prefill(s, [1] * PAST),
    "a copy longer than its source": lambda v, s: v.copy_slot(s, HELD + 1),
    "commit before verify": lambda v, s: v.commit(s, [0]),
    "commit of a path with a gap": lambda v, s: _commit_after(v, s, [0, 2]),
    "a closed slot": lambda v, s: v.length(s + 1000),
}


def _commit_after(verifier: Verifier, slot: int, path: list[int]) -> None:
    verifier.verify(slot, [1, 2, 3])
    verifier.commit(slot, path)


def wrong_use(model: str) -> dict[str, Any]:
    """Which misuse is not refused, and which changes what the slot computes."""
    verifier = choose("cpu", "int8", "auto", resolve(model))
    text = [(7919 * i + 13) % verifier.capabilities.vocab_size for i in range(HELD + 4)]
    slot = verifier.open_slot()
    verifier.prefill(slot, text[:HELD])
    expected = verifier.verify(slot, text[HELD:]).clone()
    verifier.rollback(slot, HELD)
    allowed, changing = [], []
    for name, misuse in WRONG_USE.items():
        try:
            misuse(verifier, slot)
            allowed.append(name)
        except VerifierError:
            pass
        verifier.rollback(slot, HELD)
        if not torch.equal(verifier.verify(slot, text[HELD:]), expected):
            changing.append(name)
        verifier.rollback(slot, HELD)
    return {"n": len(WRONG_USE), "allowed": allowed, "changing": changing}


@dataclass(slots=True)
class Passes:
    """When the passes of an engine began and ended, seconds."""

    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    prefill_ms: dict[int, list[float]] = field(default_factory=dict)  # by positions

    def watch(self, verifier: Verifier) -> None:
        """Has every pass of ``verifier`` noted."""
        for name in ("prefill", "verify"):
            setattr(verifier, name, self._noted(name, getattr(verifier, name)))

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(slot: int, tokens: Sequence[int], *more: Any) -> Any:
            self.began.append(time.perf_counter())
            try:
                return call(slot, tokens, *more)
            finally:
                self.ended.append(time.perf_counter())
                if name == "prefill":
                    ms = (self.ended[-1] - self.began[-1]) * 1e3
                    self.prefill_ms.setdefault(len(tokens), []).append(ms)

        return noted


def cancellation(model: str) -> dict[str, Any]:
    """Passes that begin after a cancel, by the server's own worker, in prefill and in decoding; and the median
    chunk of their prefills."""
    return asyncio.run(_cancel(model))


def _same(request: CompletionRequest) -> CompletionRequest:
    return request


async def _cancel(model: str) -> dict[str, Any]:
    passes = Passes()
    loaded: list[Completer] = []

    def load(progress: Progress) -> Completer:  # by the worker, as the server does
        loaded.append(load_engine(model, "cpu", "int8", progress=progress))
        passes.watch(loaded[0].verifier)
        return loaded[0]

    service = CompletionService(load)
    service.start()
    while not service.ready:
        await asyncio.sleep(0.1)
    late, waits = [], []
    for number in range(CANCELS):
        text = f"x = {number}\n{LINES}def g("
        request = CompletionRequest(text, len(text), max_tokens=64, stop="none", speculation=False)
        job = Job(partial(_same, request), Priority.ASKED, lambda update: None)
        first = len(passes.began)
        wanted = 2 + number if number % 2 else 1 + number // 2  # some in the prefill, some behind it
        service.submit(job)
        while len(passes.began) < first + wanted:
            await asyncio.sleep(0.001)
        job.cancel()
        at = time.perf_counter()
        while not passes.ended or passes.ended[-1] < passes.began[-1]:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.15)  # a pass that should not be would begin now
        late.append(sum(began > at for began in passes.began))
        waits.append(max(0.0, passes.ended[-1] - at) * 1e3)
    service.stop()
    size = loaded[0].verifier.capabilities.prefill_chunk
    chunks = passes.prefill_ms[size]
    return {
        "n": CANCELS,
        "passes_after_cancel": max(late),
        "longest_wait_ms": round(max(waits), 1),
        "chunk": size,
        "chunks": len(chunks),
        "chunk_ms": round(sorted(chunks)[len(chunks) // 2], 1),
    }


def main() -> None:
    """Prints one JSON value."""
    part, model = sys.argv[1:]
    print(json.dumps(wrong_use(model) if part == "wrong-use" else cancellation(model)))


if __name__ == "__main__":
    main()
