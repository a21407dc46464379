"""One engine in a process of its own that fills holes: JSON lines in, JSON lines out.

Started by `benchmarks.infilling`. The first line says what to load; a request is a hole's text and the prompt's ids,
an answer the text that fills it. Every kind decodes greedily and ends by the same rule: the end token, as many lines
as the hole had, or the token limit. The file is run as a script, so that an interpreter that has only
llama-cpp-python can run it too.
"""

from __future__ import annotations

import ctypes
import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.infilling_holes import taken

if TYPE_CHECKING:
    from speculation.completion import Completer

Answer = dict[str, Any]
CONTEXT = 2048


class Filler(Protocol):
    """What a worker asks for text."""

    def fill(self, request: dict[str, Any]) -> Answer:
        """The text for a hole, with the tokens and passes it took."""

    def about(self) -> str:
        """Version and build."""


class Product:
    """An engine of this project."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(settings["threads"])
        self._speculation: bool = settings["speculation"]
        load = _with_drafts if self._speculation else _without_drafts
        self._completer = load(settings["model"], settings["engine"], settings["dtype"])
        self._version = torch.__version__

    def fill(self, request: dict[str, Any]) -> Answer:
        from speculation.request import CompletionRequest

        generation = self._completer.start(
            CompletionRequest(
                text=request["above"] + request["below"],
                offset=len(request["above"]),
                max_tokens=request["max_tokens"],
                stop="none",
                speculation=self._speculation,
            )
        )
        if generation.prompt.tokens != request["prompt"]:
            raise RuntimeError("the prompt is not the one that the others get")
        while generation.step() and not taken(generation.text, request["lines"])[1]:
            pass
        generation.close()
        metrics = generation.metrics
        return {"text": generation.text, "tokens": metrics.committed, "forwards": metrics.forwards}

    def about(self) -> str:
        return f"torch {self._version}"


def _with_drafts(model: str, engine: str, dtype: str) -> Completer:
    from speculation.loading import load_engine

    return load_engine(model, "cpu", engine, dtype)


def _without_drafts(model: str, engine: str, dtype: str) -> Completer:
    """No costs are measured where nothing is drafted: in float32 that alone takes many seconds."""
    from cache.models import resolve
    from speculation.completion import Completer
    from speculation.tokenizer import Tokenizer
    from speculation.verifier.choice import choose

    files = resolve(model)
    return Completer(choose("cpu", engine, dtype, files), Tokenizer.from_file(files.tokenizer))


class Llama:
    """llama.cpp on the GGUF file that the product's model was made from, greedy, by its low-level calls.

    What two prompts in a row begin with is evaluated once, as the product does.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        import llama_cpp

        self._api = llama_cpp
        llama_cpp.llama_log_set(_SILENT, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(
            settings["gguf"].encode(), llama_cpp.llama_model_default_params()
        )
        if not model:
            raise SystemExit(f"llama.cpp cannot read {settings['gguf']}: give the file with --gguf")
        self._vocabulary = llama_cpp.llama_model_get_vocab(model)
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = CONTEXT, 512, 512
        parameters.n_threads = parameters.n_threads_batch = settings["threads"]
        self._context = llama_cpp.llama_init_from_model(model, parameters)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._held: list[int] = []
        self._ends = frozenset(settings["ends"])

    def fill(self, request: dict[str, Any]) -> Answer:
        prompt, made, text = request["prompt"], 0, b""
        shared = next(
            (n for n, (a, b) in enumerate(zip(prompt, self._held, strict=False)) if a != b),
            min(len(prompt), len(self._held)),
        )
        shared = min(shared, len(prompt) - 1)
        self._api.llama_memory_seq_rm(self._api.llama_get_memory(self._context), 0, shared, -1)
        del self._held[shared:]
        new = prompt[shared:]
        while made < request["max_tokens"]:
            token = self._next(new)
            made += 1
            if token in self._ends:
                break
            text += self._piece(token)
            if taken(text.decode(errors="ignore"), request["lines"])[1]:
                break
            new = [token]
        return {"text": text.decode(errors="ignore"), "tokens": made, "forwards": made}

    def _next(self, tokens: list[int]) -> int:
        """The most likely token after what is held and ``tokens``."""
        import numpy as np

        for at in range(0, len(tokens), 512):
            part, batch = tokens[at : at + 512], self._batch
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, len(self._held) + i, 1
                batch.seq_id[i][0], batch.logits[i] = 0, i == len(part) - 1
            if self._api.llama_decode(self._context, batch):
                raise RuntimeError("llama_decode failed")
            self._held += part
        size = self._api.llama_vocab_n_tokens(self._vocabulary)
        logits = self._api.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (size,)).argmax())

    def _piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        size = self._api.llama_token_to_piece(self._vocabulary, token, buffer, 256, 0, False)
        return buffer.raw[: max(0, size)]

    def about(self) -> str:
        return f"llama-cpp-python {self._api.__version__}"


def _silent(level: int, text: bytes, data: Any) -> None:
    """llama.cpp's log, not shown."""


_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_silent)


def main() -> None:
    """Answers requests until the input ends."""
    settings = json.loads(sys.stdin.readline())
    filler: Filler = Llama(settings) if settings["engine"] == "llama" else Product(settings)
    print(json.dumps({"about": filler.about()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        began = perf_counter()
        answer = filler.fill(request)
        answer["ms"] = (perf_counter() - began) * 1e3
        answer["text"] = taken(answer["text"], request["lines"])[0]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
