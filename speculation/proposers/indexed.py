"""An n-gram index as a source: open documents, workspace files, what was accepted and edited before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cache.ngrams import Match
from speculation.draft import DraftRequest
from speculation.evidence import KIND
from speculation.proposers.base import Context, Continuation

PLACES = 12  # asked of an index per query
REACH = 64  # tokens read at each place: enough for a draft and for finding one's way after it fails
_SELF = 8  # tokens of suffix by which the cursor's own place is told


class Index(Protocol):
    """What every store of `cache` answers."""

    def query(self, context: Sequence[int], max_hits: int) -> list[Match]:
        """The longest, then most recent places where the end of ``context`` occurs."""

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""


class IndexProposer:
    """Continuations from an index, without the place where the cursor itself stands."""

    def __init__(self, name: str, index: Index) -> None:
        self.name = name
        self._index = index
        self._kind = KIND[name]
        self._short = KIND.get(f"{name}-short", self._kind)
        self._document = ""
        self._own: Sequence[int] = ()

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._document = request.document
        self._own = list(request.suffix[:_SELF])

    def commit(self, tokens: Sequence[int]) -> None:
        """The index learns of edits from the editor, not from here."""

    def propose(self, context: Context, limit: int) -> list[Continuation]:
        """The longest, then most recent places that end like the context."""
        index = self._index
        own = self._own if context.fresh else None
        found: list[Continuation] = []
        for match in index.query(context.tokens, PLACES):
            tokens = index.continuation(match, REACH)
            if not tokens:
                continue
            if own is not None and match.document == self._document and tokens[:_SELF] == own:
                continue
            length = match.length
            found.append(
                Continuation(self._kind if length > 2 else self._short, length, tokens, 0, not found)
            )
        return found
