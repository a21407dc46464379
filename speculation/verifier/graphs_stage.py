"""The KV memory of the graphs engine: one stage at fixed addresses, and slots parked beside it.

A captured graph reads and writes fixed addresses, so every pass runs on the stage. A slot that is not on it
is parked as a copy of just its positions; changing places moves a few tens of MB within the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class Stage:
    """Keys and values ``[layers, heads, capacity, dim]`` of the slot that passes run on."""

    def __init__(
        self, layers: int, heads: int, key_dim: int, value_dim: int, capacity: int, like: Tensor
    ) -> None:
        """``like``: a tensor with the dtype and the device to use."""
        # zeros: what is masked is multiplied by zero, so it must be finite
        self.keys = torch.zeros(layers, heads, capacity, key_dim, dtype=like.dtype, device=like.device)
        self.values = torch.zeros(layers, heads, capacity, value_dim, dtype=like.dtype, device=like.device)

    @property
    def capacity(self) -> int:
        """Positions, those for padding rows included."""
        return self.keys.shape[2]

    def copy(self, length: int) -> tuple[Tensor, Tensor]:
        """The first ``length`` positions as tensors of their own."""
        return self.keys[:, :, :length].clone(), self.values[:, :, :length].clone()

    def put(self, parked: tuple[Tensor, Tensor]) -> None:
        """Copies parked positions back."""
        keys, values = parked
        self.keys[:, :, : keys.shape[2]] = keys
        self.values[:, :, : values.shape[2]] = values

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Moves the nodes ``path`` of the pass begun at ``start`` to its front; a leading chain stays put."""
        moved = next((i for i, node in enumerate(path) if node != i), len(path))
        if moved == len(path):
            return
        source = torch.tensor([start + node for node in path[moved:]], device=self.keys.device)
        for tensor in (self.keys, self.values):
            tensor[:, :, start + moved : start + len(path)] = tensor.index_select(2, source)


class StageLayer(CacheLayerMixin):
    """One layer of the stage as transformers sees it: writes in place, returns a view."""

    is_compileable = True

    def __init__(self, stage: Stage, layer: int, writes: Tensor, width: int) -> None:
        super().__init__()
        self.keys, self.values = stage.keys[layer], stage.values[layer]
        self.is_initialized = True
        self._writes, self._width = writes, width

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The stage is there from the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes the new positions ``[1, heads, n, dim]``; returns the first ``width``."""
        self.keys.index_copy_(1, self._writes, key_states[0])
        self.values.index_copy_(1, self._writes, value_states[0])
        return self.keys[None, :, : self._width], self.values[None, :, : self._width]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width and offset of the keys."""
        return self._width, 0

    def get_seq_length(self) -> int:
        """Not asked for its value: positions and mask are given explicitly."""
        return 0

    def get_max_length(self) -> int:
        """Positions the stage holds."""
        return self.keys.shape[1]

    get_max_cache_shape = get_max_length  # its earlier name


def stage_cache(stage: Stage, writes: Tensor, width: int) -> Cache:
    """A transformers cache over the stage: a pass writes at ``writes`` ``[n]`` and sees ``width`` keys."""
    return Cache(layers=[StageLayer(stage, layer, writes, width) for layer in range(stage.keys.shape[0])])
