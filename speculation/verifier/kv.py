"""Key and value storage of a verifier: one growing tensor per slot, which nothing else touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from speculation.verifier.base import OutOfMemoryError, VerifierError

_CHUNK = 256  # positions a slot grows by, at least
_GROWTH = 1.25


@dataclass(slots=True)
class Slot:
    """One sequence's keys and values ``[layers, capacity, width]`` and how many positions are committed."""

    data: Tensor
    length: int = 0
    pending: Sequence[int] | None = None  # parents of the nodes of the last verify, until commit


class KvStore:
    """Slots by number. Capacities are whole key widths, so that a row's padded view always exists."""

    def __init__(self, layers: int, width: int, align: int) -> None:
        self._layers, self._width, self._align = layers, width, align
        self._slots: dict[int, Slot] = {}
        self._next = 0

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one position over all layers."""
        return self._layers * self._width * 4

    @property
    def bytes_used(self) -> int:
        """Bytes of all slots, room to grow included."""
        return sum(slot.data.numel() * 4 for slot in self._slots.values())

    def open(self) -> int:
        """A new empty slot; its memory comes with the first position."""
        return self._add(Slot(torch.zeros(self._layers, 0, self._width)))

    def close(self, slot: int) -> None:
        """Frees a slot."""
        self[slot]
        del self._slots[slot]

    def copy(self, slot: int, length: int) -> int:
        """A new slot with the first ``length`` positions of another."""
        source = self[slot]
        if not 0 <= length <= source.length:
            raise VerifierError(f"cannot copy {length} positions of slot {slot}, which holds {source.length}")
        data = self._allocate(self._capacity_for(length, exact=True))
        data[:, :length] = source.data[:, :length]
        return self._add(Slot(data, length))

    def reserve(self, slot: int, count: int) -> Slot:
        """The slot with room for ``count`` more positions."""
        held = self[slot]
        needed = held.length + count
        if self._capacity_for(needed, exact=True) > held.data.shape[1]:
            grown = self._allocate(self._capacity_for(needed, exact=False))
            grown[:, : held.length] = held.data[:, : held.length]
            held.data = grown
        return held

    def __getitem__(self, slot: int) -> Slot:
        if slot not in self._slots:
            raise VerifierError(f"there is no slot {slot}")
        return self._slots[slot]

    def _add(self, slot: Slot) -> int:
        self._next += 1
        self._slots[self._next] = slot
        return self._next

    def _capacity_for(self, positions: int, exact: bool) -> int:
        if not exact:
            positions = max(positions + _CHUNK, int(positions * _GROWTH))
        return -(-positions // self._align) * self._align

    def _allocate(self, capacity: int) -> Tensor:
        try:
            return torch.zeros(
                self._layers, capacity, self._width
            )  # zeros: what lies past the end must be finite
        except RuntimeError as error:
            size = capacity * self.bytes_per_token / 2**20
            raise OutOfMemoryError(
                f"no memory for a KV slot of {capacity} positions ({size:.0f} MiB)"
            ) from error
