"""Attention whose result for a position does not depend, to the bit, on what shares the pass.

Every row sees a key width that depends on its own path length alone: W, the smallest multiple of 64 that
covers it. Rows of equal W form a group; the query heads of a key-value group are packed into the row
dimension and padded with zero rows to a multiple of 8, because matrix kernels choose other code for fewer
rows. The weighted sum of values is split at c0 = max(0, W - TAIL): a tree node shares the head of the keys
with the committed context and has its tail gathered into path order, a chain reads the same tail in place;
products of the same shape either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WIDTH = 64  # key widths are multiples of this
TAIL = 128  # keys in path order; covers WIDTH - 1 + the deepest path of a tree
MAX_DEPTH = TAIL - WIDTH + 1  # longest path (nodes) of a tree
ROWS = 8  # query rows are padded to a multiple of this


@dataclass(frozen=True, slots=True)
class Geometry:
    """Head counts and size of one attention layer."""

    heads: int
    kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads

    @property
    def kv_width(self) -> int:
        """Floats of one position's keys and values together."""
        return 2 * self.kv_heads * self.head_dim


@dataclass(slots=True)
class Group:
    """Rows of a pass that have the same key width."""

    rows: slice | Tensor  # a slice for a chain, indices for tree nodes off the chain
    count: int
    width: int
    # zero-padded packing buffer [kv_heads, padded rows, head_dim], off the chain one per node [count, ...]
    queries: Tensor
    mask: Tensor  # 0 / -inf, [padded rows, width], or [count, 1, 1, width] off the chain
    tail: Tensor | None = None  # slots of the tail in path order, [count * (width - split)], off the chain

    @property
    def split(self) -> int:
        """First key of the tail."""
        return max(0, self.width - TAIL)


@dataclass(slots=True)
class Plan:
    """What a pass needs to know besides its tokens: positions, groups, and where keys and values are
    written."""

    start: int
    count: int
    positions: Tensor  # [count], the depth of each node in the context
    groups: list[Group]


