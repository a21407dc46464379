"""The exact rules that turn a verified draft into committed tokens.

Text drafts put all proposal mass on one token. Rule: draw t from p; t is committed either way; go on to the next
drafted position only if t is what was drafted there (for a tree: follow the child that equals t).
Proof idea: each committed token is drawn from its own p, given all committed tokens before it; what was drafted only
decides whether the logits for the next position are already there. So the law, and with randomness keyed by position
even the text, is that of decoding one token at a time.

A proposer with a real q draws x from q. Rule (Leviathan et al. 2023, Chen et al. 2023): accept x with probability
min(1, p(x)/q(x)); on rejection draw from max(p - q, 0) normalised. Proof idea: P(t) = q(t) min(1, p(t)/q(t)) +
P(reject) max(p(t) - q(t), 0) / P(reject) = min(p, q)(t) + max(p - q, 0)(t) = p(t), as P(reject) is the sum of
max(p - q, 0). Drawing from the full p after a rejection would count min(p, q) twice.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from speculation.draft import Draft
from speculation.sampling import draw


class Committing(Protocol):
    """The end of the text as the rules see it: p for a row of logits, draws, and the stop rules behind `commit`."""

    def draw(self, logits: Tensor) -> int:
        """The token that the target model alone would commit here."""

    def distribution(self, logits: Tensor) -> Tensor:
        """p ``[vocab]`` at the current end of the text."""

    def uniform(self, stream: int) -> float:
        """A uniform in [0, 1) of the current position; 0 is the one `draw` uses."""

    def commit(self, token: int) -> bool:
        """Appends a token; False when generation must not go past it."""


def accept(draft: Draft, logits: Tensor, end: Committing) -> list[int]:
    """Commits at least one token; returns the accepted nodes, root to leaf.

    ``logits`` ``[1 + len(draft), vocab]``: row 0 follows the last committed token, row i + 1 follows node i. Where
    only the best tokens are asked for, ``[1 + len(draft)]`` of their ids.
    """
    return _accept_text(draft, logits, end) if draft.q is None else _accept_ratio(draft, logits, end)


def _accept_text(draft: Draft, logits: Tensor, end: Committing) -> list[int]:
    children: dict[tuple[int, int], int] = {}
    for node, token in enumerate(draft.tokens):
        children.setdefault((draft.parent_of(node), token), node)
    path: list[int] = []
    node = -1
    while True:
        token = end.draw(logits[node + 1])
        goes_on = end.commit(token)
        child = children.get((node, token))
        if child is None or not goes_on:
            return path
        path.append(child)
        node = child


def _accept_ratio(draft: Draft, logits: Tensor, end: Committing) -> list[int]:
    assert draft.q is not None and draft.parents is None
    path: list[int] = []
    for node, token in enumerate(draft.tokens):
        p = end.distribution(logits[node])
        q = draft.q[node].to(p.dtype)
        if end.uniform(1) * float(q[token]) >= float(p[token]):
            residual = torch.clamp(p - q, min=0)
            # all mass of p at or below q happens only by rounding; p itself is then the limit of the residual
            end.commit(draw(residual if residual.sum() > 0 else p, end.uniform(2)))
            return path
        if not end.commit(token):
            return path
        path.append(node)
    end.commit(end.draw(logits[len(draft)]))
    return path
