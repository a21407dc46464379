"""The drafter the decoder asks: it gathers what every proposer suggests and lets the policy choose.

Proposers know their sources, the policy knows what a pass costs and how often a source is right; neither knows the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from speculation.draft import EMPTY, Draft, DraftRequest, Round
from speculation.proposers.base import Proposer


class Policy(Protocol):
    """Chooses among suggested chains how much is worth verifying, and learns from what became of it."""

    def choose(self, drafts: Sequence[Draft], limit: int) -> Draft:
        """The draft with the greatest expected gain; empty when a plain pass is better."""

    def observe(self, round_: Round) -> None:
        """What became of the draft."""


class LongestMatch:
    """The policy of plain prompt lookup: the first suggestion, as long as it is."""

    def choose(self, drafts: Sequence[Draft], limit: int) -> Draft:
        """The first suggestion, cut to the limit."""
        if not drafts:
            return EMPTY
        return Draft(drafts[0].tokens[:limit], drafts[0].origin)

    def observe(self, round_: Round) -> None:
        """Learns nothing."""


class WorkspaceDrafter:
    """Combines proposers, in order of trust, under one policy. Serves one request at a time."""

    def __init__(self, proposers: Sequence[Proposer], policy: Policy) -> None:
        self.proposers = list(proposers)
        self.policy = policy
        self._vocab_size = 0

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._vocab_size = request.vocab_size
        for proposer in self.proposers:
            proposer.start(request)

    def draft(self, limit: int) -> Draft:
        """The draft worth verifying now, at most ``limit`` nodes deep; often empty."""
        if limit <= 0:
            return EMPTY
        suggestions = [draft for proposer in self.proposers for draft in proposer.propose(limit)]
        return self.policy.choose(suggestions, limit)

    def observe(self, round_: Round) -> None:
        """What became of the draft; also called for rounds whose draft was empty."""
        for proposer in self.proposers:
            proposer.commit(round_.committed)
        self.policy.observe(round_)
