"""The formulas: against simulation and algebra, not against themselves."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.stats_formulas import (
    PassCounts,
    RatioSums,
    acceptance_alpha,
    break_even_alpha,
    decode_ms_without,
    expected_tokens,
    expected_tokens_per_forward,
    quotient_interval,
)
from speculation.costs import CostTable


@pytest.mark.parametrize(("alpha", "length"), [(0.0, 4), (0.3, 1), (0.7, 8), (0.95, 32), (1.0, 5)])
def test_expected_tokens_equals_a_simulated_round(alpha, length):
    rng = random.Random(1)

    def round_() -> int:
        return 1 + next((i for i in range(length) if rng.random() >= alpha), length)

    rounds = [round_() for _ in range(20_000)]
    error = 4 * np.std(rounds) / len(rounds) ** 0.5
    assert expected_tokens(alpha, length) == pytest.approx(np.mean(rounds), abs=error + 1e-12)


def test_alpha_counts_only_tokens_that_were_looked_at():
    rng = random.Random(2)
    accepted = rejections = 0
    for _ in range(20_000):
        length = rng.choice([1, 4, 16])
        kept = next((i for i in range(length) if rng.random() >= 0.8), length)
        accepted += kept
        rejections += kept < length
    assert acceptance_alpha(accepted, rejections) == pytest.approx(0.8, abs=0.01)
    assert acceptance_alpha(0, 0) is None


def test_expected_tokens_per_forward_weighs_the_passes():
    assert expected_tokens_per_forward(0.5, {1: 3, 2: 1}) == pytest.approx((3 * 1 + 1.5) / 4)
    assert expected_tokens_per_forward(0.5, {}) is None


@given(length=st.integers(1, 63), relative_cost=st.floats(1.0, 70.0))
def test_break_even_is_where_tokens_gained_equal_the_cost(length, relative_cost):
    alpha = break_even_alpha(length, relative_cost)
    if relative_cost > length + 1:
        assert alpha is None
    else:
        assert alpha is not None and 0 <= alpha <= 1
        assert expected_tokens(alpha, length) == pytest.approx(relative_cost, rel=1e-6)


def test_a_pass_that_costs_nothing_more_always_pays():
    assert break_even_alpha(4, 1.0) == break_even_alpha(4, 0.9) == 0.0


def test_the_cost_without_speculation_scales_with_the_load():
    table = CostTable({1: 20.0, 5: 30.0})
    cases = [
        (30.0, {5: 1}, 160.0),
        (60.0, {5: 1}, 320.0),  # everything took twice as long
        (60.0, {}, 160.0),  # sizes unknown: the table as it is
        (60.0, {10_000: 2}, 160.0),  # as dear as the largest pass there is
        (0.0, {1: 3}, 160.0),
        (80.0, {1: 1, 5: 2}, 160.0),
    ]
    verify_ms, passes, expected = zip(*cases, strict=True)
    without = decode_ms_without(table, np.full(len(cases), 8), np.array(verify_ms), PassCounts.of(passes))
    assert without.tolist() == list(expected)


def test_the_interval_of_a_ratio_of_ratios_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        sides = []
        for per_token in (20.0, 12.5):
            sums = RatioSums()
            for tokens, noise in zip(rng.integers(1, 40, 60), rng.normal(1, 0.3, 60), strict=True):
                sums.add(float(per_token * tokens * noise), float(tokens))
            sides.append(sums)
        value, low, high = quotient_interval(*sides)
        assert low < value < high
        covered += low <= 1.6 <= high
    assert 0.91 <= covered / 400 <= 0.985


def test_an_interval_needs_two_samples_on_each_side():
    one, two = RatioSums(), RatioSums()
    one.add(10.0, 1.0)
    two.add(10.0, 1.0)
    two.add(12.0, 1.0)
    assert quotient_interval(one, two) is None
    assert quotient_interval(two, RatioSums()) is None


def test_merged_sums_equal_sums_of_everything():
    parts, whole = [RatioSums(), RatioSums()], RatioSums()
    for n, (x, y) in enumerate([(1.0, 2.0), (3.0, 4.0), (5.0, 7.0)]):
        parts[n % 2].add(x, y)
        whole.add(x, y)
    parts[0].merge(parts[1])
    assert parts[0] == whole
