"""The reference verifier: any transformers causal LM with a dynamic cache, in float32, bfloat16 or float64.

Slow and simple; what the fast engines are compared with. The mask is always explicit, so that chains and trees run
through the same forward.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from speculation.verifier.base import Capabilities, VerifierError
from speculation.verifier.model_bytes import bytes_read, weight_bytes
from speculation.verifier.nodes import ancestor_mask, check_nodes, check_path

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
PREFILL_CHUNK = 128
LEAST_WINDOW = 1024  # a sliding window this long is a context of its own


class EagerVerifier:
    """A transformers model behind the verifier interface."""

    def __init__(self, model: Any, name: str = "") -> None:
        """``model``: a causal LM in eval mode, already on its device."""
        self._model = model
        parameters = inspect.signature(model.forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"  # renamed in 5.24
        self._slots: dict[int, _Slot] = {}
        self._next_slot = 0
        config = model.config.get_text_config()
        window = _sliding_window(config)
        # a context within the window never forgets, so the layers can be treated as full attention
        self._plain_cache = window is None or window >= LEAST_WINDOW
        head = model.get_output_embeddings().weight
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kv_bytes = 2 * config.num_hidden_layers * heads * head_dim * head.element_size()
        croppable = self._plain_cache and _keeps_positions(config)
        self.capabilities = Capabilities(
            engine="eager",
            model=name,
            device=str(head.device),
            dtype=str(head.dtype).removeprefix("torch."),
            vocab_size=head.shape[0],
            max_context=min(config.max_position_embeddings, window or config.max_position_embeddings)
            if croppable
            else config.max_position_embeddings,
            row_invariant=False,
            trees=croppable,
            croppable=croppable,
            weight_bytes=weight_bytes(model),
            kv_bytes_per_token=kv_bytes,
            prefill_chunk=PREFILL_CHUNK,
            unread_bytes=weight_bytes(model) - bytes_read(model),
        )

    @classmethod
    def load(cls, directory: str, name: str, dtype: str = "float32", device: str = "cpu") -> EagerVerifier:
        """Loads a converted or local model directory; never runs code from it, never touches the network."""
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        model = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=DTYPES[dtype],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
        return cls(model.to(device).eval(), name)

    def limit_context(self, positions: int) -> None:
        """Lowers the context to at most ``positions``."""
        self.capabilities = replace(
            self.capabilities, max_context=min(positions, self.capabilities.max_context)
        )

    def open_slot(self) -> int:
        """A new empty slot."""
        self._next_slot += 1
        self._slots[self._next_slot] = _Slot(self._new_cache())
        return self._next_slot

    def close_slot(self, slot: int) -> None:
        """Frees a slot."""
        self._slot(slot)
        del self._slots[slot]

    def copy_slot(self, slot: int, length: int) -> int:
        """A new slot with the first ``length`` positions of another one."""
        source = self._slot(slot)
        if not 0 <= length <= source.length:
            raise VerifierError(f"cannot copy {length} positions of a slot that holds {source.length}")
        copy = self.open_slot()
        if length and not self.capabilities.croppable:
            if length < source.length:
                raise VerifierError("this model's cache can only be copied whole")
            self._slots[copy] = _Slot(deepcopy(source.cache), length)
        elif length:
            layers = [(k[:, :, :length].clone(), v[:, :, :length].clone()) for k, v in source.layers()]
            self._slots[copy] = _Slot(self._new_cache(layers), length)
        return copy

    def length(self, slot: int) -> int:
        """Committed positions."""
        return self._slot(slot).length

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Appends tokens as committed positions."""
        state = self._slot(slot)
        check_nodes(tokens, None, state.length, self.capabilities)
        state.drop_provisional()
        self._forward(state, tokens, None, logits=False)
        state.length += len(tokens)

    def verify(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Tensor:
        """One forward pass; logits ``[n, vocab]`` on the CPU, in the model's precision but at least float32."""
        state = self._slot(slot)
        check_nodes(tokens, parents, state.length, self.capabilities)
        state.drop_provisional()
        logits = self._forward(state, tokens, parents, logits=True)
        state.parents = list(range(-1, len(tokens) - 1)) if parents is None else list(parents)
        return logits

    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keeps a path of the last pass."""
        state = self._slot(slot)
        check_path(path, state.parents)
        if not self.capabilities.croppable and len(path) < len(state.parents):
            raise VerifierError("this model's cache cannot drop positions: verify one token at a time")
        state.keep(path, self.capabilities.croppable)

    def rollback(self, slot: int, length: int) -> None:
        """Forgets committed positions from ``length`` on."""
        state = self._slot(slot)
        if not 0 <= length <= state.length:
            raise VerifierError(f"cannot roll back to {length}: the slot holds {state.length} positions")
        if length < state.length and not self.capabilities.croppable:
            raise VerifierError("this model's cache cannot be rolled back")
        state.length = length
        state.drop_provisional()

    @torch.inference_mode()
    def _forward(
        self, state: _Slot, tokens: Sequence[int], parents: Sequence[int] | None, logits: bool
    ) -> Tensor:
        device = self._model.device
        start = state.length
        mask, depth = ancestor_mask(len(tokens), parents)
        options: dict[str, Any] = {}
        if self.capabilities.croppable:
            past = torch.ones(len(tokens), start, dtype=torch.bool)
            full = torch.cat([past, mask], dim=1)[None, None]
            dtype = self._model.dtype
            bias = torch.zeros(full.shape, dtype=dtype).masked_fill(~full, torch.finfo(dtype).min)
            options["attention_mask"] = bias.to(device)
        out = self._model(
            input_ids=torch.tensor([list(tokens)], device=device),
            position_ids=(start + depth)[None].to(device),
            use_cache=True,
            logits_to_keep=0 if logits else 1,
            **{self._cache_argument: state.cache},
            **options,
        )
        result = out.logits[0].cpu()
        return result if result.dtype == torch.float64 else result.float()

    def _slot(self, slot: int) -> _Slot:
        try:
            return self._slots[slot]
        except KeyError:
            raise VerifierError(f"there is no slot {slot}") from None

    def _new_cache(self, layers: list[tuple[Tensor, Tensor]] | None = None) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache() if self._plain_cache else DynamicCache(config=self._model.config)
        for number, (keys, values) in enumerate(layers or []):
            cache.update(keys, values, number)
        return cache


class _Slot:
    """One sequence's dynamic cache: committed positions first, then those of the last pass."""

    def __init__(self, cache: Any, length: int = 0) -> None:
        self.cache = cache
        self.length = length
        self.parents: list[int] = []  # of the provisional nodes

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values ``[1, heads, positions, dim]`` of each layer."""
        return [(layer.keys, layer.values) for layer in self.cache.layers]

    def drop_provisional(self) -> None:
        """Cuts every layer to the committed positions."""
        self.parents = []
        if self.cache.get_seq_length() > self.length:
            self._select(slice(0, self.length))

    def keep(self, path: Sequence[int], croppable: bool = True) -> None:
        """Keeps the committed positions and the nodes of ``path``; all of the pass where nothing can be cut."""
        if not croppable:
            pass
        elif list(path) == list(range(len(path))):
            self._select(slice(0, self.length + len(path)))
        else:
            self._select(torch.tensor([*range(self.length), *(self.length + node for node in path)]))
        self.length += len(path)
        self.parents = []

    def _select(self, positions: slice | Tensor) -> None:
        for layer in self.cache.layers:
            layer.keys = layer.keys[:, :, positions]
            layer.values = layer.values[:, :, positions]


def _sliding_window(config: Any) -> int | None:
    """Positions after which some layer forgets; None when none does."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or []
    slides = (
        any("sliding" in kind for kind in kinds) if kinds else getattr(config, "use_sliding_window", True)
    )
    return int(window) if window is not None and slides else None


def _keeps_positions(config: Any) -> bool:
    """Whether every layer keeps keys and values by position (recurrent layers do not)."""
    kinds = getattr(config, "layer_types", None) or []
    recurrent = any("attention" not in kind or "linear" in kind for kind in kinds)
    return not recurrent and not hasattr(config, "state_size") and not hasattr(config, "mamba_d_state")
