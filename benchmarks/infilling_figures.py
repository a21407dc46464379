"""Pass rates and what they differ by: paired, with intervals over problems and an exact test.

Two holes of one problem are not independent, so problems are drawn for the bootstrap, not holes. The test is
McNemar's: of the holes that only one of two passed, how unlikely is it that a fair coin splits them so?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import comb
from statistics import median
from typing import Any

import numpy as np

from benchmarks.infilling_holes import Hole

RESAMPLES = 4000
Passes = Mapping[str, bool]  # hole's name to whether its tests passed
Answers = Mapping[str, Mapping[str, Any]]  # hole's name to a peer's answer


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided exact p of so many holes that only one of the two passed."""
    n = only_first + only_second
    tail = sum(comb(n, k) for k in range(min(only_first, only_second) + 1)) / 2**n
    return min(1.0, 2 * tail)


def rate(passes: Passes, problem_of: Mapping[str, str]) -> dict[str, Any]:
    """The share of holes that passed."""
    names = sorted(passes)
    return {
        "n": len(names),
        "passed": sum(passes.values()),
        **_interval([float(passes[name]) for name in names], [problem_of[name] for name in names]),
    }


def difference(first: Passes, second: Passes, problem_of: Mapping[str, str]) -> dict[str, Any]:
    """Pass rate of the first less that of the second, over the holes that both filled."""
    names = sorted(first.keys() & second.keys())
    only_first = sum(first[name] and not second[name] for name in names)
    only_second = sum(second[name] and not first[name] for name in names)
    differences = [float(first[name]) - float(second[name]) for name in names]
    return {
        "n": len(names),
        **_interval(differences, [problem_of[name] for name in names]),
        "only_first": only_first,
        "only_second": only_second,
        "p": round(mcnemar(only_first, only_second), 4),
    }


def _interval(values: Sequence[float], problems: Sequence[str]) -> dict[str, float]:
    """The mean with a 95 % bootstrap interval over problems."""
    if not values:
        return {"value": 0.0, "low": 0.0, "high": 0.0}
    kinds, of = np.unique(np.asarray(problems), return_inverse=True)
    sums, counts = np.bincount(of, values), np.bincount(of)
    picks = np.random.default_rng(0).integers(0, len(kinds), (RESAMPLES, len(kinds)))
    means = sums[picks].sum(1) / counts[picks].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    found = {"value": float(np.mean(values)), "low": float(low), "high": float(high)}
    return {name: round(value, 4) for name, value in found.items()}


def rates(passes: Mapping[str, Passes], groups: Mapping[str, Iterable[Hole]]) -> dict[str, Any]:
    """Pass rates of every peer over every group of holes."""
    problem_of = {hole.name: hole.problem for group in groups.values() for hole in group}
    return {
        name: {kind: rate(_within(found, group), problem_of) for kind, group in groups.items()}
        for name, found in passes.items()
    }


def differences(
    passes: Mapping[str, Passes], groups: Mapping[str, Iterable[Hole]], pairs: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """Differences of pass rates of the pairs of which both are there, over every group of holes."""
    problem_of = {hole.name: hole.problem for group in groups.values() for hole in group}
    return {
        f"{a} - {b}": {
            kind: difference(_within(passes[a], group), _within(passes[b], group), problem_of)
            for kind, group in groups.items()
        }
        for a, b in pairs
        if a in passes and b in passes
    }


def work(answers: Answers) -> dict[str, float]:
    """What a peer's answers took."""
    tokens, forwards = (sum(a[what] for a in answers.values()) for what in ("tokens", "forwards"))
    return {
        "median_ms": round(median(a["ms"] for a in answers.values()), 1) if answers else 0.0,
        "tokens": tokens,
        "tokens_per_forward": round(tokens / forwards, 3) if forwards else 0.0,
    }


def _within(passes: Passes, group: Iterable[Hole]) -> dict[str, bool]:
    return {hole.name: passes[hole.name] for hole in group if hole.name in passes}
