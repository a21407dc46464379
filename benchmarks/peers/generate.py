"""transformers' own `generate` as a peer: plain, and with its prompt lookup, on the weights ours are made from."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer

from cache.models import resolve

LOOKUP_TOKENS = 10
CALIBRATION = 192  # tokens of prompt


class Clock(BaseStreamer):
    """Notes when tokens come; one call is one forward pass."""

    def __init__(self) -> None:
        self.began = perf_counter()
        self.at: list[tuple[float, int]] = []  # ms since the start, tokens so far
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        """The prompt first, then what each pass committed."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        before = self.at[-1][1] if self.at else 0
        self.at.append(((perf_counter() - self.began) * 1e3, before + value.numel()))

    def end(self) -> None:
        """Nothing to flush."""


class Transformers:
    """The converted weights of a model in one number format, with the attention transformers chooses."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.set_num_threads(settings["threads"])
        torch.set_grad_enabled(False)
        transformers.utils.logging.set_verbosity_error()
        files = resolve(settings["model"])
        dtype = settings["dtype"]
        self._tokenizer = AutoTokenizer.from_pretrained(files.directory, local_files_only=True)
        self._model = AutoModelForCausalLM.from_pretrained(
            files.directory, dtype=getattr(torch, dtype), local_files_only=True
        ).eval()
        # as many tokens as are asked for: where a text ends is judged afterwards, by the same rules for every peer
        self._model.generation_config.eos_token_id = None
        self._model.generation_config.pad_token_id = 0
        self.about = {"version": f"transformers {transformers.__version__}", "dtype": dtype}
        self._run([1, 2, 3, 4], 2, "plain")

    def tokenize(self, texts: Sequence[str]) -> dict[str, Any]:
        """The ids of texts."""
        return {"ids": [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]}

    def complete(self, task: dict[str, Any], modes: Sequence[str]) -> dict[str, Any]:
        """A completion in each mode, ``plain`` or ``lookup``, each with a prefill of its own."""
        runs: dict[str, Any] = {}
        for mode in modes:
            clock, ids = self._run(task["prompt"], task["max_tokens"], mode)
            first_ms = clock.at[0][0]
            runs[mode] = {
                "prefill_ms": first_ms,
                "ids": ids,
                "events": [[ms - first_ms, count] for ms, count in clock.at],
                "drafted": None,  # generate does not tell
                "accepted": None,
            }
        return {"modes": runs}

    def calibrate(self, tokens: int) -> dict[str, Any]:
        """Milliseconds of a short prompt and so many tokens, to choose the faster number format by."""
        clock, _ = self._run([(7919 * i + 13) % 40_000 for i in range(CALIBRATION)], tokens, "plain")
        return {"ms": clock.at[-1][0]}

    def _run(self, prompt: Sequence[int], count: int, mode: str) -> tuple[Clock, list[int]]:
        lookup = {"prompt_lookup_num_tokens": LOOKUP_TOKENS} if mode == "lookup" else {}
        ids = torch.tensor([prompt])
        clock = Clock()
        made = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=count,
            streamer=clock,
            **lookup,
        )
        return clock, made[0, len(prompt) :].tolist()
