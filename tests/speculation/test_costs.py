"""The cost table: interpolation, profile, keeping and refreshing."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, sleep, time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speculation.costs import KEPT_S, CostTable, costs_of, load, profile, save, table_path
from speculation.verifier.base import Capabilities


def test_between_measured_sizes_costs_are_on_a_line_and_past_the_last_they_stay() -> None:
    table = CostTable({1: 10.0, 4: 16.0, 8: 20.0})
    assert [table(m) for m in (1, 2, 4, 6, 8, 30, 64, 500)] == [10, 12, 16, 18, 20, 20, 20, 20]


@given(st.dictionaries(st.integers(1, 64), st.floats(0.1, 1e4), min_size=1, max_size=8))
def test_more_positions_never_cost_less(measured: dict[int, float]) -> None:
    table = CostTable(measured)
    assert all(table(m) <= table(m + 1) for m in range(1, 64))


@pytest.mark.parametrize("bad", [{}, {1: 0.0}, {0: 3.0}, {2: -1.0}, {1: float("nan")}])
def test_a_table_of_nonsense_is_refused(bad: dict[int, float]) -> None:
    with pytest.raises(ValueError):
        CostTable(bad)


def test_a_slow_time_does_not_lift_the_sizes_after_it() -> None:
    table = CostTable({1: 10.0, 2: 40.0, 3: 12.0, 4: 13.0, 8: 20.0, 16: 30.0})
    assert table(8) == 21.25  # the mean of 2, 3, 4 and 8, not 40
    assert table(16) == 30.0
    assert table(1) == 10.0


def test_timed_passes_move_their_entry_and_one_disturbed_pass_moves_it_little() -> None:
    table = CostTable({1: 10.0, 8: 20.0})
    for _ in range(100):
        table.update(8, 30.0)
    table.update(1, 5000.0)
    table.update(1, float("inf"))
    assert 28 < table(8) < 31
    assert table.measured[1] == pytest.approx(11.0)


def test_an_entry_that_is_far_too_low_heals() -> None:
    table = CostTable({1: 0.5, 8: 20.0})
    for _ in range(200):
        table.update(1, 10.0)
    assert 9 < table(1) < 10.1


def test_a_kept_table_comes_back(tmp_path: Path) -> None:
    save(CostTable({1: 10.0, 8: 20.5}), tmp_path / "deep" / "t.json")
    kept = load(tmp_path / "deep" / "t.json")
    assert kept is not None and kept.measured == {1: 10.0, 8: 20.5}


@pytest.mark.parametrize("content", [None, "", "[1]", '{"1": "x"}', '{"1": -3}', '{"1": 5'])
def test_a_table_that_cannot_be_read_is_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "t.json").write_text(content)
    assert load(tmp_path / "t.json") is None


class Sleeper:
    """A verifier whose passes take a known time."""

    def __init__(self, engine: str = "int8", max_context: int = 2048) -> None:
        self.capabilities = Capabilities(
            engine, "models/Some Model", "cpu", "int8", 100, max_context, True, True, True, 0, 0
        )
        self.open = 0
        self.passes = 0

    def open_slot(self) -> int:
        self.open += 1
        return 0

    def close_slot(self, slot: int) -> None:
        self.open -= 1

    def prefill(self, slot: int, tokens: list[int]) -> None:
        assert all(0 <= token < 100 for token in tokens)

    def verify(self, slot: int, tokens: list[int], parents: None = None) -> torch.Tensor:
        self.passes += 1
        sleep(0.001 * (1 + len(tokens) // 16))
        return torch.zeros(1)


def test_a_profile_finds_the_steps_within_its_budget_and_gives_its_slot_back() -> None:
    verifier = Sleeper()
    began = perf_counter()
    table = profile(verifier, budget_s=0.4)  # type: ignore[arg-type]
    assert perf_counter() - began < 2
    assert verifier.open == 0
    assert table(64) > 2 * table(8)
    assert set(table.measured) >= {1, 8, 64}


def test_a_verifier_of_few_positions_is_profiled_with_fewer() -> None:
    table = profile(Sleeper(max_context=60), budget_s=0.1)  # type: ignore[arg-type]
    assert max(table.measured) < 30


def test_a_verifier_is_profiled_once(tmp_path: Path) -> None:
    verifier = Sleeper()
    first = costs_of(verifier, tmp_path)  # type: ignore[arg-type]
    passes = verifier.passes
    assert costs_of(verifier, tmp_path).measured.keys() == first.measured.keys()  # type: ignore[arg-type]
    assert verifier.passes == passes
    other = table_path(tmp_path, Sleeper("eager"))  # type: ignore[arg-type]
    assert other != table_path(tmp_path, verifier)  # type: ignore[arg-type]
    assert other.parent == tmp_path
    threads = torch.get_num_threads()
    before = table_path(tmp_path, verifier)  # type: ignore[arg-type]
    try:
        torch.set_num_threads(threads + 1)
        assert table_path(tmp_path, verifier) != before  # type: ignore[arg-type]
    finally:
        torch.set_num_threads(threads)


def test_a_pass_that_was_disturbed_while_profiling_is_not_believed() -> None:
    class Disturbed(Sleeper):
        def verify(self, slot: int, tokens: list[int], parents: None = None) -> torch.Tensor:
            if self.passes > 15:  # all rounds but the first
                sleep(0.01)
            return super().verify(slot, tokens, parents)

    assert profile(Disturbed(), budget_s=0.5)(1) < 4  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [{1: 10.0, 8: 20.0}, {2: 10.0, 64: 20.0}])
def test_a_kept_table_with_sizes_missing_is_profiled_again(tmp_path: Path, kept: dict[int, float]) -> None:
    verifier = Sleeper()
    save(CostTable(kept), table_path(tmp_path, verifier))  # type: ignore[arg-type]
    assert {1, 64} <= costs_of(verifier, tmp_path).measured.keys()  # type: ignore[arg-type]
    assert verifier.passes


def test_a_kept_table_is_profiled_again_after_a_week(tmp_path: Path) -> None:
    verifier = Sleeper()
    path = table_path(tmp_path, verifier)  # type: ignore[arg-type]
    for age, again in ((KEPT_S - 3600, False), (KEPT_S + 3600, True)):
        save(CostTable({1: 10.0, 64: 20.0}), path)
        os.utime(path, (time() - age, time() - age))
        assert (costs_of(verifier, tmp_path).measured != {1: 10.0, 64: 20.0}) is again  # type: ignore[arg-type]
    assert time() - path.stat().st_mtime < 60


def test_a_small_verifier_is_profiled_once_too(tmp_path: Path) -> None:
    verifier = Sleeper(max_context=60)
    costs_of(verifier, tmp_path)  # type: ignore[arg-type]
    passes = verifier.passes
    costs_of(verifier, tmp_path)  # type: ignore[arg-type]
    assert verifier.passes == passes
