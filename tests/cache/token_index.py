"""A store of one growing sequence, the simplest there is, for tests of what asks stores."""

from __future__ import annotations

from collections.abc import Sequence

from cache.ngrams import MAX_MATCH, Match


class TokenIndex:
    """One token sequence that grows and shrinks at its end, indexed by its 1-grams and 2-grams.

    Made for the request itself: prompt, suffix and output. Building costs by the token, so callers keep it
    while the prompt stays and use ``truncate``.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._singles: dict[int, list[int]] = {}
        self._pairs: dict[int, list[int]] = {}
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Appends tokens at the end."""
        singles, pairs = self._singles, self._pairs
        index = len(self.tokens)
        previous = self.tokens[-1] if self.tokens else -1
        for token in tokens:
            try:
                singles[token].append(index)
            except KeyError:
                singles[token] = [index]
            pair = previous << 32 | token
            try:
                pairs[pair].append(index)
            except KeyError:
                pairs[pair] = [index]
            previous = token
            index += 1
        self.tokens.extend(tokens)

    def truncate(self, length: int) -> None:
        """Drops everything after the first ``length`` tokens; the cost follows what is dropped."""
        tokens = self.tokens
        while len(tokens) > length:
            token = tokens.pop()
            pair = (tokens[-1] if tokens else -1) << 32 | token
            self._singles[token].pop()
            self._pairs[pair].pop()

    def query(
        self, context: Sequence[int], max_hits: int = 8, min_length: int = 1, skip: int | None = None
    ) -> list[Match]:
        """The longest, then most recent, places where the end of ``context`` occurs.

        A place must have a token after it, so the sequence's own end never counts. ``skip`` is the index of
        one more place that is not wanted.
        """
        if not context or max_hits < 1:
            return []
        tokens = self.tokens
        last_index = len(tokens) - 1
        hits: list[tuple[int, int]] = []
        if len(context) >= 2:
            back = [*context[-MAX_MATCH:-2]][::-1]
            for index in self._pairs.get(context[-2] << 32 | context[-1], ()):
                if index in (last_index, skip):
                    continue
                length, at = 2, index - 2
                for token in back:
                    if at < 0 or tokens[at] != token:
                        break
                    length += 1
                    at -= 1
                hits.append((length, index))
            hits.sort(reverse=True)
            del hits[max_hits:]
        if not hits and min_length <= 1:
            for index in reversed(self._singles.get(context[-1], ())):
                if index not in (last_index, skip):
                    hits.append((1, index))
                    if len(hits) >= max_hits:
                        break
        return [Match(length, "", None, index) for length, index in hits if length >= min_length]

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""
        return self.tokens[match.at + 1 : match.at + 1 + count]
