"""How much to draft: the number of nodes with the greatest expected number of committed tokens per millisecond.

A pass over n drafted nodes commits 1 + (the sum of the nodes' reach) tokens on average and costs t(n + 1). Nothing
is drafted unless that beats a plain pass, which commits 1 for t(1). There is no draft length to set and no probing
pass: `speculation.evidence` judges what was not drafted by what was committed anyway.

What drafts cost is held against what they brought, too: on text of a few tokens without order each draft looks
worth its pass, and all together are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from speculation.costs import MOST_POSITIONS, CostTable

MARGIN = 1.02  # a draft must promise so much more than a plain pass: drafts cost time to make, too
CHAIN_NODES = 32
MEMORY = 0.999  # of passes: about a thousand count
MOST_LOST = 0.005  # of the time without drafts; once drafts have lost more, none is made
MOST_CREDIT = 20.0  # plain passes that earlier gains may stand for


class GainPolicy:
    """Prices drafts by a cost table."""

    def __init__(self, costs: CostTable, *, width: int = 1, most_nodes: int = CHAIN_NODES) -> None:
        """``width``: branches a draft may have at each node (1: chains); ``most_nodes``: drafted at most."""
        if width < 1 or not 0 < most_nodes < MOST_POSITIONS + 1:
            raise ValueError(f"a draft has 1 to {MOST_POSITIONS} nodes and 1 or more branches")
        self.costs = costs
        self.width = width
        self.most_nodes = most_nodes
        self._plain_ms = 0.0  # what the committed tokens would have taken without drafts
        self._lost_ms = 0.0  # what they took more than that; negative: gained

    @property
    def least_reach(self) -> float:
        """A node reached with less than this is not worth its position, wherever it stands."""
        ms = self.costs.ms
        last = min(self.most_nodes + 1, MOST_POSITIONS)
        return max(0.0, 0.5 * (ms[last] - ms[1]) / (last - 1) / ms[1])

    def nodes(self, reaches: Sequence[float]) -> int:
        """How many nodes to verify, given each one's reach in the order in which they would be drafted."""
        ms = self.costs.ms
        best, best_rate = 0, MARGIN / ms[1]
        if ms[-1] == ms[1]:
            return min(len(reaches), self.most_nodes)
        if self._lost_ms > MOST_LOST * self._plain_ms:
            return 0  # until plain passes have made up for it
        expected = 1.0
        for count, reach in enumerate(reaches[: self.most_nodes], 1):
            expected += reach
            rate = expected / ms[min(count + 1, MOST_POSITIONS)]
            if rate > best_rate:
                best, best_rate = count, rate
        return best

    def observe(self, positions: int, verify_ms: float, committed: int) -> None:
        """A pass over ``positions`` was timed (0: it was not) and committed so many tokens."""
        ms = self.costs.ms
        plain = committed * ms[1]
        self._plain_ms = MEMORY * self._plain_ms + plain
        lost = MEMORY * self._lost_ms + ms[min(positions, MOST_POSITIONS)] - plain
        self._lost_ms = max(-MOST_CREDIT * ms[1], lost)
        if verify_ms > 0:
            self.costs.update(positions, verify_ms)
