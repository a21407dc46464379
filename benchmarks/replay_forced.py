"""Forced decoding: real passes over a given text, with drafts and without, in turns.

What comes is the text, not the model's choice; so the same passes are made on any model, and times are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.replay_run import accepted_path, ratio, request_of
from benchmarks.replay_tasks import MOST_TOKENS, Task
from speculation.draft import Draft, Drafter, NoDrafter, Round
from speculation.verifier.base import Verifier


class Pass:
    """Makes timed passes on one verifier."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.vocabulary = verifier.capabilities.vocab_size

    def prompt(self, task: Task) -> tuple[int, int]:
        """A slot that holds the task's suffix and prefix, and the token that opens the first pass."""
        tokens = [*task.suffix, *task.prefix] or [0]
        slot = self.verifier.open_slot()
        chunk = self.verifier.capabilities.prefill_chunk
        for at in range(0, len(tokens) - 1, chunk):
            self.verifier.prefill(slot, tokens[at : min(at + chunk, len(tokens) - 1)])
        return slot, tokens[-1]

    def decode(self, task: Task, drafter: Drafter) -> tuple[float, int]:
        """Milliseconds from the first draft to the last token, and the number of passes."""
        slot, pending = self.prompt(task)
        target, done, passes = task.target, 0, 0
        began = perf_counter()
        drafter.start(request_of(task, self.vocabulary))
        while done < len(target):
            draft = drafter.draft(max(MOST_TOKENS, len(target)) - done - 1)
            started = perf_counter()
            self.verifier.verify(slot, [pending, *draft.tokens], _parents(draft))
            path = accepted_path(draft, target[done : len(target) - 1])
            self.verifier.commit(slot, [0, *(node + 1 for node in path)])
            verify_ms = (perf_counter() - started) * 1e3
            committed = list(target[done : done + len(path) + 1])
            drafter.observe(Round(draft, path, committed, verify_ms, 1 + len(draft)))
            pending = committed[-1]
            done += len(committed)
            passes += 1
        elapsed = (perf_counter() - began) * 1e3
        self.verifier.close_slot(slot)
        return elapsed, passes


def forced_summary(
    tasks: Sequence[Task], drafter_of: Callable[[Task], Drafter], passes: Pass
) -> dict[str, Any]:
    """The paired speed-up and its interval over tasks; each task is decoded both ways, in alternating order."""
    plain, drafted, forwards, tokens = [], [], [], []
    passes.decode(tasks[0], NoDrafter())  # what the engine builds at first use is paid for here
    for number, task in enumerate(track(tasks, "real passes", console=Console(stderr=True))):
        for kind in (0, 1) if number % 2 else (1, 0):
            if kind:
                elapsed, count = passes.decode(task, drafter_of(task))
                drafted.append(elapsed)
                forwards.append(count)
            else:
                plain.append(passes.decode(task, NoDrafter())[0])
        tokens.append(len(task.target))
    return {
        "n": len(tasks),
        "tokens_per_forward": ratio(tokens, forwards),
        "speedup": ratio(plain, drafted),
        "engine": passes.verifier.capabilities.engine,
    }


def _parents(draft: Draft) -> list[int] | None:
    return None if draft.parents is None else [-1, *(parent + 1 for parent in draft.parents)]
