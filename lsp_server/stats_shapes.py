"""The drawings of the HTML page: SVG without text, so that it stretches to any width; labels are HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

LOWEST_MS, HIGHEST_MS = 0.1, 10_000.0  # the latency scale: five decades


def bar(share: float) -> str:
    """A bar of ``share`` (0–1) of the width."""
    return _svg(f'<rect class="mark" width="{100 * share:.2f}" height="10" rx="1"/>', "0 0 100 10", "10px")


def stack(parts: Sequence[tuple[str, float, str]]) -> str:
    """A stacked bar of (colour name, share of the full width, tooltip)."""
    left, rects = 0.0, []
    for colour, share, title in parts:
        width = 100 * share
        shape = f'<rect style="fill:var(--{colour})" x="{left:.3f}" width="{width:.3f}" height="12">'
        rects.append(f"{shape}<title>{escape(title)}</title></rect>")
        left += width
    return _svg("".join(rects), "0 0 100 12", "12px")


def latency_range(p50: float, p95: float, p99: float) -> str:
    """p50 as a block, a line on to p99 with a tick at p95, on the logarithmic latency scale."""
    middle, high, top = map(latency_place, (p50, p95, p99))
    return _svg(
        "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="14"/>' for x in range(0, 101, 20))
        + f'<line class="wire" x1="{middle:.2f}" x2="{top:.2f}" y1="7" y2="7"/>'
        + f'<line class="wire" x1="{high:.2f}" x2="{high:.2f}" y1="3" y2="11"/>'
        + f'<rect class="mark" x="{max(0, middle - 0.8):.2f}" y="2" width="1.6" height="10"/>',
        "0 0 100 14",
        "14px",
    )


def latency_place(ms: float) -> float:
    """Where a time stands on the latency scale, 0–100."""
    clamped = min(max(ms, LOWEST_MS), HIGHEST_MS)
    return 100 * math.log(clamped / LOWEST_MS) / math.log(HIGHEST_MS / LOWEST_MS)


def lines(xs: Sequence[float], *series: Sequence[float], label: str) -> str:
    """Lines over ``xs`` from zero to the largest value; the second one is dashed."""
    top = max((y for ys in series for y in ys), default=0) or 1.0
    low, width = min(xs), (max(xs) - min(xs)) or 1.0
    shapes = [f'<line class="grid" x1="0" x2="100" y1="{y}" y2="{y}"/>' for y in (0, 25, 50, 75, 100)]
    for ys, kind in zip(series, ("wire", "wire low"), strict=False):
        places = [(100 * (x - low) / width, 100 - 100 * y / top) for x, y in zip(xs, ys, strict=True)]
        if len(places) == 1:
            places = [(0.0, places[0][1]), (100.0, places[0][1])]
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in places)
        shapes.append(f'<polyline class="{kind}" points="{points}"/>')
    return _svg("".join(shapes), "-1 -2 102 104", "160px", label)


def _svg(content: str, view: str, height: str, label: str = "") -> str:
    told = f'role="img" aria-label="{escape(label)}"' if label else 'aria-hidden="true"'
    return f'<svg viewBox="{view}" preserveAspectRatio="none" style="height:{height}" {told}>{content}</svg>'
