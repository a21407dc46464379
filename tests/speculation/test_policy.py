"""The draft-length policy on tables made by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculation.costs import CostTable
from speculation.policy import MARGIN, GainPolicy


def best(reaches: list[float], table: dict[int, float]) -> int:
    return GainPolicy(CostTable(table)).nodes(reaches)


LINEAR = {1: 10.0, 64: 640.0}
STEPPED = {1: 10.0, 4: 10.5, 5: 20.0, 8: 20.5}


def test_nothing_is_drafted_where_every_position_costs_a_pass() -> None:
    assert best([0.99, 0.98, 0.97], LINEAR) == 0


def test_nothing_is_drafted_that_does_not_beat_a_plain_pass() -> None:
    assert best([0.04], {1: 10.0, 2: 10.5}) == 0
    assert best([0.1], {1: 10.0, 2: 10.5}) == 1


def test_a_draft_fills_the_step_it_pays_for() -> None:
    assert best([0.5, 0.3, 0.2, 0.1, 0.1], STEPPED) == 3


def test_a_sure_draft_goes_past_a_step() -> None:
    assert best([0.99] * 7, {1: 10.0, 4: 10.5, 5: 13.0, 8: 13.5}) == 7


def test_everything_is_drafted_where_positions_are_free() -> None:
    assert GainPolicy(CostTable.flat(), most_nodes=5).nodes([0.01] * 9) == 5


def test_no_draft_is_longer_than_allowed() -> None:
    assert GainPolicy(CostTable({1: 10.0, 64: 10.1}), most_nodes=3).nodes([0.9] * 9) == 3


def test_impossible_sizes_are_refused() -> None:
    for width, most in ((0, 8), (1, 0), (1, 65)):
        with pytest.raises(ValueError):
            GainPolicy(CostTable.flat(), width=width, most_nodes=most)


@given(
    st.lists(st.floats(0, 1), max_size=12).map(lambda r: sorted(r, reverse=True)),
    st.lists(st.floats(0.0, 5.0), min_size=13, max_size=13),
)
def test_no_other_length_promises_more(reaches: list[float], steps: list[float]) -> None:
    times = {m: 10.0 + sum(steps[:m]) for m in range(1, 14)}
    chosen = best(reaches, times)
    rates = [(1 + sum(reaches[:n])) / times[n + 1] for n in range(len(reaches) + 1)]
    assert rates[chosen] >= max(rates) - 1e-9 or (chosen == 0 and max(rates) <= rates[0] * MARGIN + 1e-9)


def test_a_node_left_out_for_its_reach_would_not_have_been_drafted() -> None:
    policy = GainPolicy(CostTable({1: 23, 2: 27, 4: 30, 8: 34, 16: 52, 32: 81}))
    weak = [policy.least_reach * 0.99] * 32
    assert policy.nodes(weak) == 0
    assert policy.least_reach > 0
    assert GainPolicy(CostTable.flat()).least_reach == 0


def test_timed_passes_move_the_table() -> None:
    policy = GainPolicy(CostTable({1: 10.0, 2: 11.0}))
    for _ in range(200):
        policy.observe(2, 19.0, 2)
    assert 17.0 < policy.costs(2) < 19.5
    policy.observe(1, 0.0, 1)  # a pass that was not timed
    assert policy.costs(1) == 10.0


def test_drafts_that_lose_stop_and_begin_again_when_plain_passes_have_made_up_for_it() -> None:
    policy = GainPolicy(CostTable({1: 10.0, 2: 11.0}))
    drafted = []
    for _ in range(4000):
        count = policy.nodes([0.3])
        policy.observe(1 + count, 0.0, 1)  # nothing drafted is ever right
        drafted.append(count)
    assert drafted[0] == 1
    assert 0 < sum(drafted[-1000:]) < 0.1 * 1000


def test_drafts_that_gain_are_made_however_many_fail() -> None:
    policy = GainPolicy(CostTable({1: 10.0, 2: 11.0}))
    for step in range(1000):
        assert policy.nodes([0.3]) == 1
        policy.observe(2, 0.0, 1 + (step % 5 == 0))


def test_earlier_gains_do_not_pay_for_long_losses() -> None:
    policy = GainPolicy(CostTable({1: 10.0, 2: 11.0}))
    for _ in range(5000):
        policy.observe(2, 0.0, 2)
    lost = 0
    while policy.nodes([0.3]) and lost < 5000:
        policy.observe(2, 0.0, 1)
        lost += 1
    assert lost < 400


def test_drafts_go_on_where_positions_are_free() -> None:
    policy = GainPolicy(CostTable.flat())
    for _ in range(100):
        policy.observe(9, 0.0, 1)
    assert policy.nodes([0.1] * 8) == 8
