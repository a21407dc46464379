"""llama.cpp as a peer, by the low-level calls of llama-cpp-python, on the GGUF file that our weights come from.

The loop is our own, so that nothing of the Python wrapper is counted against llama.cpp: prefill with the logits of
the last position only, logits copied for drafted positions only. Drafts are those of llama-cpp-python's
`LlamaPromptLookupDecoding`. Runs in an interpreter that may have nothing of this project's dependencies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import llama_cpp as api  # type: ignore[import-not-found]  # comes with the extra, or in another interpreter
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding  # type: ignore[import-not-found]

CONTEXT = 4096
BATCH = 2048  # positions of one call
UBATCH = 512


class Llama:
    """One model and one context; the tokens in its KV cache are kept from request to request."""

    def __init__(self, settings: dict[str, Any]) -> None:
        api.llama_log_set(_SILENT, ctypes.c_void_p(0))
        api.llama_backend_init()
        path, threads = settings["gguf"], settings["threads"]
        self._model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        parameters = api.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = CONTEXT, BATCH, UBATCH
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, parameters)
        self._memory = api.llama_get_memory(self._context)
        self._vocabulary = api.llama_model_get_vocab(self._model)
        self._rows = api.llama_vocab_n_tokens(self._vocabulary)
        self._batch = api.llama_batch_init(BATCH, 0, 1)
        self._held: list[int] = []  # tokens in the KV cache
        self.about = {
            "version": f"llama-cpp-python {api.__version__}",
            "instructions": api.llama_print_system_info().decode(),
        }
        self._evaluate([1, 2, 3, 4])

    def tokenize(self, texts: Sequence[str]) -> dict[str, Any]:
        """The ids of texts in which markers are plain text."""
        return {"ids": [self._ids(text.encode()) for text in texts]}

    def complete(self, task: dict[str, Any], modes: Sequence[str]) -> dict[str, Any]:
        """A completion in each mode after one prefill: ``plain``, or ``lookup-N`` with drafts of N tokens."""
        prompt, count = task["prompt"], task["max_tokens"]
        self._keep(0)
        began = perf_counter()
        [first] = self._evaluate(prompt)
        prefill_ms = (perf_counter() - began) * 1e3
        runs = {}
        for mode in modes:
            self._keep(len(prompt))
            size = int(mode.removeprefix("lookup-")) if mode.startswith("lookup-") else 0
            runs[mode] = self._decode(first, count, size)
        return {"prefill_ms": prefill_ms, "modes": runs}

    def keystroke(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        quick_ms: float,
        ends: Sequence[int],
        line_ends: Sequence[int],
    ) -> dict[str, Any]:
        """A completion as the editor plugin asks for it: the KV of the longest common prefix is kept; ends at an
        end token, or ``quick_ms`` after the first token once there is a line end."""
        shared = 0
        while shared < min(len(self._held), len(prompt) - 1) and self._held[shared] == prompt[shared]:
            shared += 1
        began = perf_counter()
        self._keep(shared)
        [token] = self._evaluate(prompt[shared:])
        first_at = perf_counter()
        made: list[int] = []
        line_ms = None  # when the first line was whole
        while token not in ends:
            made.append(token)
            if line_ms is None and token in line_ends:
                line_ms = (perf_counter() - began) * 1e3
            late = (perf_counter() - first_at) * 1e3 >= quick_ms
            if len(made) >= max_tokens or (late and line_ms is not None):
                break
            [token] = self._evaluate([token])
        total_ms = (perf_counter() - began) * 1e3
        return {
            "ids": made,
            "ms": total_ms,
            "line_ms": line_ms or total_ms,
            "first_ms": (first_at - began) * 1e3,
            "reused": shared,
            "new": len(prompt) - shared,
        }

    def _decode(self, first: int, count: int, size: int) -> dict[str, Any]:
        """Greedy tokens after the first one; times count from when that one was there."""
        lookup = LlamaPromptLookupDecoding(num_pred_tokens=size) if size else None
        made = [first]
        drafted = accepted = 0
        began = perf_counter()
        events = [[0.0, 1]]
        while len(made) < count:
            draft: list[int] = []
            room = count - len(made) - 1  # one token is always drawn after the draft
            if lookup is not None and room > 0:
                draft = [int(t) for t in lookup(np.asarray([*self._held, made[-1]], dtype=np.intc))[:room]]
            best = self._evaluate([made[-1], *draft], every=True)
            agreed = 0
            while agreed < len(draft) and draft[agreed] == best[agreed]:
                agreed += 1
            self._keep(len(self._held) - (len(draft) - agreed))
            made += best[: agreed + 1]
            drafted += len(draft)
            accepted += agreed
            events.append([(perf_counter() - began) * 1e3, len(made)])
        return {"ids": made, "events": events, "drafted": drafted, "accepted": accepted}

    def _evaluate(self, tokens: Sequence[int], every: bool = False) -> list[int]:
        """Appends tokens; the likeliest next token after the last of them, or after each."""
        best: list[int] = []
        for at in range(0, len(tokens), BATCH):
            piece = tokens[at : at + BATCH]
            batch = self._batch
            batch.n_tokens = len(piece)
            for i, token in enumerate(piece):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, len(self._held) + i, 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = every or at + i == len(tokens) - 1
            if api.llama_decode(self._context, batch):
                raise RuntimeError("llama_decode failed")
            self._held += piece
            if every or at + len(piece) == len(tokens):
                best += self._likeliest(len(piece) if every else 1)
        return best

    def _likeliest(self, rows: int) -> list[int]:
        logits = api.llama_get_logits(self._context)
        table = np.ctypeslib.as_array(logits, shape=(rows, self._rows))
        return [int(row) for row in table.argmax(axis=1)]

    def _keep(self, count: int) -> None:
        """Forgets everything after the first ``count`` tokens."""
        if count < len(self._held):
            api.llama_memory_seq_rm(self._memory, 0, count, -1)
            del self._held[count:]

    def _ids(self, text: bytes) -> list[int]:
        room = len(text) + 8
        ids = (ctypes.c_int32 * room)()
        count = api.llama_tokenize(self._vocabulary, text, len(text), ids, room, False, False)
        return list(ids[:count])


def _silent(level: int, text: bytes, data: Any) -> None:
    """llama.cpp's log, not shown."""


_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_silent)
