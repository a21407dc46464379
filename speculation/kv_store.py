"""The KV cache kept between requests: each gets a slot that already holds what it shares with earlier ones.

While one place is being typed at, its slot is continued in place. A request from another place copies the
shared part into a slot of its own, so that moving back evaluates nothing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cache.prefixes import Entry, Prefixes
from speculation.verifier.base import OutOfMemoryError, Verifier

TYPED_TOKENS = 16  # without an anchor: the last tokens of a prompt taken for typed text that need not be kept


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot in the hands of one generation until it is released."""

    slot: int
    reused: int  # first tokens of the prompt whose KV is already in the slot


class KVStore:
    """Slots of one verifier, found again by their tokens. Owned by the verifier's worker; not thread-safe."""

    def __init__(self, verifier: Verifier, max_bytes: int) -> None:
        self._verifier = verifier
        self._croppable = verifier.capabilities.croppable
        self._prefixes: Prefixes[int] = Prefixes(max_bytes, verifier.capabilities.kv_bytes_per_token)
        self._leases: dict[int, Lease] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    @property
    def used_bytes(self) -> int:
        """Bytes of KV in all slots."""
        return self._prefixes.used_bytes

    def acquire(self, tokens: Sequence[int], anchored: int | None = None) -> Lease:
        """A slot for a generation from prompt ``tokens``; its first ``reused`` tokens are already evaluated.

        At least one token is always left to evaluate: the last one goes with the first verify. The caller
        evaluates ``tokens[reused:]``, tells `advance` what it commits, and calls `release` in the end.

        Args:
            tokens: the whole prompt, forced middle included; not empty.
            anchored: how many of the first tokens stay the same while the line is being typed (the prompt up
                to the forced middle). They are kept when another prompt comes; the rest may be overwritten.
        """
        tokens = list(tokens)
        if not tokens:
            raise ValueError("an empty prompt cannot be evaluated")
        if anchored is None:
            anchored = len(tokens) - TYPED_TOKENS
        anchored = max(0, min(anchored, len(tokens) - 1))

        source, shared = self._prefixes.longest(tokens[:-1])
        if source is not None and not self._croppable and shared < len(source.tokens):
            source, shared = self._longest_whole(tokens[:-1])
        entry = self._slot_from(source, shared, len(tokens))
        entry.anchored, entry.leased = anchored, True
        self._prefixes.touch(entry)
        lease = self._leases[entry.handle] = Lease(entry.handle, len(entry.tokens))
        return lease

    def advance(self, lease: Lease, tokens: Sequence[int]) -> None:
        """``tokens`` were committed to the slot: a finished prefill chunk, or what a round kept."""
        if self._leases.get(lease.slot) is not lease:
            raise ValueError("this lease is over; its slot may be another generation's")
        self._make_room(len(tokens))
        self._prefixes[lease.slot].tokens.extend(tokens)

    def release(self, lease: Lease) -> None:
        """The generation is over or dropped; what the slot holds stays. Releasing twice is harmless."""
        if self._leases.get(lease.slot) is not lease:
            return
        del self._leases[lease.slot]
        entry = self._prefixes[lease.slot]
        entry.leased = False
        self._prefixes.touch(entry)
        self._agree_on_length(entry)
        if not entry.tokens:
            self._drop(entry)
            return
        if self._croppable:  # else a longer slot cannot stand in for a shorter one
            for covered in self._prefixes.covered_by(entry):
                self._drop(covered)
        self._make_room(0)

    def free(self) -> int:
        """Gives up every slot that no generation holds (the device has no memory left); returns the bytes."""
        before = self.used_bytes
        while (oldest := self._prefixes.oldest()) is not None:
            self._drop(oldest)
        return before - self.used_bytes

    def _longest_whole(self, tokens: list[int]) -> tuple[Entry[int] | None, int]:
        """The longest slot that can be continued without cutting it (caches that cannot be cropped)."""
        whole = [e for e in self._prefixes if not e.leased and e.agrees(tokens) == len(e.tokens) > 0]
        best = max(whole, key=lambda e: (len(e.tokens), e.last_used), default=None)
        return best, len(best.tokens) if best else 0

    def _slot_from(self, source: Entry[int] | None, shared: int, length: int) -> Entry[int]:
        """A slot with the first ``shared`` tokens of ``source``: itself if nothing worth keeping is lost."""
        if source is not None and not source.leased and shared >= source.kept:
            return self._cut(source, shared)
        while self._prefixes.excess_bytes(length) > 0 and (oldest := self._prefixes.oldest()) is not None:
            if oldest is source:  # itself the least recently used: its own tail makes the room
                return self._cut(source, shared)
            self._drop(oldest)
        if source is None:
            return self._prefixes.add(self._verifier.open_slot())
        return self._copy(source, shared)

    def _copy(self, source: Entry[int], shared: int) -> Entry[int]:
        try:
            handle = self._verifier.copy_slot(source.handle, shared)
        except OutOfMemoryError:
            if not source.leased:
                return self._cut(source, shared)
            return self._prefixes.add(self._verifier.open_slot())
        return self._prefixes.add(handle, source.tokens[:shared])

    def _cut(self, entry: Entry[int], length: int) -> Entry[int]:
        if length < len(entry.tokens):
            self._verifier.rollback(entry.handle, length)
            del entry.tokens[length:]
        return entry

    def _drop(self, entry: Entry[int]) -> None:
        self._prefixes.remove(entry)
        self._verifier.close_slot(entry.handle)

    def _make_room(self, new_tokens: int) -> None:
        while self._prefixes.excess_bytes(new_tokens) > 0 and (oldest := self._prefixes.oldest()) is not None:
            self._drop(oldest)

    def _agree_on_length(self, entry: Entry[int]) -> None:
        """A generation dropped between commit and `advance`: what was not recorded is forgotten."""
        committed = self._verifier.length(entry.handle)
        if committed > len(entry.tokens):
            if not self._croppable:
                entry.tokens.clear()
                return
            self._verifier.rollback(entry.handle, len(entry.tokens))
        del entry.tokens[committed:]