def padded(rows: int) -> int:
    """Rows after padding."""
    return -(-rows // ROWS) * ROWS


def width_of(path_length: int) -> int:
    """The key width of a row that sees ``path_length`` positions, itself included."""
    return -(-path_length // WIDTH) * WIDTH


def plan_pass(start: int, count: int, parents: Sequence[int] | None, geometry: Geometry) -> Plan:
    """The plan of a pass over ``count`` nodes after ``start`` committed positions.

    Nodes whose path is the run of slots before them (the best chain, by the order drafts have) take the
    chain's code; the others take the gathered one.
    """
    if parents is None:
        return Plan(
            start, count, torch.arange(start, start + count), _chain_groups(start, 0, count, geometry)
        )
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    straight = 0
    while straight < count and parents[straight] == straight - 1:
        straight += 1
    groups = _chain_groups(start, 0, straight, geometry)
    by_width: dict[int, list[int]] = {}
    for node in range(straight, count):
        by_width.setdefault(width_of(start + depths[node] + 1), []).append(node)
    groups += [_branch_group(start, nodes, width, parents, geometry) for width, nodes in by_width.items()]
    return Plan(start, count, torch.tensor(depths) + start, groups)


def _chain_groups(start: int, first: int, count: int, geometry: Geometry) -> list[Group]:
    groups = []
    while first < count:
        width = width_of(start + first + 1)
        last = min(count, width - start)
        rows = padded((last - first) * geometry.group)
        lengths = torch.arange(start + first + 1, start + last + 1).repeat_interleave(geometry.group)
        mask = torch.zeros(rows, width)
        mask[: len(lengths)].masked_fill_(torch.arange(width) >= lengths[:, None], -torch.inf)
        queries = torch.zeros(geometry.kv_heads, rows, geometry.head_dim)
        groups.append(Group(slice(first, last), last - first, width, queries, mask))
        first = last
    return groups


def _branch_group(
    start: int, nodes: list[int], width: int, parents: Sequence[int], geometry: Geometry
) -> Group:
    split = max(0, width - TAIL)
    slots = (
        torch.arange(split, width).clamp_(max=start).repeat(len(nodes), 1)
    )  # past the path: any finite slot
    mask = torch.zeros(len(nodes), 1, 1, width)
    for row, node in enumerate(nodes):
        path = []
        while node >= 0:
            path.append(node)
            node = parents[node]
        end = start + len(path)
        slots[row, start - split : end - split] = torch.tensor(path[::-1]) + start
        mask[row, :, :, end:] = -torch.inf
    queries = torch.zeros(len(nodes), geometry.kv_heads, padded(geometry.group), geometry.head_dim)
    return Group(torch.tensor(nodes), len(nodes), width, queries, mask, slots.flatten())


def attend(plan: Plan, queries: Tensor, cache: Tensor, geometry: Geometry) -> Tensor:
    """Attention of scaled ``queries`` ``[count, heads * head_dim]`` over ``cache`` ``[slots, kv_width]``.

    The pass's own keys and values must be in the cache already. Returns ``[count, heads * head_dim]``.
    """
    out = torch.empty_like(queries)
    for group in plan.groups:
        if group.tail is None:
            _attend_chain(group, queries, cache, geometry, out)
        else:
            _attend_branches(group, queries, cache, geometry, out)
    return out


def _attend_chain(group: Group, queries: Tensor, cache: Tensor, geometry: Geometry, out: Tensor) -> None:
    kv, per, dim = geometry.kv_heads, geometry.group, geometry.head_dim
    used = group.count * per
    packed = group.queries[:, :used].view(kv, group.count, per, dim)
    packed.copy_(queries[group.rows].view(group.count, kv, per, dim).transpose(0, 1))
    keys, values = cache[: group.width].view(group.width, 2, kv, dim).permute(1, 2, 0, 3)
    weights = torch.bmm(group.queries, keys.transpose(1, 2)).add_(group.mask)
    weights = torch.softmax(weights, -1)
    split = group.split
    result = torch.bmm(weights[..., split:], values[:, split:])
    if split:
        result += torch.bmm(weights[..., :split], values[:, :split])
    into = out[group.rows].view(group.count, kv, per, dim)
    into.copy_(result[:, :used].view(kv, group.count, per, dim).transpose(0, 1))


def _attend_branches(group: Group, queries: Tensor, cache: Tensor, geometry: Geometry, out: Tensor) -> None:
    kv, per, dim = geometry.kv_heads, geometry.group, geometry.head_dim
    n, split, rows = group.count, group.split, group.queries.shape[2]
    assert group.tail is not None
    group.queries[:, :, :per] = queries[group.rows].view(n, kv, per, dim)
    tail = cache.index_select(0, group.tail).view(n, -1, 2, kv, dim).permute(2, 0, 3, 1, 4)
    tail_keys, tail_values = tail.reshape(2, n * kv, -1, dim)
    scores = torch.bmm(group.queries.view(n * kv, rows, dim), tail_keys.transpose(1, 2))
    scores = scores.view(n, kv, rows, -1)
    if split:
        by_head = group.queries.transpose(0, 1).reshape(kv, n * rows, dim)
        keys, values = cache[:split].view(split, 2, kv, dim).permute(1, 2, 0, 3)
        head_scores = torch.bmm(by_head, keys.transpose(1, 2)).view(kv, n, rows, split).transpose(0, 1)
        scores = torch.cat((head_scores, scores), -1)
    weights = torch.softmax(scores.add_(group.mask), -1)
    tail_weights = weights[..., split:].reshape(n * kv, rows, -1)
    result = torch.bmm(tail_weights, tail_values).view(n, kv, rows, dim)
    if split:
        head_weights = weights[..., :split].transpose(0, 1).reshape(kv, n * rows, split)
        result += torch.bmm(head_weights, values).view(kv, n, rows, dim).transpose(0, 1)
    out[group.rows] = result[:, :, :per].reshape(n, -1)
