"""Invariant attention: equal to plain attention, and the same bits however rows are grouped."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from speculation.verifier.attention import (
    MAX_DEPTH,
    TAIL,
    WIDTH,
    Attention,
    Geometry,
    Plan,
    plan_pass,
    width_of,
)

GEOMETRIES = [Geometry(14, 2, 64), Geometry(9, 3, 64), Geometry(4, 4, 16), Geometry(5, 1, 24)]


def attend(plan: Plan, queries: Tensor, cache: Tensor, geometry: Geometry) -> Tensor:
    """One layer, whose keys and values are in the cache already."""
    attention = Attention(plan, cache[None], geometry)
    attention.rows.copy_(torch.cat((queries, cache[plan.start : plan.start + plan.count]), 1))
    return attention.layer(0).clone()


def plain(queries: Tensor, cache: Tensor, slots: list[list[int]], geometry: Geometry) -> Tensor:
    """Row by row, head by head, in float64."""
    rows = []
    for row, path in zip(queries.double(), slots, strict=True):
        keys, values = cache[path].double().view(len(path), 2, geometry.kv_heads, -1).unbind(1)
        heads = []
        for head, query in enumerate(row.view(geometry.heads, -1)):
            kv = head // geometry.group
            heads.append(torch.softmax(keys[:, kv] @ query, 0) @ values[:, kv])
        rows.append(torch.cat(heads))
    return torch.stack(rows)


def paths(start: int, parents: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for node, parent in enumerate(parents):
        found.append([*(found[parent] if parent >= 0 else range(start)), start + node])
    return found


def random_inputs(geometry: Geometry, slots: int, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(slots)
    queries = torch.randn(rows, geometry.heads * geometry.head_dim, generator=generator)
    return queries * geometry.head_dim**-0.5, torch.randn(slots, geometry.kv_width, generator=generator)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("start", [0, 50, TAIL - 3, 2 * TAIL + 1])
def test_chains_and_trees_equal_plain_attention(geometry: Geometry, start: int) -> None:
    chooser = random.Random(start)
    for parents in ([*range(-1, 11)], [-1, 0, 1, *(chooser.randrange(-1, node) for node in range(3, 20))]):
        queries, cache = random_inputs(geometry, width_of(start + 64), len(parents))
        expected = plain(queries, cache, paths(start, parents), geometry)
        got = attend(plan_pass(start, len(parents), parents, geometry), queries, cache, geometry)
        assert torch.allclose(got.double(), expected, atol=1e-5)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_stale_values_behind_a_row_do_not_matter(geometry: Geometry) -> None:
    queries, cache = random_inputs(geometry, 256, 5)
    plan = plan_pass(150, 5, None, geometry)
    before = attend(plan, queries, cache, geometry)
    cache[155:] = 1e4
    assert torch.equal(attend(plan, queries, cache, geometry), before)


def test_a_tree_that_is_a_chain_is_planned_as_one() -> None:
    plan = plan_pass(10, 4, [-1, 0, 1, 2], GEOMETRIES[0])
    assert [group.tail for group in plan.groups] == [None]
    assert plan.positions.tolist() == [10, 11, 12, 13]


def test_positions_are_depths() -> None:
    assert plan_pass(5, 5, [-1, 0, 0, 2, -1], GEOMETRIES[0]).positions.tolist() == [5, 6, 6, 7, 5]


def test_the_shared_head_never_reaches_into_the_tree() -> None:
    for start in range(0, 5 * WIDTH):
        for depth in (1, MAX_DEPTH):
            assert max(0, width_of(start + depth) - TAIL) <= start
