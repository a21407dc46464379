"""Short texts that are likely to be written again at the cursor: what was deleted there, the rest of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from speculation.draft import DraftRequest
from speculation.evidence import KIND
from speculation.proposers.base import Context, Continuation
from speculation.proposers.prompt_lookup import SearchableText

Passages = Callable[[DraftRequest], Sequence[Sequence[int]]]


class PassageProposer:
    """Passages that begin at the cursor: suggested whole at first, then wherever they end like the context."""

    def __init__(self, name: str, passages: Passages) -> None:
        """``passages``: the texts for a request, the likeliest last."""
        self.name = name
        self._passages = passages
        self._start, self._inside = KIND[f"{name}-start"], KIND[name]
        self._texts: list[SearchableText] = []

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._texts = [SearchableText([tokens]) for tokens in self._passages(request) if tokens]

    def commit(self, tokens: Sequence[int]) -> None:
        """Passages stay what they are."""

    def propose(self, context: Context, limit: int) -> list[Continuation]:
        """The beginning of each passage while nothing is committed, and every place that ends like the context."""
        found: list[Continuation] = []
        for text in reversed(self._texts):
            if context.fresh:
                found.append(Continuation(self._start, 1, text.tokens, 1, not found))
            newest = True
            for length, at in text.places(context.tokens):
                found.append(Continuation(self._inside, length, text.tokens, at, newest))
                newest = False
        return found


def rest_of_answer(request: DraftRequest) -> Sequence[Sequence[int]]:
    """The passage that the answer proposer suggests."""
    return (request.previous_answer,)
