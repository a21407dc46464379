"""The CUDA verifier: transformers' forward over a preallocated stage, captured once per shape.

At batch size 1 a GPU waits for the host, which needs about 0.2 ms a layer to launch what the device does in
less. A captured pass is one launch. Nothing but the capture needs CUDA; uncaptured, the same code runs on a
CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from speculation.verifier.base import Capabilities, VerifierError
from speculation.verifier.graphs_attention import SPLIT_KEYS, install
from speculation.verifier.graphs_memory import context_for, free_bytes, retry_once
from speculation.verifier.graphs_model import Weights, kv_shape, load_model, widest_context
from speculation.verifier.graphs_passes import MAX_NODES, Passes
from speculation.verifier.graphs_stage import Stage
from speculation.verifier.model_bytes import bytes_read, weight_bytes
from speculation.verifier.nodes import check_nodes, check_path

QUERY_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
FIRST_KEY_BUCKET = 256
MAX_CONTEXT = 8192
PREFILL_CHUNK = {"cuda": 512, "cpu": 128}  # positions that keep a prefill pass under about 100 ms


@dataclass(slots=True, eq=False)
class _Slot:
    """One sequence: committed positions, and the nodes of its last pass behind them."""

    length: int = 0
    parents: list[int] = field(default_factory=list)
    parked: tuple[Tensor, Tensor] | None = None  # None: on the stage, or empty


class GraphsVerifier:
    """A transformers model behind the verifier interface, in passes of fixed shapes."""

    def __init__(
        self,
        model: Any,
        name: str = "",
        *,
        max_context: int = MAX_CONTEXT,
        query_buckets: Sequence[int] = QUERY_BUCKETS,
        key_buckets: Sequence[int] | None = None,
        capture: bool | None = None,
    ) -> None:
        """Takes the stage's memory and captures every pass.

        Args:
            model: a causal LM in eval mode, already on its device; its attention is replaced.
            max_context: positions a slot may hold; lowered to what the model can and what memory allows.
            query_buckets: positions of a captured pass, at most 64. With a single bucket, and a single key
                bucket, all passes have one shape, so that a draft beside a position changes no rounding.
            key_buckets: keys that a pass sees, multiples of 128; by default doubling from 256. The whole
                stage is always the last.
            capture: whether to capture; by default on CUDA only.

        Raises:
            VerifierError: an architecture that these passes cannot run.
            OutOfMemoryError: no room for a useful context.
        """
        context = min(max_context, widest_context(model.config))
        shape = kv_shape(model)
        install(model)
        head = model.get_output_embeddings().weight
        device: torch.device = head.device
        self._model, self._shape = model, shape
        self._query_buckets, self._key_buckets = sorted(query_buckets), key_buckets
        self._capture = device.type == "cuda" if capture is None else capture
        self._slots: dict[int, _Slot] = {}
        self._next_slot = 0
        self._on_stage: _Slot | None = None
        self.capabilities = Capabilities(
            engine="graphs",
            model=name,
            device=str(device),
            dtype=str(model.dtype).removeprefix("torch."),
            vocab_size=head.shape[0],
            max_context=context_for(free_bytes(device), shape.bytes_per_position, context),
            row_invariant=False,  # only between passes of one shape
            trees=True,
            croppable=True,
            weight_bytes=weight_bytes(model),
            unread_bytes=weight_bytes(model) - bytes_read(model),
            kv_bytes_per_token=shape.bytes_per_position,
            prefill_chunk=PREFILL_CHUNK.get(device.type, PREFILL_CHUNK["cpu"]),
        )
        retry_once(self._build, free=self._shrink)

    @classmethod
    def load(
        cls,
        directory: str,
        name: str,
        dtype: str = "bfloat16",
        device: str = "cuda",
        weights: Weights | None = None,
        max_context: int = MAX_CONTEXT,
    ) -> GraphsVerifier:
        """Loads a local model directory; ``weights`` ("int8", "int4") quantises them with torchao."""
        return cls(load_model(directory, dtype, device, weights), name, max_context=max_context)

    def limit_context(self, positions: int) -> None:
        """Lowers the context to at most ``positions``."""
        self.capabilities = replace(
            self.capabilities, max_context=min(positions, self.capabilities.max_context)
        )

    def open_slot(self) -> int:
        """A new empty slot."""
        self._next_slot += 1
        self._slots[self._next_slot] = _Slot()
        return self._next_slot

    def close_slot(self, slot: int) -> None:
        """Frees a slot."""
        state = self._slot(slot)
        if self._on_stage is state:
            self._on_stage = None
        del self._slots[slot]

    @torch.inference_mode()
    def copy_slot(self, slot: int, length: int) -> int:
        """A new slot with the first ``length`` positions of another one."""
        source = self._slot(slot)
        if not 0 <= length <= source.length:
            raise VerifierError(f"cannot copy {length} positions of a slot that holds {source.length}")
        parked = retry_once(lambda: self._copy(source, length)) if length else None
        copy = self.open_slot()
        self._slots[copy] = _Slot(length, parked=parked)
        return copy

    def length(self, slot: int) -> int:
        """Committed positions."""
        return self._slot(slot).length

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Appends tokens as committed positions: a captured pass where they fit into one."""
        state = self._slot(slot)
        check_nodes(tokens, None, state.length, self.capabilities)
        self._enter(state)
        state.parents = []
        if len(tokens) <= self._query_buckets[-1]:
            self._run(tokens, None, state.length)
        else:
            retry_once(lambda: self._passes.run_long(tokens, state.length))
        self._passes.finish()
        state.length += len(tokens)

    def verify(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Tensor:
        """One forward pass; logits ``[n, vocab]`` on the CPU, in float32 at least."""
        self._verify(slot, tokens, parents)
        return self._passes.logits(len(tokens))

    def verify_best(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Tensor:
        """As `verify`, but only the two best token ids ``[n, 2]`` after each node leave the device.

        What greedy decoding needs when nothing changes the logits: two integers a row instead of the
        vocabulary.
        """
        self._verify(slot, tokens, parents)
        return self._passes.best(len(tokens))

    @torch.inference_mode()
    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keeps a path of the last pass."""
        state = self._slot(slot)
        check_path(path, state.parents)
        self._enter(state)
        self._stage.keep(state.length, path)
        state.length += len(path)
        state.parents = []

    def rollback(self, slot: int, length: int) -> None:
        """Forgets committed positions from ``length`` on."""
        state = self._slot(slot)
        if not 0 <= length <= state.length:
            raise VerifierError(f"cannot roll back to {length}: the slot holds {state.length} positions")
        state.length = length
        state.parents = []

    def _verify(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None) -> None:
        state = self._slot(slot)
        check_nodes(tokens, parents, state.length, self.capabilities)
        if len(tokens) > self._query_buckets[-1]:
            raise VerifierError(
                f"{len(tokens)} nodes are more than the {self._query_buckets[-1]} of one pass"
            )
        self._enter(state)
        state.parents = []
        self._run(tokens, parents, state.length)
        state.parents = list(range(-1, len(tokens) - 1)) if parents is None else list(parents)

    def _run(self, tokens: Sequence[int], parents: Sequence[int] | None, start: int) -> None:
        retry_once(lambda: self._passes.run(tokens, parents, start))

    @torch.inference_mode()
    def _enter(self, state: _Slot) -> None:
        """Brings a slot onto the stage; the one that was there is parked, with the nodes of its last pass."""
        if self._on_stage is state:
            return
        if (leaving := self._on_stage) is not None:
            held = leaving.length + len(leaving.parents)
            leaving.parked = retry_once(lambda: self._stage.copy(held))
        self._on_stage = None
        if state.parked is not None:
            self._stage.put(state.parked)
            state.parked = None
        self._on_stage = state

    def _copy(self, state: _Slot, length: int) -> tuple[Tensor, Tensor]:
        if state.parked is None:
            return self._stage.copy(length)
        keys, values = state.parked
        return keys[:, :, :length].clone(), values[:, :, :length].clone()

    def _slot(self, slot: int) -> _Slot:
        try:
            return self._slots[slot]
        except KeyError:
            raise VerifierError(f"there is no slot {slot}") from None

    def _build(self) -> None:
        """Takes the stage's memory and captures the passes."""
        shape, head = self._shape, self._model.get_output_embeddings().weight
        capacity = -(-(self.capabilities.max_context + MAX_NODES) // SPLIT_KEYS) * SPLIT_KEYS
        self._stage = Stage(shape.layers, shape.heads, shape.key_dim, shape.value_dim, capacity, head)
        widths = _doubling(capacity) if self._key_buckets is None else self._key_buckets
        key_buckets = sorted({*(width for width in widths if width < capacity), capacity})
        self._passes = Passes(self._model, self._stage, self._query_buckets, key_buckets)
        if self._capture:
            self._passes.capture()

    def _shrink(self) -> None:
        """Half the context, after an attempt that did not fit."""
        self.__dict__.pop("_stage", None)
        self.__dict__.pop("_passes", None)
        self.limit_context(self.capabilities.max_context // 2)


def _doubling(capacity: int) -> list[int]:
    widths = [FIRST_KEY_BUCKET]
    while widths[-1] * 2 < capacity:
        widths.append(widths[-1] * 2)
    return widths
