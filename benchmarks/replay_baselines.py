"""The peer to beat: the prompt lookup of transformers, as its `PromptLookupCandidateGenerator` does it.

Largest n-gram first (2, then 1), the *oldest* place that matches, 10 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from speculation.draft import EMPTY, Draft, DraftRequest, Origin, Round

LARGEST_GRAM = 2
DRAFTED = 10


class TransformersPromptLookup:
    """A drafter with the suffix before the prefix, the order in which this lookup does best on edits."""

    def __init__(self) -> None:
        self._tokens: list[int] = []

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._tokens = [*request.context, *request.suffix, *request.prefix, *request.middle]

    def draft(self, limit: int) -> Draft:
        """At most ten tokens, or fewer where fewer are wanted."""
        found = lookup(self._tokens)[: max(0, limit)]
        return Draft(found, Origin("request", LARGEST_GRAM)) if found else EMPTY

    def observe(self, round_: Round) -> None:
        """Only the text grows."""
        self._tokens += round_.committed


def lookup(tokens: Sequence[int], largest: int = LARGEST_GRAM, count: int = DRAFTED) -> list[int]:
    """What the generator of transformers would draft after ``tokens``."""
    tokens = list(tokens)
    for size in range(min(largest, len(tokens) - 1), 0, -1):
        gram = tokens[-size:]
        at = 0
        while True:
            try:
                at = tokens.index(gram[0], at, len(tokens) - size)  # the end itself has nothing after it
            except ValueError:
                break
            if tokens[at : at + size] == gram:
                return tokens[at + size : at + size + count]
            at += 1
    return []
