"""The product's own decoder as a peer: speculation off, with prompt lookup only, and full.

The prompt's ids are given, as for every peer. All modes go on after one prefill of the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch

from benchmarks.replay_baselines import TransformersPromptLookup
from benchmarks.replay_forced import Pass
from benchmarks.replay_run import request_of
from benchmarks.replay_tasks import Task
from cache.hot_index import HotIndex
from cache.short_grams import WithShortGrams
from speculation.decoder import Decoder
from speculation.draft import Drafter, DraftRequest, NoDrafter
from speculation.drafting import Stores, build_drafter
from speculation.evidence import Evidence
from speculation.healing import Healing
from speculation.loading import load_engine
from speculation.policy import GainPolicy
from speculation.request import CompletionMetrics
from speculation.sampling import SamplingParameters
from speculation.stop import StopRules, Surroundings
from speculation.text_end import TextEnd


class Ours:
    """A loaded engine, and the drafters of each workspace; what they learn lasts as long as the process."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        torch.set_num_threads(settings["threads"])
        completer = load_engine(settings["model"], "cpu", settings["engine"], "auto")
        self._verifier, self._tokenizer = completer.verifier, completer.tokenizer
        self._ends, self._costs = completer.markers.end_ids, completer.costs
        self._indexes: dict[str, WithShortGrams] = {}
        self._replaced: Sequence[int] = ()
        self._learned = {mode: (GainPolicy(self._costs), Evidence()) for mode in ("full", "full-product")}
        self._drafters: dict[tuple[str, str], Drafter] = {}
        self.about = {
            "version": f"torch {torch.__version__}",
            "engine": completer.name,
            "row_invariant": self._verifier.capabilities.row_invariant,
            "pass_ms": {str(m): round(self._costs(m), 2) for m in (1, 2, 4, 8, 16, 32, 64)},
        }
        warm = Task("warm", "", [1, 2, 3], (), (), ())
        self._run(self._prefilled([1, 2, 3]), [1, 2, 3], warm, 4, "off")

    def tokenize(self, texts: Sequence[str]) -> dict[str, Any]:
        """The ids of texts."""
        return {"ids": [self._tokenizer.encode(text) for text in texts]}

    def workspace(self, key: str, texts: Mapping[str, str]) -> dict[str, Any]:
        """The files of a workspace, by path."""
        index = HotIndex(self._tokenizer.encode, max_tokens=1 << 62)
        for path, text in texts.items():
            index.open(path, text, key)
        self._indexes[key] = WithShortGrams(index)
        self._indexes[key].fill((index.tokens(path), None) for path in texts)
        return {"files": len(texts)}

    def complete(self, task: dict[str, Any], modes: Sequence[str]) -> dict[str, Any]:
        """A completion in each mode after one prefill; a task with forced ids goes through those instead."""
        about = Task(
            task["name"], task["workspace"], task["prefix"], task["suffix"], task["replaced"],
            task["forced"], task["next_line"],
        )  # fmt: skip
        self._replaced = task["replaced"]
        if task["forced"]:
            return self._forced(about, modes)
        prompt = task["prompt"]
        began = perf_counter()
        slot = self._prefilled(prompt)
        prefill_ms = (perf_counter() - began) * 1e3
        runs = {}
        for mode in modes:
            self._verifier.rollback(slot, len(prompt) - 1)
            runs[mode] = self._run(slot, prompt, about, task["max_tokens"], mode)
        self._verifier.close_slot(slot)
        return {"prefill_ms": prefill_ms, "modes": runs}

    def _prefilled(self, prompt: Sequence[int]) -> int:
        """A slot that holds the prompt but for its last token, which opens the first pass."""
        slot = self._verifier.open_slot()
        chunk = self._verifier.capabilities.prefill_chunk
        for at in range(0, len(prompt) - 1, chunk):
            self._verifier.prefill(slot, prompt[at : min(at + chunk, len(prompt) - 1)])
        return slot

    def _run(self, slot: int, prompt: Sequence[int], task: Task, count: int, mode: str) -> dict[str, Any]:
        """Decodes as the product does. Without the product's stop rules nothing but the count ends a text."""
        vocabulary = self._verifier.capabilities.vocab_size
        product = mode.endswith("-product")
        ends = self._ends if product else frozenset()
        surroundings = Surroundings("", task.next_line)
        end = TextEnd(
            prompt,
            sampling=SamplingParameters(),
            stop=StopRules("block" if product else "none", ends, count, surroundings),
            healing=Healing(self._tokenizer, b"", vocabulary, ends),
            tokenizer=self._tokenizer,
            first_position=0,
        )
        drafter, metrics = self._drafter(mode, task.workspace), CompletionMetrics()
        decoder = Decoder(self._verifier, slot, end, drafter, metrics)
        events: list[list[float]] = []
        began = perf_counter()
        drafter.start(request_of(task, vocabulary))
        while not decoder.done:
            decoder.round()
            events.append([(perf_counter() - began) * 1e3, len(end.committed)])
        return {
            "ids": end.committed,
            "events": events,
            "drafted": metrics.drafted,
            "accepted": metrics.accepted,
            "draft_ms": metrics.draft_ms,
            "verify_ms": metrics.verify_ms,
            "positions": {str(m): n for m, n in sorted(metrics.passes_by_positions.items())},
        }

    def _forced(self, task: Task, modes: Sequence[str]) -> dict[str, Any]:
        """Real passes over a given text; the prompt is evaluated anew for each mode, outside the time."""
        passes = Pass(self._verifier)
        runs = {}
        for mode in modes:
            elapsed, count = passes.decode(task, self._drafter(mode, task.workspace))
            runs[mode] = {
                "ids": list(task.target),
                "events": [[elapsed, len(task.target)]],
                "forwards": count,
                "drafted": None,
                "accepted": None,
            }
        return {"prefill_ms": 0.0, "modes": runs}

    def _drafter(self, mode: str, workspace: str) -> Drafter:
        if mode == "off":
            return NoDrafter()
        if mode == "lookup":
            return TransformersPromptLookup()
        key = (mode, workspace)
        if key not in self._drafters:
            stores = Stores(
                workspace=self._indexes.get(workspace),
                deleted=self._deleted,
                ends_line=lambda token: self._tokenizer.bytes_of(token).endswith(b"\n"),
            )
            policy, evidence = self._learned[mode]
            self._drafters[key] = build_drafter(stores, policy, evidence=evidence)
        return self._drafters[key]

    def _deleted(self, request: DraftRequest) -> Sequence[Sequence[int]]:
        return (self._replaced,)
