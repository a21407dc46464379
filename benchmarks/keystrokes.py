"""How many new tokens a keystroke evaluates: ``python -m benchmarks.keystrokes [--model NAME] [--json FILE]``.

Every keystroke asks the completer, with the anchors of the language server, and nothing is answered from earlier
answers. The verifier is a table that counts instead of a model, because what is evaluated depends on the tokens
alone. Its answers are what is going to be typed when they are to be accepted, and something else at all other
times, which is the worst case for the KV store. The texts are modules of Python's own library.
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.keystrokes_typist import Typist
from lsp_server.anchor import Anchor
from lsp_server.brackets import replaced_after
from lsp_server.documents import Place
from speculation.completion import Completer, Completion
from speculation.request import CompletionRequest
from speculation.tokenizer import Tokenizer
from speculation.verifier.base import Capabilities

KEYSTROKES = 500
PROMPT_TOKENS = 1280  # the budget; prompts then have about a thousand
LIMIT = 3.0
ACCEPT_EVERY = 40  # keystrokes between two accepted answers
LINES = 30  # typed at one place
ANSWER_TOKENS = 6  # of an answer that nobody takes


class ScriptedVerifier:
    """Token lists for slots; the next token is the one that spells `answer` after what is in the slot."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.capabilities = Capabilities(
            "table", "qwen", "cpu", "float32", tokenizer.vocab_size, 8192, True, False, True, 0, 1
        )
        self._tokenizer = tokenizer
        self._slots: dict[int, list[int]] = {}
        self._opened = 0
        self._provisional: list[int] = []
        self._script: list[int] = []
        self._begins = 0

    def say(self, answer: str, begins: int) -> None:
        """The tokens of ``answer`` follow the first ``begins`` tokens of the slot."""
        self._script, self._begins = self._tokenizer.encode(answer), begins

    def open_slot(self) -> int:
        """An empty slot."""
        self._opened += 1
        self._slots[self._opened] = []
        return self._opened

    def close_slot(self, slot: int) -> None:
        """Forgets a slot."""
        del self._slots[slot]

    def copy_slot(self, slot: int, length: int) -> int:
        """A copy of a slot's first tokens."""
        copy = self.open_slot()
        self._slots[copy] = self._slots[slot][:length]
        return copy

    def length(self, slot: int) -> int:
        """Tokens in a slot."""
        return len(self._slots[slot])

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Appends tokens."""
        self._slots[slot] += tokens

    def verify(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Tensor:
        """One-hot logits ``[n, vocab]`` on the script."""
        self._provisional = list(tokens)
        logits = torch.zeros(len(tokens), self.capabilities.vocab_size)
        for row in range(len(tokens)):
            spoken = len(self._slots[slot]) + row + 1 - self._begins
            if 0 <= spoken < len(self._script):
                logits[row, self._script[spoken]] = 1.0
        return logits

    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keeps a chain of the last pass."""
        self._slots[slot] += self._provisional[: len(path)]

    def rollback(self, slot: int, length: int) -> None:
        """Cuts a slot."""
        del self._slots[slot][length:]


