"""The figures of one group of requests as plain data: what is printed, drawn and written as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lsp_server.stats_formulas import (
    acceptance_alpha,
    break_even_alpha,
    expected_tokens_per_forward,
    quotient_interval,
)
from lsp_server.stats_group import LONGEST, MATCH_BUCKETS, OUTCOME_RANK, Group
from lsp_server.telemetry import STAGES
from speculation.costs import CostTable

DRAFT_LENGTHS = (1, 2, 3, 4, 8, 16, 32, 63)
PERCENTILES = (50, 95, 99)
LATENCY_EDGES_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000)


def describe(group: Group) -> dict[str, Any]:
    """One group's figures as plain data."""
    total_ms = sum(group.stage_ms)
    return {
        "n": group.n,
        "total_ms": spread(group.total) | {"histogram": histogram(group.total)},
        "ttft_ms": spread(group.ttft),
        "tpot_ms": spread(group.tpot),
        "stages": {
            stage: {"mean_ms": share(ms, group.n), "share": share(ms, total_ms)}
            for stage, ms in zip(STAGES, group.stage_ms, strict=True)
        },
        "unbalanced": group.unbalanced,
        "routes": dict(group.routes.most_common()),
        "reasons": dict(group.reasons.most_common()),
        "prompt": {"reused_tokens": group.reused_tokens, "new_tokens": group.new_tokens},
        "drafting": describe_drafting(group),
        "by_source": _by_source(group),
        "by_match": _by_match(group),
        "output_tokens": spread(np.repeat(np.arange(LONGEST + 1), group.text_tokens))
        | {"histogram": length_bins(group.text_tokens)},
        "outcomes": describe_outcomes(group),
        "saving": describe_saving(group),
        "sampling": dict(group.sampling.most_common()),
        "batch_size": {str(size): n for size, n in sorted(group.batch_size.items())},
        "oom_count": group.oom_count,
        "device_memory_bytes": group.device_memory_bytes or None,
    }


def describe_drafting(group: Group) -> dict[str, Any]:
    """Tokens per forward measured and expected, acceptance, and what drafting and verifying cost."""
    rejections, passes = int(group.rejected_depth.sum()), counted(group.passes)
    drafts = int(group.passes[2:].sum())
    alpha = acceptance_alpha(group.accepted, rejections)
    draft_ms, verify_ms = group.stage_ms[STAGES.index("draft_ms")], group.stage_ms[STAGES.index("verify_ms")]
    expected = expected_tokens_per_forward(alpha or 0.0, passes)
    return {
        "forwards": group.forwards,
        "committed": group.committed,
        "tokens_per_forward": share(group.committed, group.forwards),
        "expected_tokens_per_forward": expected,
        "drafted": group.drafted,
        "accepted": group.accepted,
        "acceptance_rate": share(group.accepted, group.drafted),
        "alpha": alpha,
        "drafts": drafts,
        "drafts_failed": rejections,
        "mean_draft_length": share(group.drafted, drafts),
        "mean_accepted_length": share(group.accepted, drafts),
        "rejected_depth": {str(depth): n for depth, n in counted(group.rejected_depth).items()},
        "passes_by_positions": {str(m): n for m, n in passes.items()},
        "draft_share": share(draft_ms, sum(group.stage_ms)),
        "verify_share": share(verify_ms, sum(group.stage_ms)),
        "unspeculated_requests": group.unspeculated,
    }


def describe_outcomes(group: Group) -> dict[str, Any]:
    """What became of the answers that had text; an answer counts once, under its best outcome."""
    counts = {name: group.outcomes[name] for name in ("shown", *reversed(OUTCOME_RANK))}
    decided = sum(group.outcomes[name] for name in OUTCOME_RANK)
    taken = group.characters["taken"]
    return {
        "offered": group.offered,
        **counts,
        "undecided": group.offered - decided,
        "shown_share": share(counts["shown"], group.offered),
        "taken_share_of_shown": share(counts["accepted"] + counts["partial"], counts["shown"]),
        "offered_characters": group.offered_characters,
        "taken_characters": taken,
        "kept_share": share(group.characters["kept"], group.characters["checked"]),
    }


