"""Evidence: probabilities from matching places, and how they follow what is observed."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from speculation.evidence import KIND, KINDS, Evidence, fitted_weights, priors_of, weights_of
from speculation.proposers.base import Continuation


def place(token: int, length: int = 3, kind: str = "request", newest: bool = False) -> Continuation:
    return Continuation(KIND[kind], length, [token, token + 1, token + 2], 0, newest)


def probability(evidence: Evidence, places: list[Continuation], token: int) -> float:
    return next((b.probability for b in evidence.branches(places, 0) if b.token == token), 0.0)


places = st.lists(
    st.builds(
        Continuation,
        st.integers(0, len(KINDS) - 1),
        st.integers(0, 200),
        st.lists(st.integers(-1, 3), min_size=1, max_size=6),
        st.just(0),
        st.booleans(),
    ),
    max_size=12,
)


@given(places)
def test_probabilities_are_probabilities_likeliest_first(found: list[Continuation]) -> None:
    branches = Evidence().branches(found, 0)
    values = [branch.probability for branch in branches]
    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= 1 for value in values) and sum(values) <= 1 + 1e-9
    assert {b.token for b in branches} == {p.tokens[0] for p in found if p.tokens[0] >= 0}


@given(places.filter(len))
def test_the_loop_over_agreed_tokens_gives_what_branches_give(found: list[Continuation]) -> None:
    evidence = Evidence()
    start = evidence.branches(found, 0)
    if not start:
        return
    members = start[0].members
    for depth, (token, value) in enumerate(evidence.agreed(members, 1), 1):
        branches = evidence.branches(members, depth)
        assert [branch.token for branch in branches] == [token]
        assert math.isclose(branches[0].probability, value, abs_tol=1e-9)


def test_longer_matches_and_more_agreement_are_trusted_more() -> None:
    evidence = Evidence()
    assert probability(evidence, [place(1, 8)], 1) > probability(evidence, [place(1, 2)], 1)
    alone = probability(evidence, [place(1, 3), place(5, 3)], 1)
    assert probability(evidence, [place(1, 3), place(1, 3), place(1, 3), place(5, 3)], 1) > alone
    both = probability(evidence, [place(1, 3), place(1, 4, "workspace"), place(5, 3)], 1)
    assert both > alone


def test_text_that_was_deleted_here_is_trusted_from_its_start() -> None:
    assert probability(Evidence(), [place(1, 1, "deleted-start", True)], 1) > 0.5


def test_a_source_that_keeps_failing_loses_its_say_and_wins_it_back() -> None:
    evidence = Evidence()
    found = [place(1, 6)]
    before = probability(evidence, found, 1)
    for _ in range(60):
        evidence.observe(evidence.branches(found, 0), 99)
    demoted = probability(evidence, found, 1)
    assert demoted < before / 2
    assert demoted > 0  # never wiped
    for _ in range(200):
        evidence.observe(evidence.branches(found, 0), 1)
    assert probability(evidence, found, 1) > before * 0.95


def test_one_source_failing_leaves_the_others_their_trust() -> None:
    evidence = Evidence()
    before = probability(evidence, [place(1, 6, "workspace")], 1)
    for _ in range(60):
        evidence.observe(evidence.branches([place(1, 6)], 0), 99)
    assert probability(evidence, [place(1, 6, "workspace")], 1) > before * 0.9


@given(st.lists(st.tuples(places, st.integers(0, 3)), max_size=30))
def test_weights_stay_finite_whatever_is_observed(rounds: list[tuple[list[Continuation], int]]) -> None:
    evidence = Evidence()
    for found, token in rounds * 5:
        evidence.observe(evidence.branches(found, 0), token)
    assert all(math.isfinite(weight) and abs(weight) < 60 for weight in evidence.weights)


def test_evidence_that_must_not_learn_does_not() -> None:
    evidence = Evidence(learn=False)
    before = list(evidence.weights)
    evidence.observe(evidence.branches([place(1)], 0), 2)
    assert evidence.weights == before


def test_the_priors_file_holds_every_weight() -> None:
    weights = fitted_weights()
    assert weights_of(priors_of(weights)) == list(weights)
    assert max(map(abs, weights)) < 30
