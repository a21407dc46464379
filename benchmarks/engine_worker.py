"""One engine in a process of its own, timed on request: JSON lines in, JSON lines out.

Started by `benchmarks.engine`, which asks its workers in turn, so that what else the machine does falls on
all of them alike. A request is ``{"pass": m}`` (m positions after the context, logits for all of them; small passes
a few times after an untimed one, as in decoding, where no other engine comes in between) or
``{"prefill": n}``; the answer is ``{"ms": …}``. The file is run as a script, so that an interpreter that
has only llama-cpp-python can run it too.
"""

from __future__ import annotations

import ctypes
import json
import sys
from time import perf_counter
from typing import Any, Protocol

CONTEXT = 512
SMALL, AT_ONCE = 8, 8  # passes of up to SMALL positions are timed AT_ONCE positions at a time
TOKENS = [(7919 * i + 13) % 40_000 for i in range(CONTEXT + 64)]


class Engine(Protocol):
    """What a worker times."""

    def forward(self, tokens: list[int]) -> None:
        """One pass after the context, with logits for every position; leaves the context as it was."""

    def prefill(self, tokens: list[int]) -> None:
        """Replaces the context."""


class Product:
    """An engine of this project, by its command-line name."""

    def __init__(self, model: str, threads: int, engine: str = "int8") -> None:
        import torch

        torch.set_num_threads(threads)
        from cache.models import resolve
        from speculation.verifier.choice import choose

        self._verifier = choose("cpu", engine, "auto", resolve(model))
        self._slot = self._verifier.open_slot()

    def forward(self, tokens: list[int]) -> None:
        self._verifier.verify(self._slot, tokens)

    def prefill(self, tokens: list[int]) -> None:
        self._verifier.rollback(self._slot, 0)
        chunk = self._verifier.capabilities.prefill_chunk
        for first in range(0, len(tokens), chunk):
            self._verifier.prefill(self._slot, tokens[first : first + chunk])


class Transformers:
    """transformers' own forward with its dynamic cache."""

    def __init__(self, model: str, threads: int, dtype: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, DynamicCache

        from cache.models import resolve

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._torch, self._new_cache = torch, DynamicCache
        self._model = AutoModelForCausalLM.from_pretrained(
            resolve(model).directory, dtype=getattr(torch, dtype), local_files_only=True
        ).eval()
        self._cache = DynamicCache()

    def forward(self, tokens: list[int]) -> None:
        self._model(self._torch.tensor([tokens]), past_key_values=self._cache, use_cache=True)

    def forget(self, count: int) -> None:
        self._cache.crop(-count)

    def prefill(self, tokens: list[int]) -> None:
        self._cache = self._new_cache()
        ids = self._torch.tensor([tokens])
        self._model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)


class Llama:
    """llama.cpp on the GGUF file the product's model was made from; its low-level calls, nothing copied."""

    def __init__(self, path: str, threads: int) -> None:
        import llama_cpp

        self._api = llama_cpp
        llama_cpp.llama_log_set(_SILENT, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = 2048, 512, 512
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._held = 0

    def _decode(self, tokens: list[int], logits: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, self._held + i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = logits or i == len(tokens) - 1
        if self._api.llama_decode(self._context, batch):
            raise RuntimeError("llama_decode failed")
        self._api.llama_get_logits(self._context)

    def forward(self, tokens: list[int]) -> None:
        self._decode(tokens, logits=True)

    def forget(self, count: int) -> None:
        self._api.llama_memory_seq_rm(self._api.llama_get_memory(self._context), 0, self._held, -1)

    def prefill(self, tokens: list[int]) -> None:
        self._api.llama_memory_seq_rm(self._api.llama_get_memory(self._context), 0, 0, -1)
        self._held = 0
        self._decode(tokens, logits=False)
        self._held = len(tokens)

    def about(self) -> str:
        """The instructions this build uses."""
        return self._api.llama_print_system_info().decode()


def _silent(level: int, text: bytes, data: Any) -> None:
    """llama.cpp's log, not shown."""


_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_silent)


def start(kind: str, model: str, threads: int) -> Engine:
    """The engine of a kind: ``llama``, ``transformers-DTYPE`` or one of the product's engine names."""
    if kind == "llama":
        return Llama(model, threads)
    if kind.startswith("transformers-"):
        return Transformers(model, threads, kind.removeprefix("transformers-"))
    return Product(model, threads, kind)


def main() -> None:
    """Answers requests until the input ends."""
    kind, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    engine = start(kind, model, threads)
    engine.prefill(TOKENS[:CONTEXT])
    forget = getattr(engine, "forget", lambda count: None)
    about = getattr(engine, "about", lambda: "")
    print(json.dumps({"ready": kind, "about": about()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "pass" in request:
            tokens = TOKENS[CONTEXT : CONTEXT + request["pass"]]
            times = []
            for _ in range(1 + AT_ONCE // len(tokens) if len(tokens) <= SMALL else 1):
                began = perf_counter()
                engine.forward(tokens)
                times.append((perf_counter() - began) * 1e3)
                forget(len(tokens))
            times = times[1:] or times
            ms = sum(times) / len(times)
        else:
            began = perf_counter()
            engine.prefill(TOKENS[: request["prefill"]])
            ms = (perf_counter() - began) * 1e3
        print(json.dumps({"ms": ms}), flush=True)


if __name__ == "__main__":
    main()
