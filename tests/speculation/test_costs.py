"""The cost table: interpolation, profile, keeping and refreshing."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter, sleep

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speculation.costs import CostTable, costs_of, load, profile, save, table_path
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


def test_timed_passes_move_their_entry_and_disturbed_ones_do_not() -> None:
    table = CostTable({1: 10.0, 8: 20.0})
    for _ in range(100):
        table.update(8, 30.0)
        table.update(1, 500.0)
    assert 28 < table(8) < 31
    assert table(1) == 10.0


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
