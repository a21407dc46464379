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
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from math import exp
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from speculation.proposers.base import Continuation

SOURCES = ("answer", "request", "suffix", "deleted", "history", "open", "workspace", "realigned")
FAMILIES = ("request", "deleted", "indexed")  # of sources that are re-aligned with
REALIGNMENTS = ("synced", "next", "later", "skipped", "inserted")  # ways to go on in one

# name of a kind -> (source it is counted as, kind whose fitted weights it starts with)
KIND_ROWS: dict[str, tuple[str, str]] = {
    "request": ("request", "request"),
    "below": ("request", "below"),  # the request's own text after the cursor
    "suffix": ("suffix", "suffix"),
    "deleted": ("deleted", "deleted"),
    "deleted-start": ("deleted", "deleted-start"),
    "answer": ("answer", "deleted"),
    "answer-start": ("answer", "deleted-start"),
    "history": ("history", "workspace"),
    "history-short": ("history", "workspace-short"),  # fewer than three tokens agree
    "open": ("open", "workspace"),
    "workspace": ("workspace", "workspace"),
    "workspace-short": ("workspace", "workspace-short"),
    **{f"{how}-{family}": ("realigned", f"{how}-{family}") for how in REALIGNMENTS for family in FAMILIES},
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

RUN = 48  # tokens looked ahead where all places agree
LEAST_ERROR = 0.02  # smaller ones teach nothing
RATE = 0.002  # how far one observed token moves a weight
BIAS_RATE = 0.06  # and its source's bias
BIAS_DECAY = 0.996  # back to the fitted one
STEEPEST = 4.0  # how far a bias may go down
HIGHEST = 0.0


class Branch(NamedTuple):
    """One possible next token: its probability, the places that suggest it and what its score was made of."""

    probability: float
    token: int
    members: Sequence[Continuation]
    share: float  # of its first source's vote
    tallies: dict[
        int, list[Any]
    ]  # kind -> [longest match, places, whether one is the newest, vote, its cell]
    choices: int  # branches there were
    deep: bool

    def cells(self) -> list[int]:
        """The weights whose sum is the score."""
        cells = [_CHOICES_AT + min(self.choices, CHOICES) - 1]
        for kind, (_, count, newest, _, bucket) in self.tallies.items():
            base = kind * _CELLS
            cells += (bucket, base + _COUNT_AT + COUNT_BUCKET[min(count, 5)], base + _BIAS_AT)
            if newest:
                cells.append(base + _NEWEST_AT)
            if self.deep:
                cells.append(base + _DEEP_AT)
        return cells


class Evidence:
    """The weights, and how they follow what is observed. One instance lives as long as the engine."""

    def __init__(self, weights: Sequence[float] | None = None, *, learn: bool = True) -> None:
        """``weights``: one for each cell, the fitted ones by default."""
        self.weights = list(weights if weights is not None else fitted_weights())
        self._fitted = list(self.weights)
        self._learn = learn

    def branches(self, places: Sequence[Continuation], depth: int) -> list[Branch]:
        """The possible tokens at ``depth`` of a draft that all ``places`` agree on so far, likeliest first."""
        if len(places) == 1:
            return self._only_branch(places, depth)
        found: dict[int, tuple[list[Continuation], dict[int, list[Any]]]] = {}
        get = found.get
        for place in places:
            kind, length, tokens, start, newest = place
            start += depth
            if start >= len(tokens):
                continue
            token = tokens[start]
            if token < 0:
                continue
            length += depth
            vote = _VOTE[length] if length < _LONGEST else _VOTE[-1]
            entry = get(token)
            if entry is None:
                found[token] = [place], {kind: [length, 1, newest, vote, 0]}
                continue
            members, tallies = entry
            members.append(place)
            if kind not in tallies:
                tallies[kind] = [length, 1, newest, vote, 0]
                continue
            tally = tallies[kind]
            if length > tally[0]:
                tally[0] = length
            tally[1] += 1
            tally[3] += vote
            if newest:
                tally[2] = True
        return self._scored(found, depth > 0) if found else []

    def _scored(
        self, found: dict[int, tuple[list[Continuation], dict[int, list[Any]]]], deep: bool
    ) -> list[Branch]:
        weights = self.weights
        choices = len(found)
        votes: dict[int, float] = {}
        if choices > 1:
            for _, tallies in found.values():
                for kind, tally in tallies.items():
                    if kind in votes:
                        votes[kind] += tally[3]
                    else:
                        votes[kind] = tally[3]
        start = weights[_CHOICES_AT + (choices if choices < CHOICES else CHOICES) - 1]
        total = 1.0  # "none of them"
        scored = []
        for token, (members, tallies) in found.items():
            score = start
            share = 1.0
            for kind, tally in tallies.items():
                length, count, newest, vote, _ = tally
                base = kind * _CELLS
                if choices > 1:
                    share = vote / votes[kind]
                tally[4] = bucket = base + _BUCKET[length if length < _LONGEST else -1] + int(share * 4.999)
                score += (
                    weights[bucket]
                    + weights[base + _COUNT_AT + (COUNT_BUCKET[count] if count < 5 else 3)]
                    + weights[base + _BIAS_AT]
                )
                if newest:
                    score += weights[base + _NEWEST_AT]
                if deep:
                    score += weights[base + _DEEP_AT]
            odds = exp(score if score < 30 else 30)
            total += odds
            scored.append((odds, token, members, share, tallies))
        if choices > 1:
            scored.sort(key=_odds, reverse=True)
        return [
            _branch(Branch, (odds / total, token, members, share, tallies, choices, deep))
            for odds, token, members, share, tallies in scored
        ]

    def _only_branch(self, places: Sequence[Continuation], depth: int) -> list[Branch]:
        """The same for a single place, as most of a draft is."""
        kind, length, tokens, start, newest = places[0]
        start += depth
        if start >= len(tokens) or tokens[start] < 0:
            return []
        length += depth
        weights, base = self.weights, kind * _CELLS
        bucket = base + _BUCKET[length if length < _LONGEST else -1] + SHARES - 1
        score = weights[_CHOICES_AT] + weights[bucket] + weights[base + _COUNT_AT] + weights[base + _BIAS_AT]
        if newest:
            score += weights[base + _NEWEST_AT]
        if depth:
            score += weights[base + _DEEP_AT]
        probability = 1 / (1 + exp(-score)) if score > -30 else 0.0
        tallies = {kind: [length, 1, newest, 1.0, bucket]}
        return [Branch(probability, tokens[start], places, 1.0, tallies, 1, depth > 0)]

    def agreed(self, places: Sequence[Continuation], depth: int) -> Iterator[tuple[int, float]]:
        """Tokens from ``depth`` (> 0) on and their probabilities, as long as all ``places`` agree on them."""
        run = _common_start(
            [tokens[start + depth : start + depth + RUN] for _, _, tokens, start, _ in places]
        )
        if not run:
            return
        weights = self.weights
        known = weights[_CHOICES_AT]
        rows = []
        for kind, (length, count, newest) in _tallied(places).items():
            base = kind * _CELLS
            known += weights[base + _COUNT_AT + (COUNT_BUCKET[count] if count < 5 else 3)]
            known += weights[base + _BIAS_AT] + weights[base + _DEEP_AT]
            if newest:
                known += weights[base + _NEWEST_AT]
            rows.append((base + SHARES - 1, length))
        for token in run:
            if token < 0:
                return
            score = known
            for row, length in rows:
                length += depth
                score += weights[row + (_BUCKET[length] if length < _LONGEST else _BUCKET[-1])]
            yield token, 1 / (1 + exp(-score)) if score > -30 else 0.0
            depth += 1

    def observe(self, branches: Sequence[Branch], token: int) -> None:
        """``token`` is what came where these branches were possible."""
        if not self._learn:
            return
        weights, fitted = self.weights, self._fitted
        for probability, suggested, _, _, tallies, _, deep in branches:
            error = (suggested == token) - probability
            if -LEAST_ERROR < error < LEAST_ERROR:
                continue
            step = RATE * error
            for kind, (
                _,
                count,
                newest,
                _,
                bucket,
            ) in tallies.items():  # all of `cells` that tell of a source
                base = kind * _CELLS
                weights[bucket] += step
                weights[base + _COUNT_AT + (COUNT_BUCKET[count] if count < 5 else 3)] += step
                if newest:
                    weights[base + _NEWEST_AT] += step
                if deep:
                    weights[base + _DEEP_AT] += step
                bias = base + _BIAS_AT
                drift = (weights[bias] - fitted[bias]) * BIAS_DECAY + BIAS_RATE * error
                if drift > HIGHEST:
                    drift = HIGHEST
                elif drift < -STEEPEST:
                    drift = -STEEPEST
                weights[bias] = fitted[bias] + drift


_odds = itemgetter(0)
_branch = tuple.__new__  # what a named tuple's own constructor calls


def _tallied(places: Sequence[Continuation]) -> dict[int, list[Any]]:
    """Of each kind the longest match, the number of places and whether one is the newest."""
    tallies: dict[int, list[Any]] = {}
    for kind, length, _, _, newest in places:
        tally = tallies.get(kind)
        if tally is None:
            tallies[kind] = [length, 1, newest]
            continue
        if length > tally[0]:
            tally[0] = length
        tally[1] += 1
        if newest:
            tally[2] = True
    return tallies


def _common_start(sequences: list[list[int]]) -> list[int]:
    """What all sequences begin with: that of the least and the greatest of them."""
    if len(sequences) == 1:
        return sequences[0]
    low, high = min(sequences), max(sequences)
    if low == high:
        return low
    for n, token in enumerate(low):
        if high[n] != token:
            return low[:n]
    return low


@lru_cache(maxsize=1)
def fitted_weights() -> Sequence[float]:
    """The weights a fresh installation starts with; not to be changed."""
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
