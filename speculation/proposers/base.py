"""The interface of a proposer: one method that proposes, and no knowledge of the decoding loop.

What a proposer gives are continuations: places in its source that end like the context, and what follows there. How
far one is to be trusted is not its business but `speculation.evidence`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from speculation.draft import DraftRequest

BREAK = -1  # stands in token lists where text ends: nothing is copied across it
TAIL = 33  # tokens of context a source may compare; longer agreement says nothing more


class Continuation(NamedTuple):
    """A place in a source and what follows there: ``tokens[start:]`` up to a BREAK or the end."""

    kind: int  # row of `evidence.KINDS`
    length: int  # tokens before the place that agree with the end of the context
    tokens: list[int]
    start: int
    newest: bool = False  # the most recent place its source knows of


class Context:
    """The tokens that a continuation must follow: the end of the document before the cursor, and what is committed."""

    __slots__ = ("fresh", "tokens")

    def __init__(self, tokens: Sequence[int], fresh: bool = False) -> None:
        self.tokens = list(tokens[-TAIL:])
        self.fresh = fresh  # nothing is committed yet: the cursor is where it was when the request began

    def followed_by(self, tokens: Sequence[int]) -> Context:
        """The context when these tokens have been committed, too."""
        return Context([*self.tokens, *tokens]) if tokens else self


class Proposer(Protocol):
    """Suggests continuations from one source of text."""

    name: str

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens were committed at the end of the context."""

    def propose(self, context: Context, limit: int) -> list[Continuation]:
        """What may follow the context, at most about ``limit`` tokens of it; empty when there is nothing to copy."""
