"""An engine that says what a script tells it, slowly if wanted, and notes every call."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from speculation.request import CompletionMetrics, CompletionRequest, FinishReason

Script = Callable[[CompletionRequest], Sequence[str]]


class ScriptedGeneration:
    """Says one piece a step."""

    def __init__(
        self, engine: ScriptedEngine, number: int, pieces: Sequence[str], finish: FinishReason
    ) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.metrics = CompletionMetrics()
        self._engine = engine
        self._number = number
        self._pieces = list(pieces)
        self._said: list[str] = []
        self._finish: FinishReason = finish

    @property
    def middle_ids(self) -> list[int]:
        return self.token_ids

    def step(self) -> bool:
        started = time.perf_counter()
        self._engine.note("step", generation=self._number)
        if self._engine.token_s:
            time.sleep(self._engine.token_s)
        if self._engine.fails_in_step:
            raise RuntimeError("the scripted engine fails in a step")
        if self._pieces:
            self._said.append(self._pieces.pop(0))
            self.text += self._said[-1]
            self.token_ids.append(len(self.token_ids))
            self.metrics.committed += 1
        self.metrics.forwards += 1
        self.metrics.verify_ms += (time.perf_counter() - started) * 1000
        if not self._pieces:
            self.finish_reason = self._finish
        return self.finish_reason is None

    def cut(self, text: str) -> None:
        whole = list(itertools.accumulate(self._said))
        self.token_ids = self.token_ids[: sum(len(said) <= len(text) for said in whole)]
        self.text, self.finish_reason = text, "deadline"

    def close(self) -> None:
        self._engine.note("close", generation=self._number)


class ScriptedEngine:
    """Implements `CompletionEngine`; `events` (and the file, if any) has one object per call."""

    name = "scripted"
    model = "scripted"

    def __init__(
        self,
        script: Script,
        token_ms: float = 0.0,
        finish: FinishReason = "end",
        log: Path | None = None,
        fails: str = "",
        notes_text: bool = False,
    ) -> None:
        self.script = script
        self.token_s = token_ms / 1000
        self.finish: FinishReason = finish
        self.fails_in_start = fails == "start"
        self.fails_in_step = fails == "step"
        self.notes_text = notes_text
        self.events: list[dict[str, Any]] = []
        self._file = log.open("a", encoding="utf-8", buffering=1) if log is not None else None
        self._generations = 0
        self.threads: set[int] = set()

    def start(self, request: CompletionRequest) -> ScriptedGeneration:
        self._generations += 1
        self.threads.add(threading.get_ident())
        facts: dict[str, Any] = {
            "generation": self._generations,
            "offset": request.offset,
            "path": request.path,
            "root": request.root,
            "language": request.language,
            "stop": request.stop,
            "forced_ids": list(request.forced_ids),
            "previous_answer": list(request.previous_answer),
            "anchor_line": request.anchor_line,
            "prompt_only": request.prompt_only,
            "seed": None if request.sampling is None else request.sampling.seed,
            "temperature": None if request.sampling is None else request.sampling.temperature,
            "context": [list(pair) for pair in request.context],
            "sha": text_hash(request.text, request.offset),
        }
        if self.notes_text:
            facts["text"] = request.text
        self.note("start", **facts)
        if self.fails_in_start:
            raise RuntimeError("the scripted engine fails at the start")
        return ScriptedGeneration(self, self._generations, self.script(request), self.finish)

    def note(self, event: str, **facts: Any) -> None:
        row = {"event": event, "at": time.monotonic(), **facts}
        self.events.append(row)
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")

    def count(self, event: str) -> int:
        return sum(row["event"] == event for row in self.events)


def text_hash(text: str, offset: int) -> str:
    """What tells two (text, cursor) apart."""
    return hashlib.sha256(f"{offset}\0{text}".encode()).hexdigest()[:16]


def says(text: str, piece: int = 4) -> Script:
    """Always the same text, ``piece`` characters a step."""
    return lambda request: chunks(text, piece)


def follows(target: str, piece: int = 4) -> Script:
    """What comes next in a target text, where the request's text is on its way there."""

    def script(request: CompletionRequest) -> Sequence[str]:
        before = request.text[: request.offset]
        rest = target[len(before) :] if target.startswith(before) else ""
        if request.stop == "line":
            rest = rest.partition("\n")[0]
        return chunks(rest, piece) or [""]

    return script


def hashes() -> Script:
    """A text that tells which (text, cursor) the engine was given."""
    return lambda request: [f"h{text_hash(request.text, request.offset)}"]


def by_line(table: dict[str, str]) -> Script:
    """An answer for each text before the cursor on its line; nothing for the others."""

    def script(request: CompletionRequest) -> Sequence[str]:
        before = request.text[: request.offset].rpartition("\n")[2]
        return chunks(table.get(before, ""), 4) or [""]

    return script


def by_seed() -> Script:
    """A text that tells the seed."""
    return lambda request: [f"seed_{0 if request.sampling is None else request.sampling.seed % 2}"]


def chunks(text: str, piece: int) -> list[str]:
    return re.findall(f".{{1,{piece}}}", text, re.DOTALL)


SCRIPTS: dict[str, Callable[..., Script]] = {
    "says": says,
    "follows": follows,
    "hashes": hashes,
    "by_line": by_line,
    "by_seed": by_seed,
}
