"""What must hold, each line with its measured figure.

A ratio is the rival's figure divided by ours: above 1 is in our favour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Figure = Mapping[str, Any]
Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bound:
    """A line: where its figure is in the report, and what it must be."""

    name: str
    path: tuple[str, ...]  # keys from `workloads` down; `BEST` stands for llama.cpp's best mode there
    least: float | None = None
    most: float | None = None
    judged: str = "value"  # or "low", the lower end of the interval


BEST = "llama.cpp's best mode"

BOUNDS = (
    Bound("edits: decode, our own without speculation ÷ ours",
          ("edits", "none", "ratios", "ours/off", "decode"), least=1.75),
    Bound("edits, product's stop rules: decode, our own without speculation ÷ ours",
          ("edits", "product", "ratios", "ours/off", "decode"), least=1.45),
    Bound("edits: decode, transformers' prompt lookup ÷ ours",
          ("edits", "none", "ratios", "transformers/lookup", "decode"), least=3.0),
    Bound("edits: total, llama.cpp's best mode ÷ ours",
          ("edits", "none", "ratios", BEST, "total"), least=1.6),
    Bound("edits: tokens per forward, ours ÷ transformers' prompt lookup, greedy",
          ("edits", "none", "ratios", "transformers/lookup", "forwards"), least=1.25),
    Bound("edits: tokens per forward, ours ÷ transformers' prompt lookup, what the developers wrote",
          ("truth", "forwards_against_transformers_prompt_lookup"), least=1.75),
    Bound("fresh: total, llama.cpp's best mode ÷ ours",
          ("fresh", "none", "ratios", BEST, "total"), least=1.3),
    Bound("noise, forced: decode, our own without speculation ÷ ours, lower end",
          ("noise", "none", "ratios", "ours/off", "decode"), least=0.99, judged="low"),
    Bound("rewrite: decode, our own without speculation ÷ ours",
          ("rewrite", "none", "ratios", "ours/off", "decode"), least=4.0),
    Bound("typing: median ms to ghost text where it follows the text",
          ("typing", "ours", "follows_ms"), most=5.0),
    Bound("typing: median time to ghost text on other keystrokes, ours ÷ llama.cpp with prompt caching",
          ("typing", "others_ratio"), most=0.5),
)  # fmt: skip


def judged(report: Report) -> list[dict[str, Any]]:
    """Every line with its figure; one that was not measured is neither met nor missed (``ok`` is None)."""
    lines = [line(bound, figure_at(report, bound.path)) for bound in BOUNDS]
    return [*lines, differences_line(report)]


def line(bound: Bound, figure: Figure | None) -> dict[str, Any]:
    """One line of the table."""
    limit = f"≥ {bound.least}" if bound.least is not None else f"≤ {bound.most}"
    made = {"name": bound.name, "limit": limit, "judged": bound.judged}
    if figure is None:
        return {**made, "figure": None, "ok": None}
    value = figure[bound.judged]
    ok = value >= bound.least if bound.least is not None else value <= (bound.most or 0.0)
    return {**made, "figure": dict(figure), "ok": bool(ok)}


def figure_at(report: Report, path: tuple[str, ...]) -> Figure | None:
    """The figure at a path below ``workloads``; None where something of it was not measured."""
    at: Any = report.get("workloads", {})
    above: Any = None
    for key in path:
        if key == BEST and isinstance(above, Mapping):
            key = (above.get("best") or {}).get("llama") or BEST
        above = at
        at = at.get(key) if isinstance(at, Mapping) else None
    return at if isinstance(at, Mapping) and at.get("value") is not None else None


def differences_line(report: Report) -> dict[str, Any]:
    """Texts with drafts that were not those without, over all workloads; 0 of 0 is no measurement."""
    counts = [w["text_on_off"] for w in report.get("workloads", {}).values() if "text_on_off" in w]
    compared = sum(count["compared"] for count in counts)
    different = sum(count["different"] for count in counts)
    figure = {"value": different, "low": different, "high": different, "n": compared}
    return {
        "name": "texts of ours that differ with speculation on and off, all workloads",
        "limit": "≤ 0",
        "judged": "value",
        "figure": figure if compared else None,
        "ok": different == 0 if compared else None,
    }


def as_text(made: Mapping[str, Any]) -> str:
    """One line for people."""
    verdict = {True: "pass", False: "MISS", None: "-   "}[made["ok"]]
    figure = made["figure"]
    if figure is None:
        return f"{verdict}  {made['name']}: not measured (limit {made['limit']})"
    return f"{verdict}  {made['name']}: {figure_text(figure)} (limit {made['limit']})"


def figure_text(figure: Figure) -> str:
    """A value with its interval and the number of samples."""
    interval = f" [{figure['low']:g}, {figure['high']:g}]" if figure["low"] != figure["high"] else ""
    return f"{figure['value']:g}{interval}, n {figure['n']}"
