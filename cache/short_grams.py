"""The most recent places of single tokens and pairs over many short texts.

On fresh text most contexts have no longer match anywhere; what followed the last one or two tokens before is
then the best guess there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from cache.ngrams import Match

PLACES = 12  # most recent ones kept of each gram
MAX_TOKENS = 65_536
_GAP = -1  # between texts


class ShortGrams:
    """Texts by their 1-grams and 2-grams; the older half is dropped when there are too many tokens."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self.clear()

    def __len__(self) -> int:
        return len(self._tokens)

    def clear(self) -> None:
        """Forgets everything."""
        self._tokens: list[int] = [_GAP]
        self._places: dict[int, list[int]] = {}

    def add(self, tokens: Sequence[int]) -> None:
        """Adds a text."""
        self._enter([*tokens, _GAP])
        if len(self._tokens) > self._max_tokens:
            kept = self._tokens[-self._max_tokens // 2 :]
            self.clear()
            self._enter(kept[kept.index(_GAP) + 1 :])

    def query(self, context: Sequence[int], max_hits: int = PLACES) -> list[Match]:
        """The most recent places of the last two tokens; of the last one where those never occurred."""
        grams = [(2, _key(*context[-2:]))] if len(context) > 1 else []
        grams += [(1, context[-1])] if context else []
        for size, key in grams:
            places = self._places.get(key)
            if places:
                return [Match(size, "", None, at) for at in places[: -max_hits - 1 : -1]]
        return []

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match, within its text."""
        found = self._tokens[match.at + 1 : match.at + 1 + count]
        return found[: found.index(_GAP)] if _GAP in found else found

    def _enter(self, tokens: Sequence[int]) -> None:
        places = self._places
        at = len(self._tokens)
        before = _GAP
        for n, token in enumerate(tokens):
            if token != _GAP and n + 1 < len(tokens) and tokens[n + 1] != _GAP:  # something must follow
                for key in (token,) if before == _GAP else (token, _key(before, token)):
                    known = places.setdefault(key, [])
                    known.append(at + n)
                    if len(known) > PLACES:
                        del known[0]
            before = token
        self._tokens += tokens


def _key(first: int, second: int) -> int:
    return (first + 1) << 32 | second


class Index(Protocol):
    """An index of longer grams."""

    def query(self, context: Sequence[int], max_hits: int = 8) -> list[Match]:
        """The longest, then most recent places where the end of ``context`` occurs."""

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""


class WithShortGrams:
    """An index that answers from short grams where it has nothing itself."""

    def __init__(
        self, index: Index, texts: Iterable[Sequence[int]], max_tokens: int = 4 * MAX_TOKENS
    ) -> None:
        """``texts``: what the index holds, most recent last; takes about 1 µs a token, so in the background."""
        self._index = index
        self._short = ShortGrams(max_tokens)
        for tokens in texts:
            self._short.add(tokens)

    def query(self, context: Sequence[int], max_hits: int = 8) -> list[Match]:
        """The longest, then most recent places where the end of ``context`` occurs."""
        return self._index.query(context, max_hits) or self._short.query(context, max_hits)

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""
        return (self._short if match.place is None else self._index).continuation(match, count)