@dataclass(slots=True)
class Report:
    """What the keystrokes evaluated."""

    arrivals: list[int] = field(default_factory=list)  # new tokens when a place is seen for the first time
    returns: list[int] = field(default_factory=list)  # when it is gone back to
    new: list[int] = field(default_factory=list)  # at each keystroke
    reused: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)
    moving: list[int] = field(default_factory=list)  # of these, where the anchor moved
    keys: Counter[str] = field(default_factory=Counter)
    dearest: list[tuple[int, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Figures for people and files."""
        mean = statistics.mean(self.new)
        return {
            "keystrokes": len(self.new),
            "keys": dict(self.keys),
            "prompt_tokens_mean": round(statistics.mean(self.prompt), 1),
            "new_tokens_mean": round(mean, 3),
            "new_tokens_median": statistics.median(self.new),
            "new_tokens_p99": sorted(self.new)[int(len(self.new) * 0.99)],
            "keystrokes_above_10": sum(new > 10 for new in self.new),
            "dearest": sorted(self.dearest, reverse=True)[:8],
            "where_the_anchor_moved": self.moving,
            "first_at_a_place": self.arrivals,
            "back_at_a_place": self.returns,
            "bounds": [
                {"name": "new tokens a keystroke", "value": mean, "limit": LIMIT, "ok": mean <= LIMIT},
                {
                    "name": "new tokens when going back",
                    "value": max(self.returns, default=0),
                    "limit": LIMIT,
                    "ok": max(self.returns, default=0) <= LIMIT,
                },
            ],
        }


class Replay:
    """Two documents typed into in turns, every keystroke a request."""

    def __init__(self, tokenizer: Tokenizer, modules: Sequence[ModuleType]) -> None:
        self.report = Report()
        self._anchored_at: dict[str, int] = {}
        self._verifier = ScriptedVerifier(tokenizer)
        self._completer = Completer(self._verifier, tokenizer, prompt_tokens=PROMPT_TOKENS)
        self._files = [self._open(module) for module in modules]

    def _open(self, module: ModuleType) -> tuple[str, Anchor, Typist]:
        text = inspect.getsource(module)
        first = text.count("\n") // 2
        return module.__name__, Anchor(), Typist(text, first, first + LINES)

    def run(self, keystrokes: int, switch_every: int = 25) -> Report:
        """Types, moving to the next document every ``switch_every`` keystrokes until ``keystrokes`` are made."""
        seen: set[str] = set()
        while len(self.report.new) < keystrokes:
            for name, anchor, typist in self._files:
                completion = self._ask(name, anchor, typist.place, "")
                (self.report.returns if name in seen else self.report.arrivals).append(
                    completion.metrics.new_tokens
                )
                seen.add(name)
                for _ in range(switch_every):
                    if not typist.rest or len(self.report.new) >= keystrokes:
                        break
                    self._keystroke(name, anchor, typist)
            if not any(typist.rest for _, _, typist in self._files):
                break
        return self.report

    def _keystroke(self, name: str, anchor: Anchor, typist: Typist) -> None:
        key = typist.press()
        anchored_at = self._anchored_at.get(name)
        accepting = typist.in_step and len(self.report.new) % ACCEPT_EVERY == ACCEPT_EVERY - 1
        line = typist.rest.split("\n")[0]
        completion = self._ask(name, anchor, typist.place, line if accepting else "never taken, ever, at all")
        metrics = completion.metrics
        self.report.keys[key] += 1
        if metrics.anchor_line != anchored_at:
            self.report.moving.append(metrics.new_tokens)
        self.report.new.append(metrics.new_tokens)
        self.report.reused.append(metrics.reused_tokens)
        self.report.prompt.append(metrics.prompt_tokens)
        self.report.dearest.append((metrics.new_tokens, f"{key} in {typist.place.before!r}"))
        if accepting and completion.text and typist.rest.startswith(completion.text):
            place = typist.place
            typist.accept(completion.text, replaced_after(place.before, completion.text, place.after))
            self.report.keys["accept"] += 1

    def _ask(self, name: str, anchor: Anchor, place: Place, answer: str) -> Completion:
        anchor_line, frozen = anchor.at(place)
        request = CompletionRequest(
            text=place.text(),
            offset=place.offset(),
            path=name,
            anchor_line=anchor_line,
            max_tokens=64 if answer else ANSWER_TOKENS,
            stop="line",
            frozen_prompt=frozen,
        )
        completion = self._completer.start(request)
        prompt = completion.prompt
        self._verifier.say(prompt.required.decode("utf-8", "ignore") + answer + "\n", len(prompt.tokens))
        completion.run()
        self._anchored_at[name] = completion.metrics.anchor_line
        return completion


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the report as JSON; 1 when a bound is missed."""
    import argparse as first_text
    import configparser as second_text

    from cache.models import default_model, resolve

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.keystrokes", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--model", default=default_model("cpu"), help="whose tokenizer and markers are used")
    parser.add_argument("--keystrokes", type=int, default=KEYSTROKES)
    parser.add_argument("--json", help="also write the report to this file")
    arguments = parser.parse_args(argv)
    tokenizer = Tokenizer.from_file(resolve(arguments.model).tokenizer)
    report = Replay(tokenizer, [first_text, second_text]).run(arguments.keystrokes).as_dict()
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 0 if all(bound["ok"] for bound in report["bounds"]) else 1


if __name__ == "__main__":
    sys.exit(main())
