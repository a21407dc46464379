"""The int8 CPU engine: row-normalised int8 products, row-invariant attention, a fused forward for Llama shapes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from speculation.verifier.architecture import read_architecture
from speculation.verifier.attention import MAX_DEPTH, WIDTH, plan_pass
from speculation.verifier.base import Capabilities, VerifierError
from speculation.verifier.int8_linear import has_wide_accumulation, working_backend
from speculation.verifier.int8_model import FusedModel
from speculation.verifier.kv import KvStore, Slot
from speculation.verifier.weights import cached_weights

MAX_NODES = 65  # the last committed token and a draft of 64


class Int8Verifier:
    """A verifier over the fused int8 model. See `speculation.verifier.base.Verifier`."""

    def __init__(self, model: FusedModel, name: str, max_context: int) -> None:
        self._model = model
        architecture = model.architecture
        self._geometry = architecture.geometry
        context = min(max_context, architecture.max_context)
        self._kv = KvStore(architecture.layers, self._geometry.kv_width, context, WIDTH)
        self.capabilities = Capabilities(
            engine="int8",
            model=name,
            device="cpu",
            dtype="int8" if model.backend in ("packed", "onednn") else model.backend,
            vocab_size=architecture.vocab,
            max_context=context,
            row_invariant=True,
            trees=True,
            croppable=True,
            weight_bytes=model.weight_bytes,
            kv_bytes_per_token=self._kv.bytes_per_token,
        )

    @classmethod
    def load(
        cls, directory: Path, cache_dir: Path, max_context: int = 4096, backend: str | None = None
    ) -> Int8Verifier:
        architecture = read_architecture(directory)
        backend = backend or working_backend()
        pair_bound = backend not in ("packed", "onednn") or not has_wide_accumulation()
        weights = cached_weights(directory, architecture, cache_dir, pair_bound)
        return cls(FusedModel(architecture, weights, backend), directory.name, max_context)

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
        held, _ = self._forward(slot, tokens, None)
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
        previous = -1
        for node in path:
            if not 0 <= node < len(held.pending) or held.pending[node] != previous:
                raise VerifierError(f"node {node} is not a child of node {previous}")
            previous = node
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

    def _forward(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None) -> tuple[Slot, Tensor]:
        self._check(tokens, parents)
        held = self._kv.reserve(slot, len(tokens))
        plan = plan_pass(held.length, len(tokens), parents, self._geometry)
        held.pending = None
        return held, self._model.forward(torch.tensor(tokens), plan, held.data)

    def _check(self, tokens: Sequence[int], parents: Sequence[int] | None) -> None:
        if not tokens:
            raise VerifierError("a pass needs at least one token")
        vocab = self._model.architecture.vocab
        if not all(0 <= token < vocab for token in tokens):
            raise VerifierError(f"token ids must be in [0, {vocab})")
        if parents is None:
            return
        if len(parents) != len(tokens):
            raise VerifierError(f"{len(parents)} parents for {len(tokens)} tokens")
        depths: list[int] = []
        for node, parent in enumerate(parents):
            if not -1 <= parent < node:
                raise VerifierError(f"node {node} has parent {parent}: parents must come before their children")
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        if max(depths) > MAX_DEPTH:
            raise VerifierError(f"a tree {max(depths)} nodes deep is deeper than {MAX_DEPTH}")
