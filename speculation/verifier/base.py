"""The interface of a verifier: the target model, its KV cache and nothing else.

The verifier owns every tensor of the KV cache. Callers hold opaque slot numbers and know which tokens are in a slot;
they never touch the tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class VerifierError(Exception):
    """Wrong use of a verifier: a clear message, and the cache is as it was."""


class OutOfMemoryError(VerifierError):
    """The device has no memory left for this pass, even after freeing what could be freed."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do and what it costs in bytes."""

    engine: str  # "eager", "int8", "graphs"
    model: str
    device: str
    dtype: str
    vocab_size: int
    max_context: int  # positions a slot can hold
    row_invariant: bool  # to the bit: K, V, logits of a position do not depend on what shares the pass
    trees: bool  # verify() accepts parents
    croppable: bool  # rollback() works (False: sliding-window or recurrent caches; speculation must be off)
    weight_bytes: int
    kv_bytes_per_token: int
    prefill_chunk: int = 128  # positions per prefill pass that keep it under about 100 ms
    unread_bytes: int = 0  # of weight_bytes: an embedding table of which a pass takes a few rows


class Verifier(Protocol):
    """One target model on one device. Not thread-safe: one worker owns it.

    An engine on another device may have ``verify_best``, too: as `verify`, but of each row only the two best ids
    ``[n, 2]`` leave the device.
    """

    capabilities: Capabilities

    def open_slot(self) -> int:
        """A new empty slot."""

    def close_slot(self, slot: int) -> None:
        """Frees a slot and its memory."""

    def copy_slot(self, slot: int, length: int) -> int:
        """A new slot that holds the first ``length`` positions of another one."""

    def length(self, slot: int) -> int:
        """Committed positions in a slot."""

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        """Appends tokens as committed positions; one forward pass, no logits."""

    def verify(self, slot: int, tokens: Sequence[int], parents: Sequence[int] | None = None) -> Tensor:
        """One forward pass over ``tokens`` after the committed positions; logits ``[n, vocab]`` on the CPU.

        ``parents[i]`` is the index in ``tokens`` of node i's parent (-1: the committed end); None is a chain.
        The nodes stay provisional until `commit`; the committed length does not change.

        Raises:
            VerifierError: empty or too many tokens, ids out of range, a parent that does not precede its child,
                or a context that would overflow. The cache is as it was.
        """

    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keeps these nodes of the last `verify` (indices, each the parent of the next); drops the others."""

    def rollback(self, slot: int, length: int) -> None:
        """Forgets committed positions from ``length`` on."""
