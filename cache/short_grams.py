"""The most recent places of single tokens and pairs over many short texts.

On fresh text most contexts have no longer match anywhere; what followed the last one or two tokens before is
then the best guess there is.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from cache.frozen_index import FrozenIndex
from cache.ngrams import Match
from cache.segment import Segment

PLACES = 12  # most recent ones kept of each gram
MAX_TOKENS = 65_536
REFILL_SHARE = 0.1  # of the tokens must have changed before short grams are made again
_GAP = -1  # between texts
Origin = tuple[Segment, int]  # a file by its number in a segment


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
        self._begins: list[int] = []  # of the texts
        self._origins: list[Origin | None] = []

    def add(self, tokens: Sequence[int], origin: Origin | None = None) -> None:
        """Adds a text."""
        self._origins.append(origin)
        self._begins.append(len(self._tokens))
        self._enter([*tokens, _GAP])
        if len(self._tokens) > self._max_tokens:
            first = len(self._tokens) - self._max_tokens // 2
            first = self._tokens.index(_GAP, first) + 1
            kept = self._tokens[first:]
            number = bisect_left(self._begins, first)
            begins = [at - first + 1 for at in self._begins[number:]]
            origins = self._origins[number:]
            self.clear()
            self._begins, self._origins = begins, origins
            self._enter(kept)

    def query(
        self,
        context: Sequence[int],
        max_hits: int = PLACES,
        wanted: Callable[[Origin], bool] | None = None,
    ) -> list[Match]:
        """The most recent places of the last two tokens; of the last one where those never occurred.

        ``wanted``: which texts may be copied from, by their origin.
        """
        size, places = self.places(context, max_hits, wanted)
        return [Match(size, "", None, at) for at in places]

    def places(
        self, context: Sequence[int], max_hits: int, wanted: Callable[[Origin], bool] | None = None
    ) -> tuple[int, list[int]]:
        """The same as (tokens that agree, indices of the last of them)."""
        grams = [(2, _key(context[-2], context[-1]))] if len(context) > 1 else []
        grams += [(1, context[-1])] if context else []
        for size, key in grams:
            places = self._places.get(key)
            if places and wanted is not None:
                begins, origins = self._begins, self._origins
                places = [
                    at
                    for at in places
                    if (origin := origins[bisect_right(begins, at) - 1]) is None or wanted(origin)
                ]
            if places:
                return size, places[: -max_hits - 1 : -1]
        return 0, []

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match, within its text."""
        first = match.at + 1
        begins = self._begins
        text = bisect_right(begins, match.at)
        end = (begins[text] if text < len(begins) else len(self._tokens)) - 1  # a gap follows each text
        return self._tokens[first : min(first + count, end)]

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

    def __init__(self, index: Index, max_tokens: int = 4 * MAX_TOKENS) -> None:
        self._index = index
        self._max_tokens = max_tokens
        self._short = ShortGrams(max_tokens)

    def fill(self, texts: Iterable[tuple[Sequence[int], Origin | None]]) -> None:
        """Takes over what the index holds, most recent text last; about 1 µs a token, so for the background."""
        short = ShortGrams(self._max_tokens)
        for tokens, origin in texts:
            short.add(tokens, origin)
        self._short = short

    def query(self, context: Sequence[int], max_hits: int = 8) -> list[Match]:
        """The longest, then most recent places where the end of ``context`` occurs."""
        found = self._index.query(context, max_hits)
        if found:
            return found
        short = self._short  # may be replaced between query and continuation: a match carries its own
        size, places = short.places(context, max_hits, _is_current)
        return [Match(size, "", short, at) for at in places]

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""
        place = match.place
        if isinstance(place, ShortGrams):
            return place.continuation(match, count)
        return self._index.continuation(match, count)


class FrozenWithShortGrams(WithShortGrams):
    """A frozen index with short grams that follow its segments, in a thread of their own."""

    def __init__(self, index: FrozenIndex, max_tokens: int = 4 * MAX_TOKENS) -> None:
        super().__init__(index, max_tokens)
        self._frozen = index
        self._seen: tuple[Segment, ...] = ()
        self._filled_tokens = 0
        self._filled: tuple[Segment, ...] = ()

    def query(self, context: Sequence[int], max_hits: int = 8) -> list[Match]:
        """The longest, then most recent places where the end of ``context`` occurs."""
        if self._frozen.segments is not self._seen:
            self._seen = self._frozen.segments
            self._follow()
        return super().query(context, max_hits)

    def _follow(self) -> None:
        """Fills again when much has changed; a saved file alone is not worth it."""
        tokens = self._frozen.token_count
        segments = self._seen
        merged = any(segment not in segments for segment in self._filled)  # its masks are no longer kept
        if merged or abs(tokens - self._filled_tokens) > REFILL_SHARE * self._filled_tokens:
            self._filled_tokens = tokens
            self._filled = segments
            threading.Thread(
                target=lambda: self.fill(recent_texts(segments, self._max_tokens)),
                name="short grams",
                daemon=True,
            ).start()


def _is_current(origin: Origin) -> bool:
    segment, number = origin
    return number not in segment.masked


def recent_texts(segments: Sequence[Segment], max_tokens: int) -> list[tuple[Sequence[int], Origin]]:
    """The newest files of segments (newest first) that make up at most ``max_tokens``, newest last."""
    texts: list[tuple[Sequence[int], Origin]] = []
    left = max_tokens
    for segment in segments:
        for number in reversed(range(len(segment.files))):
            file = segment.files[number]
            if number in segment.masked:
                continue
            left -= file.length
            if left < 0:
                return texts[::-1]
            texts.append((segment.tokens_of(file), (segment, number)))
    return texts[::-1]
