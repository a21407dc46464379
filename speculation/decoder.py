"""The decoding loop: draft, verify, accept, commit.

Speculative decoding (Leviathan et al. 2023; Chen et al. 2023) with drafts copied from text. Invariants: every round
commits at least one token; committed tokens are never judged again; after a round the KV cache holds prompt +
committed tokens except the last one drawn, which opens the next pass.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from speculation.acceptance import accept
from speculation.draft import EMPTY, Draft, Drafter, NoDrafter, Round, fit
from speculation.request import CompletionMetrics
from speculation.text_end import TextEnd
from speculation.verifier.base import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

MAX_POSITIONS = 64  # of one verify pass: the pending token and at most 63 drafted ones


class Decoder:
    """Decodes one completion on one KV slot that already holds the prompt except its last token."""

    def __init__(
        self, verifier: Verifier, slot: int, end: TextEnd, drafter: Drafter, metrics: CompletionMetrics
    ) -> None:
        self.end = end
        self._verifier, self._slot = verifier, slot
        self._verify_best: Callable[..., Tensor] | None = getattr(verifier, "verify_best", None)
        self._drafter = drafter
        self._metrics = metrics

    @property
    def done(self) -> bool:
        """Whether a stop rule has ended the text, or the KV slot is full."""
        return self.end.stopped or self._room < 1

    def round(self) -> list[int]:
        """One round, one forward pass; the tokens it commits, at least one."""
        started = perf_counter()
        draft = self._draft()
        drafted = perf_counter()
        rows = self._verify(draft)
        verified = perf_counter()
        before = len(self.end.committed)
        path = accept(draft, rows, self.end)
        committed = self.end.committed[before:]
        accepted = perf_counter()
        self._verifier.commit(self._slot, [0, *(node + 1 for node in path)])
        kept = perf_counter()

        verify_ms = (verified - drafted + kept - accepted) * 1e3
        self._drafter.observe(Round(draft, path, committed, verify_ms, 1 + len(draft)))
        self._count(draft, path, committed)
        self._metrics.verify_ms += verify_ms
        self._metrics.sample_ms += (accepted - verified) * 1e3
        self._metrics.draft_ms += (drafted - started + perf_counter() - kept) * 1e3
        return committed

    def _draft(self) -> Draft:
        """The draft to verify, clipped to what can be committed: one token is always drawn after it."""
        depth = min(self.end.stop.remaining, self._room) - 1
        if depth <= 0 or isinstance(self._drafter, NoDrafter):  # off means off, what was typed included
            return EMPTY
        draft = self.end.spelling_draft() or self.end.agreeing(self._drafter.draft(depth))
        nodes = min(MAX_POSITIONS, self._room) - 1
        return fit(draft, nodes, self._verifier.capabilities.vocab_size, depth)

    def _verify(self, draft: Draft) -> Tensor:
        """A row of logits for the pending token and for each node, or its best token where that will do."""
        nodes, parents = [self.end.last_token, *draft.tokens], _after_pending(draft)
        if self._verify_best is not None and self.end.takes_best and draft.q is None:
            return self._verify_best(self._slot, nodes, parents)[:, 0]
        return self._verifier.verify(self._slot, nodes, parents)

    @property
    def _room(self) -> int:
        """Positions that the KV slot still takes."""
        return self._verifier.capabilities.max_context - self._verifier.length(self._slot)

    def _count(self, draft: Draft, path: list[int], committed: list[int]) -> None:
        metrics = self._metrics
        metrics.forwards += 1
        metrics.drafted += len(draft)
        metrics.accepted += len(path)
        metrics.committed += len(committed)
        passes = metrics.passes_by_positions
        passes[1 + len(draft)] = passes.get(1 + len(draft), 0) + 1
        for nodes, by_source, column in (
            (range(len(draft)), metrics.drafted_by_source, 0),
            (path, metrics.accepted_by_source, 1),
        ):
            for node in nodes:
                origin = draft.origin_of(node)
                by_source[origin.source] = by_source.get(origin.source, 0) + 1
                by_length = metrics.by_match.setdefault(origin.source, {})
                by_length.setdefault(origin.match_length, [0, 0])[column] += 1
        leaf = path[-1] if path else -1
        failed = any(draft.parent_of(node) == leaf for node in range(leaf + 1, len(draft)))
        if failed and not self.end.stopped:
            metrics.rejected_depth[len(path)] = metrics.rejected_depth.get(len(path), 0) + 1


def _after_pending(draft: Draft) -> list[int] | None:
    """The draft's parents in a pass whose node 0 is the pending token; None for a chain."""
    return None if draft.parents is None else [-1, *(parent + 1 for parent in draft.parents)]
