"""What the model itself would write: its greedy output after each prompt, made once and kept.

The key is the engine, the model's hash and the prompt's ids, so that a stream made by another model, number format
or tokenizer is never taken for this one's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.packages import benchmark_cache
from benchmarks.replay_tasks import MOST_TOKENS, Task
from speculation.completion import Completer
from speculation.families import Markers
from speculation.loading import load_engine
from speculation.verifier.base import Verifier


def prompt_ids(task: Task, markers: Markers) -> list[int]:
    """The fill-in-the-middle prompt of a task; the prefix alone for a model without such markers."""
    if markers.prefix is None or markers.suffix is None or markers.middle is None:
        return list(task.prefix)
    return [markers.prefix, *task.prefix, markers.suffix, *task.suffix, markers.middle]


def prompt_key(ids: Sequence[int]) -> str:
    """Names a prompt."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:32]


class ModelStream:
    """The stream of one engine on one model, kept as JSON."""

    def __init__(self, engine: str, model_hash: str) -> None:
        self.path: Path = benchmark_cache() / f"greedy-{engine}-{model_hash[:16]}.json"
        self._known: dict[str, list[int]] = {}
        if self.path.exists():
            self._known = json.loads(self.path.read_text(encoding="utf-8"))

    def get(self, key: str) -> list[int] | None:
        """The known continuation of a prompt."""
        return self._known.get(key)

    def put(self, key: str, tokens: Sequence[int]) -> None:
        """Keeps a continuation; what was made is not lost when the run is stopped."""
        self._known[key] = list(tokens)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self._known), encoding="utf-8")
        partial.replace(self.path)


def greedy(verifier: Verifier, prompt: Sequence[int], count: int = MOST_TOKENS) -> list[int]:
    """``count`` greedy tokens after a prompt, one pass each, with no stop rule."""
    slot = verifier.open_slot()
    try:
        chunk = verifier.capabilities.prefill_chunk
        for at in range(0, len(prompt) - 1, chunk):
            verifier.prefill(slot, prompt[at : min(at + chunk, len(prompt) - 1)])
        tokens, last = [], prompt[-1]
        for _ in range(count):
            last = int(verifier.verify(slot, [last])[-1].argmax())
            verifier.commit(slot, [0])
            tokens.append(last)
        return tokens
    finally:
        verifier.close_slot(slot)


def targets(
    tasks: Iterable[Task], markers: Markers, stream: ModelStream, completer: Completer | None
) -> dict[str, list[int]]:
    """Task names to the model's tokens; those not known are made where there is a completer, else left out."""
    found = {}
    for task in track(list(tasks), "the model's own text", console=Console(stderr=True)):
        ids = prompt_ids(task, markers)
        tokens = stream.get(prompt_key(ids))
        if tokens is None and completer is not None:
            tokens = greedy(completer.verifier, ids)
            stream.put(prompt_key(ids), tokens)
        if tokens is not None:
            found[task.name] = tokens
    return found


def load(model: str, engine: str) -> Completer:
    """The engine that is its own target."""
    return load_engine(model, engine=engine, dtype="float32" if engine == "eager" else "auto")
