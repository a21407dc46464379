"""Draft trees: the likeliest nodes first, whatever branch they are on; a chain is a tree of width one.

The nodes are grown best-first by the probability that a pass reaches and accepts them, so the first n of them are
the n with the greatest expected number of accepted tokens (as in OPT-Tree, Wang et al. 2024).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from speculation.draft import Draft, Origin
from speculation.evidence import SOURCE_OF, Branch
from speculation.proposers.base import Continuation


@dataclass(slots=True, eq=False)
class Node:
    """One drafted token."""

    token: int
    reach: float  # probability that this node is accepted, with all before it
    parent: Node | None
    depth: int  # 1 for the first drafted token
    segment: int  # tokens taken so far from the places in `members`
    members: Sequence[Continuation]
    share: float
    branches: list[Branch] = field(default_factory=list)  # what may follow; filled when the node is chosen
    children: list[Node] = field(default_factory=list)  # those that were chosen
    index: int = -1

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
        return max(self.members, key=lambda place: place.length)

    def origin(self) -> Origin:
        """The evidence, as telemetry wants it."""
        lead = self.lead
        return Origin(SOURCE_OF[lead.kind], lead.length + self.segment - 1, self.share)


# what may follow a node, and how many tokens were taken from the places of those branches
Expand = Callable[[Node], tuple[list[Branch], int]]


def grow(
    branches: list[Branch],
    expand: Expand,
    *,
    depth: int,
    most: int,
    width: int = 1,
    least_reach: float = 0.0,
    forbidden: Callable[[int], bool] = lambda _: False,
) -> list[Node]:
    """At most ``most`` nodes, at most ``depth`` deep, by falling reach; parents precede their children.

    ``width``: branches followed at each node. Nodes that are reached with less than ``least_reach`` are left out.
    """
    chosen: list[Node] = []
    heap: list[tuple[float, int, Node]] = []
    pushed = 0

    def push(options: list[Branch], parent: Node | None, segment: int) -> None:
        nonlocal pushed
        reach, level = (parent.reach, parent.depth + 1) if parent else (1.0, 1)
        for option in options[:width]:
            share_of_reach = reach * option.probability
            if share_of_reach < least_reach or forbidden(option.token):
                continue
            node = Node(option.token, share_of_reach, parent, level, segment, option.members, option.share)
            heapq.heappush(heap, (-share_of_reach, pushed, node))
            pushed += 1

    push(branches, None, 1)
    while heap and len(chosen) < most:
        node = heapq.heappop(heap)[2]
        node.index = len(chosen)
        chosen.append(node)
        if node.parent is not None:
            node.parent.children.append(node)
        if node.depth < depth:
            node.branches, taken = expand(node)
            push(node.branches, node, taken + 1)
    return chosen


def as_draft(nodes: Sequence[Node]) -> Draft:
    """The draft of chosen nodes (a prefix of what `grow` gave), the best chain first."""
    if not nodes:
        return Draft()
    count = len(nodes)
    first = [node for node in nodes if node.parent is None]
    chain, node = [], first[0]
    while node is not None:
        chain.append(node)
        node = next((child for child in node.children if child.index < count), None)
    if len(chain) == count:
        origins = [node.origin() for node in chain]
        return Draft([node.token for node in chain], origins[0], None, origins)
    on_chain = {node.index for node in chain}
    ordered = chain + [node for node in nodes if node.index not in on_chain]
    place = {node.index: number for number, node in enumerate(ordered)}
    origins = [node.origin() for node in ordered]
    parents = [place[node.parent.index] if node.parent else -1 for node in ordered]
    return Draft([node.token for node in ordered], origins[0], parents, origins)
