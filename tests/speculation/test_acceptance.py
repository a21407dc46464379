"""The committed text follows the target distribution exactly, whatever is drafted."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from functools import lru_cache

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from speculation.acceptance import accept
from speculation.draft import Draft
from speculation.sampling import draw

VOCABULARY = 4
LENGTH = 3
SEQUENCES = (
    67_000  # of three draws each: more than 200,000; a third of it for each of the six cases with a real q
)
TABLE = np.random.default_rng(7).dirichlet(np.full(VOCABULARY, 0.7), size=VOCABULARY)  # p(next | last)
CUMULATIVE = [row.cumsum().tolist() for row in TABLE]
ROWS = torch.from_numpy(TABLE)
START = 0


class MarkovEnd:
    """The end of a text whose next token depends on the last one; a "row of logits" is the last token."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.tokens: list[int] = []
        self._uniforms = iter(generator.random(24).tolist())

    def draw(self, logits: int) -> int:
        return min(bisect_right(CUMULATIVE[logits], next(self._uniforms)), VOCABULARY - 1)

    def distribution(self, logits: int) -> torch.Tensor:
        return ROWS[logits]

    def uniform(self, stream: int) -> float:
        return next(self._uniforms)

    def commit(self, token: int) -> bool:
        self.tokens.append(token)
        return len(self.tokens) < LENGTH


def good(last, generator):
    chain = []
    for _ in range(LENGTH):
        last = int(TABLE[last].argmax())
        chain.append(last)
    return chain


def bad(last, generator):
    chain = []
    for _ in range(LENGTH):
        last = int(TABLE[last].argmin())
        chain.append(last)
    return chain


def adversarial(last, generator):
    """Depends on the last token in a way that a biased rule would show."""
    return [(last + 1) % VOCABULARY, last, (last + 2) % VOCABULARY]


def as_chain(tokens, generator):
    return Draft(tokens)


def as_tree(tokens, generator):
    """The chain with a sibling of its first node, that one's child, and a repeated sibling."""
    return Draft([*tokens, (tokens[0] + 1) % VOCABULARY, tokens[1], tokens[0]], parents=[-1, 0, 1, -1, 3, -1])


@lru_cache(maxsize=64)
def peaked(tokens, sharpness):
    """(q ``[len(tokens), vocab]``, its cumulative rows): a mixture of one-hot and uniform."""
    q = torch.full((len(tokens), VOCABULARY), (1 - sharpness) / VOCABULARY, dtype=torch.float64)
    for i, token in enumerate(tokens):
        q[i, token] += sharpness
    return q, q.cumsum(1).tolist()


def with_q(sharpness):
    def build(tokens, generator):
        q, cumulative = peaked(tuple(tokens), sharpness)
        # the rule is for drafts that are drawn from q
        uniforms = generator.random(len(tokens)).tolist()
        drawn = [bisect_right(row, u) for row, u in zip(cumulative, uniforms, strict=True)]
        return Draft([min(t, VOCABULARY - 1) for t in drawn], q=q)

    return build


def joint_counts(rule, choose, build, sequences, seed=11):
    generator = np.random.default_rng(seed)
    counts = np.zeros([VOCABULARY] * LENGTH)
    for _ in range(sequences):
        end = MarkovEnd(generator)
        while len(end.tokens) < LENGTH:
            last = end.tokens[-1] if end.tokens else START
            draft = build(choose(last, generator), generator)
            rule(draft, [last, *draft.tokens], end)
        counts[tuple(end.tokens)] += 1
    return counts


def p_value(counts):
    law = np.zeros_like(counts)
    for tokens in itertools.product(range(VOCABULARY), repeat=LENGTH):
        chain = zip((START, *tokens), tokens, strict=False)
        law[tokens] = np.prod([TABLE[before, after] for before, after in chain])
    expected = law.ravel() * counts.sum()
    common = expected >= 5
    observed = np.append(counts.ravel()[common], counts.ravel()[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    keep = wanted > 0
    return chisquare(observed[keep], wanted[keep]).pvalue


@pytest.mark.parametrize("choose", [good, bad, adversarial])
@pytest.mark.parametrize("build", [as_chain, as_tree])
def test_text_drafts_leave_the_law_as_it_is(build, choose):
    assert p_value(joint_counts(accept, choose, build, SEQUENCES)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("sharpness", [0.1, 0.9], ids=["flat", "sharp"])
@pytest.mark.parametrize("choose", [good, bad, adversarial])
def test_drafts_with_a_real_q_leave_the_law_as_it_is(choose, sharpness):
    assert p_value(joint_counts(accept, choose, with_q(sharpness), SEQUENCES // 3)) > 1e-3


def full_p_after_rejection(draft, rows, end):
    """The mistake: accept a drafted token with probability p, and on rejection draw from all of p again."""
    for node, token in enumerate(draft.tokens):
        if end.uniform(1) >= TABLE[rows[node], token]:
            end.commit(end.draw(rows[node]))
            return
        if not end.commit(token):
            return
    end.commit(end.draw(rows[len(draft)]))


def full_p_instead_of_the_residual(draft, rows, end):
    """The same mistake with a real q."""
    for node, token in enumerate(draft.tokens):
        p, q = ROWS[rows[node]], draft.q[node]
        if end.uniform(1) * float(q[token]) >= float(p[token]):
            end.commit(draw(p, end.uniform(2)))
            return
        if not end.commit(token):
            return
    end.commit(end.draw(rows[len(draft)]))


def test_the_test_sees_a_wrong_rule():
    assert p_value(joint_counts(full_p_after_rejection, good, as_chain, 20_000)) < 1e-9
    assert p_value(joint_counts(full_p_instead_of_the_residual, bad, with_q(0.9), 20_000)) < 1e-9


def test_a_tree_follows_the_child_that_was_drawn():
    class Scripted(MarkovEnd):
        def __init__(self, tokens):
            self.tokens = []
            self.script = iter(tokens)

        def draw(self, logits):
            return next(self.script)

        def commit(self, token):
            self.tokens.append(token)
            return True

    draft = Draft([1, 2, 3, 2, 3], parents=[-1, 0, 1, 0, -1])
    end = Scripted([1, 2, 3, 0])
    assert accept(draft, [0] * 6, end) == [0, 1, 2] and end.tokens == [1, 2, 3, 0]
    end = Scripted([3, 1])
    assert accept(draft, [0] * 6, end) == [4] and end.tokens == [3, 1]
    end = Scripted([2])
    assert accept(draft, [0] * 6, end) == [] and end.tokens == [2]
