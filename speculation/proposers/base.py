"""The interface of a proposer: one method that proposes, and no knowledge of the decoding loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from speculation.draft import Draft, DraftRequest


class Proposer(Protocol):
    """Suggests drafts from one source of text."""

    name: str

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens were committed at the end of the context."""

    def propose(self, limit: int) -> Sequence[Draft]:
        """Chains of at most ``limit`` tokens that may come next, best first; empty when there is nothing to copy."""
