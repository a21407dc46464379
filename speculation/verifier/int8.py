"""The int8 CPU engine: row-normalised int8 products, row-invariant attention, a fused forward for Llama
shapes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from cache.sealed import DamagedFileError
from speculation.verifier.architecture import read_architecture
from speculation.verifier.attention import MAX_DEPTH, WIDTH, plan_pass
from speculation.verifier.base import Capabilities, VerifierError
from speculation.verifier.int8_linear import INTEGER_BACKENDS, has_wide_accumulation, working_backend
from speculation.verifier.int8_model import FusedModel
from speculation.verifier.int8_self_test import self_test
from speculation.verifier.kv import KvStore, Slot
from speculation.verifier.nodes import check_nodes, check_path
from speculation.verifier.weights import cached_weights

MAX_CONTEXT = 8192
MAX_NODES = MAX_DEPTH  # the last committed token and a draft of 64


class Int8Verifier:
    """A verifier over the fused int8 model. See `speculation.verifier.base.Verifier`."""

    def __init__(self, model: FusedModel, name: str, max_context: int = MAX_CONTEXT) -> None:
        self._model = model
        architecture = model.architecture
        self._geometry = architecture.geometry
        self._kv = KvStore(architecture.layers, self._geometry.kv_width, WIDTH)
        found = self_test(model)
        self.capabilities = Capabilities(
            engine="int8",
            model=name,
            device="cpu",
            dtype="int8" if model.backend in INTEGER_BACKENDS else model.backend,
            vocab_size=architecture.vocab,
            max_context=min(max_context, architecture.max_context),
            row_invariant=found.invariant,
            trees=True,
            croppable=True,
            weight_bytes=model.weight_bytes,
            kv_bytes_per_token=self._kv.bytes_per_token,
            prefill_chunk=found.prefill_chunk,
            unread_bytes=model.embedding_bytes,
        )

    @classmethod
    def load(
        cls,
        directory: Path,
        name: str,
        key: str,
        cache_dir: Path,
        backend: str | None = None,
        max_context: int = MAX_CONTEXT,
    ) -> Int8Verifier:
        """Loads a model directory, by way of its int8 weights in ``cache_dir``, which are made on first use.

        ``key``: a hash of the model's files. ``backend``: one of `int8_linear.BACKENDS`; by default the
        first that works here.

        Raises:
            UnsupportedModelError: an architecture that the fused forward does not know.
        """
        architecture = read_architecture(directory)
        backend = backend or working_backend()
        pair_bound = backend in INTEGER_BACKENDS and not has_wide_accumulation()

        def run(file: Path, ids: Tensor) -> Tensor:
            return FusedModel(architecture, file, backend).run(ids)

        weights = cached_weights(directory, architecture, cache_dir, key, pair_bound, run)
        try:
            model = FusedModel(architecture, weights, backend)
        except DamagedFileError as error:
            print(f"{error}; it is made again", file=sys.stderr)
            weights.unlink(missing_ok=True)
            weights = cached_weights(directory, architecture, cache_dir, key, pair_bound, run)
            model = FusedModel(architecture, weights, backend)
        return cls(model, name, max_context)

    def limit_context(self, positions: int) -> None:
        """Lowers the context to at most ``positions``."""
        context = min(positions, self.capabilities.max_context)
        self.capabilities = replace(self.capabilities, max_context=context)

    def open_slot(self) -> int:
        return self._kv.open()

    def close_slot(self, slot: int) -> None:
        self._kv.close(slot)

    def copy_slot(self, slot: int, length: int) -> int:
        return self._kv.copy(slot, length)

    def length(self, slot: int) -> int:
        return self._kv[slot].length

    @torch.inference_mode()
    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        held, _ = self._forward(slot, tokens, None, states=False)
        held.length += len(tokens)

    @torch.inference_mode()
    def verify(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Tensor:
        if len(tokens) > MAX_NODES:
            raise VerifierError(f"{len(tokens)} nodes are more than {MAX_NODES}")
        held, hidden = self._forward(slot, tokens, parents)
        held.pending = list(range(-1, len(tokens) - 1)) if parents is None else list(parents)
        return self._model.logits(hidden)

    @torch.inference_mode()
    def commit(self, slot: int, path: Sequence[int]) -> None:
        held = self._kv[slot]
        if held.pending is None:
            raise VerifierError(f"nothing to commit in slot {slot}: no verify since the last commit")
        check_path(path, held.pending)
        if list(path) != list(range(len(path))):
            moved = held.data[:, torch.tensor(path) + held.length]
            held.data[:, held.length : held.length + len(path)] = moved
        held.length += len(path)
        held.pending = None

    def rollback(self, slot: int, length: int) -> None:
        held = self._kv[slot]
        if not 0 <= length <= held.length:
            raise VerifierError(f"cannot roll slot {slot} back to {length}: it holds {held.length} positions")
        held.length = length
        held.pending = None

    def _forward(
        self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None, states: bool = True
    ) -> tuple[Slot, Tensor]:
        check_nodes(tokens, parents, self._kv[slot].length, self.capabilities)
        held = self._kv.reserve(slot, len(tokens))
        plan = plan_pass(held.length, len(tokens), parents, self._geometry)
        held.pending = None
        return held, self._model.forward(torch.tensor(tokens), plan, held.data, states)
