"""How likely each next token is, given the places that suggest one: the evidence behind a draft, as a probability.

All places that agree on a token form a branch. A branch's score is a sum of weights, one for each kind of source in
it (longest match and share of that source's vote, number of places, recency, depth in the draft); probabilities are
the softmax over the branches and "none of them", whose score is 0. It is logistic mixing (Mahoney 2005, PAQ) of
copy models. The weights at start were fitted on real edits (`python -m benchmarks.replay_fit`); each observed token
moves them a little, and each source's own bias faster: a source that keeps failing loses its say, and wins it back
when it is right again, because branches that were not drafted are judged by what was committed, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from speculation.proposers.base import Continuation

SOURCES = ("answer", "request", "suffix", "deleted", "history", "open", "workspace", "realigned")
FAMILIES = ("request", "deleted", "indexed")  # of sources that are re-aligned with

# name of a kind -> (source it is counted as, kind whose fitted weights it starts with)
KIND_ROWS: dict[str, tuple[str, str]] = {
    "request": ("request", "request"),
    "suffix": ("suffix", "suffix"),
    "deleted": ("deleted", "deleted"),
    "deleted-start": ("deleted", "deleted-start"),
    "answer": ("answer", "deleted"),
    "answer-start": ("answer", "deleted-start"),
    "history": ("history", "workspace"),
    "open": ("open", "workspace"),
    "workspace": ("workspace", "workspace"),
    **{
        f"{how}-{family}": ("realigned", f"{how}-{family}")
        for how in ("synced", "next", "later", "skipped", "inserted")
        for family in FAMILIES
    },
}
KINDS = tuple(KIND_ROWS)
KIND = {name: number for number, name in enumerate(KINDS)}
SOURCE_OF = tuple(KIND_ROWS[name][0] for name in KINDS)

LENGTH_EDGES = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 24)  # match lengths up to each edge share a weight
SHARES = 5  # buckets of the share of a source's vote
COUNT_BUCKET = (0, 0, 1, 2, 2, 3)  # places in a branch, from 0 to 5 and more
_LENGTHS = len(LENGTH_EDGES) + 1
_COUNTS = 4
_LONGEST = 128
_CELLS = _LENGTHS * SHARES + _COUNTS + 3  # per kind: length × share, count, newest, deep, bias
_COUNT_AT = _LENGTHS * SHARES
_NEWEST_AT, _DEEP_AT, _BIAS_AT = _COUNT_AT + _COUNTS, _COUNT_AT + _COUNTS + 1, _COUNT_AT + _COUNTS + 2
_CHOICES_AT = len(KINDS) * _CELLS
CHOICES = 3  # weights for 1, 2, 3 and more branches
WEIGHT_COUNT = _CHOICES_AT + CHOICES

_BUCKET = [sum(length > edge for edge in LENGTH_EDGES) * SHARES for length in range(_LONGEST)]
_VOTE = [3.0 ** min(length, 12) for length in range(_LONGEST)]  # a longer match has three times the say

RATE = 0.02  # how far one observed token moves a weight
BIAS_RATE = 0.15  # and its source's bias
BIAS_DECAY = 0.995
STEEPEST = 4.0  # bounds of a bias


class Branch(NamedTuple):
    """One possible next token: its probability, the places that suggest it and the weights that made its score."""

    probability: float
    token: int
    members: list[Continuation]
    cells: list[int]
    share: float


class Evidence:
    """The weights, and how they follow what is observed. One instance lives as long as the engine."""

    def __init__(self, weights: Sequence[float] | None = None, *, learn: bool = True) -> None:
        """``weights``: one for each cell, the fitted ones by default."""
        self.weights = list(weights) if weights is not None else fitted_weights()
        self._learn = learn

    def branches(self, continuations: Sequence[Continuation], depth: int) -> list[Branch]:
        """The possible tokens at ``depth`` of a draft that all ``continuations`` agree on so far, likeliest first."""
        found: dict[int, tuple[dict[int, list[Any]], list[Continuation]]] = {}
        votes: dict[int, float] = {}
        for place in continuations:
            kind, length, tokens, start, newest = place
            at = start + depth
            if at >= len(tokens):
                continue
            token = tokens[at]
            if token < 0:
                continue
            length += depth
            if length >= _LONGEST:
                length = _LONGEST - 1
            vote = _VOTE[length]
            votes[kind] = votes.get(kind, 0.0) + vote
            entry = found.get(token)
            if entry is None:
                found[token] = ({kind: [length, 1, newest, vote]}, [place])
                continue
            entry[1].append(place)
            tally = entry[0].get(kind)
            if tally is None:
                entry[0][kind] = [length, 1, newest, vote]
            else:
                if length > tally[0]:
                    tally[0] = length
                tally[1] += 1
                tally[2] = tally[2] or newest
                tally[3] += vote
        return self._scored(found, votes, depth) if found else []

    def _scored(
        self,
        found: dict[int, tuple[dict[int, list[Any]], list[Continuation]]],
        votes: dict[int, float],
        depth: int,
    ) -> list[Branch]:
        weights = self.weights
        choices = _CHOICES_AT + min(len(found), CHOICES) - 1
        total = 1.0  # "none of them"
        scored = []
        for token, (tallies, members) in found.items():
            cells = [choices]
            for kind, (length, count, newest, vote) in tallies.items():
                base = kind * _CELLS
                share = vote / votes[kind]
                cells.append(base + _BUCKET[length] + int(share * 4.999))
                cells.append(base + _COUNT_AT + (COUNT_BUCKET[count] if count < 5 else 3))
                cells.append(base + _BIAS_AT)
                if newest:
                    cells.append(base + _NEWEST_AT)
                if depth:
                    cells.append(base + _DEEP_AT)
            score = 0.0
            for cell in cells:
                score += weights[cell]
            odds = math.exp(score if score < 30 else 30)
            total += odds
            scored.append((odds, token, members, cells, share))
        if len(scored) > 1:
            scored.sort(key=lambda branch: -branch[0])
        return [Branch(odds / total, *rest) for odds, *rest in scored]

    def observe(self, branches: Sequence[Branch], token: int) -> None:
        """``token`` is what came where these branches were possible."""
        if not self._learn:
            return
        weights = self.weights
        for probability, suggested, _, cells, _ in branches:
            error = (suggested == token) - probability
            if -0.01 < error < 0.01:
                continue
            step = RATE * error
            for cell in cells:
                if cell < _CHOICES_AT and cell % _CELLS == _BIAS_AT:
                    bias = weights[cell] * BIAS_DECAY + BIAS_RATE * error
                    weights[cell] = min(max(bias, -STEEPEST), STEEPEST)
                else:
                    weights[cell] += step


def fitted_weights() -> list[float]:
    """The weights a fresh installation starts with."""
    return weights_of(json.loads(files("speculation").joinpath("priors.json").read_text(encoding="utf-8")))


def weights_of(priors: dict[str, Any]) -> list[float]:
    """The flat weights of a priors file: ``{"kinds": {name: [weights]}, "choices": [weights]}``."""
    weights: list[float] = []
    for name in KINDS:
        weights += priors["kinds"][KIND_ROWS[name][1]]
    weights += priors["choices"]
    if len(weights) != WEIGHT_COUNT:
        raise ValueError(f"priors hold {len(weights)} weights instead of {WEIGHT_COUNT}: fit them again")
    return weights


def priors_of(weights: Sequence[float]) -> dict[str, Any]:
    """The priors file of flat weights; only kinds with weights of their own are kept."""
    own = [name for name in KINDS if KIND_ROWS[name][1] == name]
    rounded = [round(float(weight), 3) for weight in weights]
    kinds = {name: rounded[KIND[name] * _CELLS : (KIND[name] + 1) * _CELLS] for name in own}
    return {"kinds": kinds, "choices": rounded[_CHOICES_AT:]}


def untrained_weights() -> list[float]:
    """Where fitting starts: longer matches are trusted more."""
    weights = [0.0] * WEIGHT_COUNT
    for kind in range(len(KINDS)):
        for bucket in range(_LENGTHS):
            for share in range(SHARES):
                weights[kind * _CELLS + bucket * SHARES + share] = -2.5 + 0.5 * bucket + 0.1 * share
    return weights
