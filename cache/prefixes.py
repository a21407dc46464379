"""Which token sequences have their KV at hand: sequences, opaque slot handles, and who was used last.

Nothing here knows what a handle stands for: `speculation.kv_store` opens, cuts and closes the slots and says
what is in each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Handle = TypeVar("Handle", bound=Hashable)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix; slices are compared, as a prompt has thousands of tokens."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] == b[:low] and a[:high] != b[:high]
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


@dataclass(slots=True, eq=False)
class Entry(Generic[Handle]):
    """One slot: the tokens whose KV it holds, and how many of the first ones are a prompt worth keeping."""

    handle: Handle
    tokens: list[int] = field(default_factory=list)
    anchored: int = 0  # the rest is typed text and answers, which the next keystroke may replace
    leased: bool = False
    last_used: int = 0

    @property
    def kept(self) -> int:
        """Tokens of the anchored prompt in the slot; fewer than ``anchored`` after an interrupted prefill."""
        return min(self.anchored, len(self.tokens))

    def agrees(self, tokens: Sequence[int]) -> int:
        """How many of the first of ``tokens`` the slot holds."""
        return common_prefix(self.tokens, tokens)


class Prefixes(Generic[Handle]):
    """The slots in use, found by longest common prefix and given up least recently used first."""

    def __init__(self, max_bytes: int, bytes_per_token: int) -> None:
        self.max_bytes = max_bytes
        self.bytes_per_token = bytes_per_token
        self._entries: dict[Handle, Entry[Handle]] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[Handle]]:
        return iter(self._entries.values())

    def __getitem__(self, handle: Handle) -> Entry[Handle]:
        return self._entries[handle]

    @property
    def used_bytes(self) -> int:
        """Bytes of all tokens in all slots."""
        return sum(len(entry.tokens) for entry in self) * self.bytes_per_token

    def longest(self, tokens: Sequence[int]) -> tuple[Entry[Handle] | None, int]:
        """The slot that shares most with ``tokens`` and how much; None when nothing is shared.

        Of several, one that can be continued in place comes first, then the one used last.
        """
        best: Entry[Handle] | None = None
        best_rank = (0, False, 0)
        for entry in self:
            shared = entry.agrees(tokens)
            rank = (shared, not entry.leased and shared >= entry.kept, entry.last_used)
            if shared and rank > best_rank:
                best, best_rank = entry, rank
        return best, best_rank[0]

    def add(self, handle: Handle, tokens: Sequence[int] = ()) -> Entry[Handle]:
        """A new slot that holds ``tokens``."""
        entry = self._entries[handle] = Entry(handle, list(tokens))
        self.touch(entry)
        return entry

    def remove(self, entry: Entry[Handle]) -> None:
        """The slot is gone."""
        del self._entries[entry.handle]

    def touch(self, entry: Entry[Handle]) -> None:
        """The slot was used now."""
        self._clock += 1
        entry.last_used = self._clock

    def oldest(self) -> Entry[Handle] | None:
        """The least recently used slot that nobody holds; the first to give up."""
        return min((e for e in self if not e.leased), key=lambda e: e.last_used, default=None)

    def excess_bytes(self, new_tokens: int = 0) -> int:
        """Bytes above the budget if ``new_tokens`` more were kept; not positive when they fit."""
        return self.used_bytes + new_tokens * self.bytes_per_token - self.max_bytes

    def covered_by(self, entry: Entry[Handle]) -> list[Entry[Handle]]:
        """Free slots whose anchored prompt ``entry`` holds too: nothing worth keeping is lost with them."""
        return [e for e in self if e is not entry and not e.leased and entry.agrees(e.tokens) >= e.kept]