def describe_saving(group: Group) -> dict[str, Any]:
    """What the same answers would have cost without speculation: the estimate, and its check by sampling."""
    measured = quotient_interval(group.sampled_off, group.sampled_on)
    estimate, on = group.sampled_estimate.ratio, group.sampled_on.ratio
    return {
        "estimated_requests": group.estimated,
        "with_ms": group.with_ms,
        "without_ms": group.without_ms,
        "saved_ms": group.without_ms - group.with_ms,
        "speedup": share(group.without_ms, group.with_ms),
        "decode_speedup": share(group.decode_without_ms, group.decode_with_ms),
        "total_ms_without": spread(group.without),
        "sampled": {
            "on": group.sampled_on.n,
            "off": group.sampled_off.n,
            "measured_decode_speedup": dict(zip(("value", "low", "high"), measured, strict=True))
            if measured
            else None,
            "estimated_decode_speedup": estimate / on if estimate is not None and on else None,
        },
    }


def describe_costs(table: CostTable) -> dict[str, Any]:
    """t(m) as measured, and the α from which each draft length pays."""
    return {
        "positions": list(table.measured),
        "pass_ms": list(table.measured.values()),
        "break_even_alpha": {
            str(length): break_even_alpha(length, table(length + 1) / table(1))
            for length in DRAFT_LENGTHS
            if length + 1 <= max(table.measured)
        },
    }


def spread(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """n, mean and percentiles, as numpy's default (linear) method gives them."""
    if not len(values):
        return {"n": 0, "mean": None, **{f"p{q}": None for q in PERCENTILES}}
    column = np.asarray(values, dtype=float)
    points = np.percentile(column, PERCENTILES)
    named = {f"p{q}": float(point) for q, point in zip(PERCENTILES, points, strict=True)}
    return {"n": len(column), "mean": float(column.mean()), **named}


def histogram(values: Sequence[float]) -> list[dict[str, Any]]:
    """Counts between fixed edges, roughly logarithmic; the last bin is open."""
    counts, _ = np.histogram(np.asarray(values, dtype=float), [*LATENCY_EDGES_MS, np.inf])
    uppers = [*LATENCY_EDGES_MS[1:], None]
    return [
        {"from": low, "to": high, "n": int(n)}
        for low, high, n in zip(LATENCY_EDGES_MS, uppers, counts, strict=True)
    ]


def length_bins(lengths: np.ndarray) -> list[dict[str, Any]]:
    """Counts of output lengths in powers of two: 1, 2–3, 4–7 …"""
    bins: Counter[int] = Counter()
    for length, n in counted(lengths).items():
        bins[length.bit_length()] += n
    return [{"from": 1 << digits - 1, "to": (1 << digits) - 1, "n": bins[digits]} for digits in sorted(bins)]


def counted(counts: np.ndarray) -> dict[int, int]:
    """The positions of counts that have any."""
    return {int(position): int(counts[position]) for position in np.flatnonzero(counts)}


def rates(drafted: int, accepted: int) -> dict[str, Any]:
    """Drafted, accepted and their ratio."""
    return {"drafted": drafted, "accepted": accepted, "acceptance_rate": share(accepted, drafted)}


def share(part: float, whole: float) -> float | None:
    """A ratio, None where there is nothing to divide by."""
    return part / whole if whole else None


def _by_source(group: Group) -> dict[str, dict[str, Any]]:
    totals = {source: (sum(sums[::2]), sum(sums[1::2])) for source, sums in group.by_match.items()}
    return {
        source: rates(*totals[source]) for source in sorted(totals, key=lambda source: -totals[source][0])
    }


def _by_match(group: Group) -> dict[str, dict[str, Any]]:
    """Source -> lower bound of the match length's bucket -> rates."""
    return {
        source: {
            str(1 << bucket - 1 if bucket else 0): rates(*sums[2 * bucket : 2 * bucket + 2])
            for bucket in range(MATCH_BUCKETS)
            if sums[2 * bucket]
        }
        for source, sums in sorted(group.by_match.items())
    }
