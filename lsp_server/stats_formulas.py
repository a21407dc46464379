"""The arithmetic of speculative decoding that is printed: what acceptance should give, and must reach to pay.

α is the chance that a drafted token is accepted when it is looked at (Leviathan et al. 2023): accepted tokens
over accepted and rejected ones. A failed draft has one rejected token; those behind it were never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from speculation.costs import CostTable


def acceptance_alpha(accepted: int, rejections: int) -> float | None:
    """α from counts; None when nothing was looked at."""
    looked_at = accepted + rejections
    return accepted / looked_at if looked_at else None


def expected_tokens(alpha: float, length: float) -> float:
    """Expected tokens of a round whose draft has ``length`` tokens: (1 − α^(γ+1)) / (1 − α)."""
    if alpha >= 1:
        return length + 1
    return float((1 - alpha ** (length + 1)) / (1 - alpha))


def expected_tokens_per_forward(alpha: float, passes_by_positions: Mapping[int, int]) -> float | None:
    """The mean of `expected_tokens` over the passes that were made."""
    passes = sum(passes_by_positions.values())
    if not passes:
        return None
    return sum(n * expected_tokens(alpha, m - 1) for m, n in passes_by_positions.items()) / passes


def break_even_alpha(length: int, relative_cost: float) -> float | None:
    """The α from which a draft of ``length`` tokens pays.

    ``relative_cost`` is t(γ+1) ÷ t(1), what its pass costs. None when not even full acceptance pays.
    """
    if relative_cost <= 1:
        return 0.0
    if relative_cost > length + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):  # the expectation grows with α: bisect to the last bit
        middle = (low + high) / 2
        if expected_tokens(middle, length) < relative_cost:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True, slots=True)
class PassCounts:
    """The decode passes of many requests: each entry says whose, of how many positions, and how many."""

    owners: np.ndarray
    positions: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, tables: Sequence[Mapping[int, int]]) -> PassCounts:
        """From a table of passes by positions for each request."""
        sizes = np.fromiter(map(len, tables), np.int64, len(tables))
        positions = np.fromiter(chain.from_iterable(tables), np.int64)
        counts = np.fromiter(chain.from_iterable([table.values() for table in tables]), np.int64)
        return cls(np.repeat(np.arange(len(tables)), sizes), positions, counts)


def decode_ms_without(
    costs: CostTable, committed: np.ndarray, verify_ms: np.ndarray, passes: PassCounts
) -> np.ndarray:
    """What the passes of requests would have cost with one position each: one pass per committed token.

    The table was measured at one context length on a quiet machine. What this request's passes really cost
    against the table (longer context, other load) is taken to hold for single positions as well.
    """
    ms = np.asarray(costs.ms)
    spent = passes.counts * ms[np.minimum(passes.positions, len(ms) - 1)]
    by_table = np.bincount(passes.owners, spent, len(committed))
    known = (by_table > 0) & (verify_ms > 0)
    strain = np.divide(verify_ms, by_table, out=np.ones(len(committed)), where=known)
    return np.asarray(committed * ms[1] * strain)


@dataclass(slots=True)
class RatioSums:
    """Sums from which a ratio of totals Σx ÷ Σy and its variance follow; constant memory."""

    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    def add(self, x: npt.ArrayLike, y: npt.ArrayLike) -> None:
        """Adds one pair, or many."""
        xs, ys = np.atleast_1d(np.asarray(x, float)), np.atleast_1d(np.asarray(y, float))
        self.n += len(xs)
        self.x += float(xs.sum())
        self.y += float(ys.sum())
        self.xx += float(xs @ xs)
        self.yy += float(ys @ ys)
        self.xy += float(xs @ ys)

    def merge(self, other: RatioSums) -> None:
        self.n += other.n
        self.x += other.x
        self.y += other.y
        self.xx += other.xx
        self.yy += other.yy
        self.xy += other.xy

    @property
    def ratio(self) -> float | None:
        """Σx ÷ Σy."""
        return self.x / self.y if self.y else None

    def relative_variance(self) -> float | None:
        """Variance of the ratio over its square, by linearisation; None for fewer than two samples."""
        if self.n < 2 or not self.x or not self.y:
            return None
        ratio = self.x / self.y
        residuals = max(0.0, self.xx - 2 * ratio * self.xy + ratio * ratio * self.yy)
        return residuals * self.n / (self.n - 1) / (self.x * self.x)


def quotient_interval(over: RatioSums, under: RatioSums) -> tuple[float, float, float] | None:
    """Quotient of two independent ratios with its 95 % interval (value, low, high), on the log scale."""
    variances = over.relative_variance(), under.relative_variance()
    if variances[0] is None or variances[1] is None or over.ratio is None or not under.ratio:
        return None
    value = over.ratio / under.ratio
    spread = math.exp(1.96 * math.sqrt(variances[0] + variances[1]))
    return value, value / spread, value * spread
