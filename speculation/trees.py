"""Draft trees: the likeliest nodes first, whatever branch they are on; a chain is a tree of width one.

The nodes are grown best-first by the probability that a pass reaches and accepts them, so the first n of them
are the n with the greatest expected number of accepted tokens (as in OPT-Tree, Wang et al. 2024).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain as chain_of
from operator import itemgetter
from typing import Protocol

from speculation.draft import Draft, Origin
from speculation.evidence import SOURCE_OF, Branch
from speculation.proposers.base import Continuation


class Node:
    """One drafted token."""

    __slots__ = ("children", "depth", "index", "members", "parent", "reach", "segment", "share", "token")

    def __init__(
        self,
        token: int,
        reach: float,
        parent: Node | None,
        depth: int,
        segment: int,
        members: Sequence[Continuation],
        share: float,
        index: int = -1,
    ) -> None:
        self.token = token
        self.reach = reach  # probability that this node is accepted, with all before it
        self.parent = parent
        self.depth = depth  # 1 for the first drafted token
        self.segment = segment  # tokens taken so far from the places in `members`
        self.members = members
        self.share = share
        self.index = index  # in the order of growth
        self.children: list[Node] | None = None  # those that were grown, likeliest first

    def path(self) -> list[int]:
        """The drafted tokens down to this one."""
        tokens = []
        node: Node | None = self
        while node is not None:
            tokens.append(node.token)
            node = node.parent
        return tokens[::-1]

    @property
    def lead(self) -> Continuation:
        """The place with the longest match."""
        members = self.members
        return members[0] if len(members) == 1 else max(members, key=_length)


_length = itemgetter(1)
_origin = lru_cache(maxsize=4096)(Origin)


class Growth(Protocol):
    """What a draft is grown from."""

    def after(self, node: Node) -> tuple[list[Branch], int]:
        """What may follow a node, and how many tokens were taken already from the places of those branches."""

    def agreed(self, places: Sequence[Continuation], taken: int) -> Iterator[tuple[int, float]]:
        """Tokens and their probabilities as long as all places agree."""

    def forbidden(self, token: int) -> bool:
        """Whether a token may not be drafted."""


def grow_chain(branches: list[Branch], growth: Growth, *, most: int, least_reach: float = 0.0) -> list[Node]:
    """The likeliest chain: at most ``most`` nodes, as long as they are reached with ``least_reach``."""
    chain: list[Node] = []
    reach, segment, depth, parent = 1.0, 0, 0, None
    forbidden = growth.forbidden
    while branches and depth < most:
        likeliest, first, members, share, *_ = branches[0]
        segment += 1
        for token, probability in chain_of(((first, likeliest),), growth.agreed(members, segment)):
            reach *= probability
            if reach < least_reach or depth == most or forbidden(token):
                return chain
            depth += 1
            parent = Node(token, reach, parent, depth, segment, members, share, depth - 1)
            chain.append(parent)
            segment += 1
        if parent is None:
            break
        branches, segment = growth.after(parent)
    return chain


def grow_tree(
    branches: list[Branch], growth: Growth, *, depth: int, most: int, width: int, least_reach: float = 0.0
) -> list[Node]:
    """At most ``most`` nodes, at most ``depth`` deep, by falling reach; parents precede their children.

    ``width``: branches followed at each node. Nodes that are reached with less than ``least_reach`` are left
    out.
    """
    chosen: list[Node] = []
    heap: list[tuple[float, int, Node]] = []
    pushed = 0

    def push(options: list[Branch], parent: Node | None, segment: int) -> None:
        nonlocal pushed
        reach, level = (parent.reach, parent.depth + 1) if parent else (1.0, 1)
        for option in options[:width]:
            reached = reach * option.probability
            if reached < least_reach or growth.forbidden(option.token):
                continue
            node = Node(option.token, reached, parent, level, segment, option.members, option.share)
            heapq.heappush(heap, (-reached, pushed, node))
            pushed += 1

    push(branches, None, 1)
    while heap and len(chosen) < most:
        node = heapq.heappop(heap)[2]
        node.index = len(chosen)
        chosen.append(node)
        if node.parent is not None:
            node.parent.children = [*(node.parent.children or ()), node]
        if node.depth < depth:
            options, taken = growth.after(node)
            push(options, node, taken + 1)
    return chosen


def as_draft(nodes: Sequence[Node]) -> Draft:
    """The draft of chosen nodes (a prefix of what `grow` gave), the best chain first."""
    if not nodes:
        return Draft()
    count = len(nodes)
    if nodes[-1].depth == count:  # all others are above the last one
        origins = _origins(nodes)
        return Draft([node.token for node in nodes], origins[0], None, origins)
    chain = best_chain(nodes)
    on_chain = {node.index for node in chain}
    ordered = chain + [node for node in nodes if node.index not in on_chain]
    place = {node.index: number for number, node in enumerate(ordered)}
    origins = _origins(ordered)
    parents = [place[node.parent.index] if node.parent else -1 for node in ordered]
    return Draft([node.token for node in ordered], origins[0], parents, origins)


def _origins(nodes: Sequence[Node]) -> list[Origin]:
    """The evidence behind each node, as telemetry wants it; most nodes go on where the one before came from."""
    origins = []
    members: Sequence[Continuation] | None = None
    share, before, source, rounded = 0.0, 0, "", 0.0
    for node in nodes:
        if node.members is not members or node.share != share:
            members, share = node.members, node.share
            lead = node.lead
            source, before, rounded = SOURCE_OF[lead.kind], lead.length - 1, round(share, 2)
        origins.append(_origin(source, before + node.segment, rounded))
    return origins


def best_chain(nodes: Sequence[Node]) -> list[Node]:
    """From the likeliest first token, always the likeliest child: the first grown of each."""
    chain: list[Node] = []
    last: Node | None = None
    for node in nodes:
        if node.parent is last:
            chain.append(node)
            last = node
    return chain
