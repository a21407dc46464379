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


class Attention:
    """Attention of one pass over all layers. The caller fills ``rows`` and asks for a layer at a time; what can be laid
    out once for all layers is, because at one position a pass is mostly small operators."""

    def __init__(self, plan: Plan, cache: Tensor, geometry: Geometry) -> None:
        """``cache``: ``[layers, slots, kv_width]``; the pass's own keys and values are written into it."""
        width = geometry.heads * geometry.head_dim
        heads = (plan.count, geometry.kv_heads, geometry.group, geometry.head_dim)
        self.rows = torch.empty(plan.count, width + geometry.kv_width)  # scaled queries, keys, values
        self._out = torch.empty(plan.count, width)
        self._new = self.rows[:, width:]
        self._written = cache[:, plan.start : plan.start + plan.count].unbind(0)
        queries, out = self.rows[:, :width].view(heads), self._out.view(heads)
        self._groups = [
            (_Chain if group.tail is None else _Branches)(group, queries, out, cache, geometry)
            for group in plan.groups
        ]

    def write(self, index: int) -> None:
        """Writes the keys and values of ``rows`` into a layer."""
        self._written[index].copy_(self._new)

    def layer(self, index: int) -> Tensor:
        """Writes keys and values, and returns ``[count, heads * head_dim]``, valid until the next call."""
        self.write(index)
        for group in self._groups:
            group.attend(index)
        return self._out


def _keys_and_values(cache: Tensor, width: int, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Views ``[layers, kv_heads, width, head_dim]`` of the first ``width`` slots."""
    shape = (len(cache), width, 2, geometry.kv_heads, geometry.head_dim)
    keys, values = cache[:, :width].view(shape).permute(2, 0, 3, 1, 4)
    return keys, values


class _Chain:
    """Rows whose keys lie in path order in the cache."""

    def __init__(self, group: Group, queries: Tensor, out: Tensor, cache: Tensor, geometry: Geometry) -> None:
        used, split = group.count * geometry.group, group.split
        kv_heads, rows, dim = group.queries.shape
        packed = (kv_heads, group.count, geometry.group, dim)
        self._queries, self._mask, self._split = group.queries, group.mask, split
        self._unpacked = queries[group.rows].transpose(0, 1)
        self._packed = group.queries[:, :used].view(packed)
        keys, values = _keys_and_values(cache, group.width, geometry)
        self._keys = keys.transpose(-1, -2).unbind(0)
        self._head, self._tail = values[:, :, :split].unbind(0), values[:, :, split:].unbind(0)
        self._weights = torch.empty(kv_heads, rows, group.width)
        self._head_weights, self._tail_weights = self._weights[..., :split], self._weights[..., split:]
        self._result = torch.empty(kv_heads, rows, dim)
        self._kept = self._result[:, :used].view(packed)
        self._into = out[group.rows].transpose(0, 1)

    def attend(self, layer: int) -> None:
        """One layer, from the queries to the output rows."""
        self._packed.copy_(self._unpacked)
        scores = torch.baddbmm(self._mask, self._queries, self._keys[layer])
        torch.softmax(scores, -1, out=self._weights)
        if self._split:
            head = torch.bmm(self._head_weights, self._head[layer])
            torch.baddbmm(head, self._tail_weights, self._tail[layer], out=self._result)
        else:
            torch.bmm(self._tail_weights, self._tail[layer], out=self._result)
        self._into.copy_(self._kept)


class _Branches:
    """Tree nodes off the best chain: the tails of their paths are gathered."""

    def __init__(self, group: Group, queries: Tensor, out: Tensor, cache: Tensor, geometry: Geometry) -> None:
        self._group, self._all_queries, self._out, self._cache = group, queries, out, cache
        self._packed = group.queries[:, :, : geometry.group]
        keys, self._head_values = _keys_and_values(cache, group.split, geometry)
        self._head_keys = keys.transpose(-1, -2)
        self._geometry = geometry

    def attend(self, layer: int) -> None:
        """One layer, from the queries to the output rows."""
        group, kv_heads, dim = self._group, self._geometry.kv_heads, self._geometry.head_dim
        n, split, rows = group.count, group.split, group.queries.shape[2]
        assert group.tail is not None
        self._packed.copy_(self._all_queries[group.rows])
        tail = self._cache[layer].index_select(0, group.tail).view(n, -1, 2, kv_heads, dim)
        tail_keys, tail_values = tail.permute(2, 0, 3, 1, 4).reshape(2, n * kv_heads, -1, dim)
        scores = torch.bmm(group.queries.view(n * kv_heads, rows, dim), tail_keys.transpose(1, 2))
        scores = scores.view(n, kv_heads, rows, -1)
        if split:
            by_head = group.queries.transpose(0, 1).reshape(kv_heads, n * rows, dim)
            head_scores = torch.bmm(by_head, self._head_keys[layer]).view(kv_heads, n, rows, split)
            scores = torch.cat((head_scores.transpose(0, 1), scores), -1)
        weights = torch.softmax(scores.add_(group.mask), -1)
        tail_weights = weights[..., split:].reshape(n * kv_heads, rows, -1)
        if split:
            head_weights = weights[..., :split].transpose(0, 1).reshape(kv_heads, n * rows, split)
            head = torch.bmm(head_weights, self._head_values[layer]).view(kv_heads, n, rows, dim)
            base = head.transpose(0, 1).reshape(n * kv_heads, rows, dim)
            result = torch.baddbmm(base, tail_weights, tail_values)
        else:
            result = torch.bmm(tail_weights, tail_values)
        self._out[group.rows] = result.view(n, kv_heads, rows, dim)[:, :, : self._geometry.group]
