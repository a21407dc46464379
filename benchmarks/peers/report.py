"""The README's part that a run writes: tables between two markers; what stands around them is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import tables

README = Path(__file__).resolve().parent.parent / "README.md"
PLOTS = README.parent / "plots"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write(report: Mapping[str, Any], quality: Path | None, readme: Path = README) -> None:
    """Draws the plots and puts the figures of a run into the README.

    Raises:
        ValueError: the README has no place for them.
    """
    import json

    from benchmarks.peers import plots

    parts = [tables.run(report), tables.bounds(report)]
    parts += [tables.workload(name, figures) for name, figures in report["workloads"].items()]
    if quality is not None:
        parts.append(tables.quality(json.loads(quality.read_text(encoding="utf-8"))))
    drawn = plots.draw(report, PLOTS)
    parts += [f"![{path.stem}](plots/{path.name})" for path in drawn]
    text = readme.read_text(encoding="utf-8")
    readme.write_text(between(text, "\n\n".join(part for part in parts if part)), encoding="utf-8")


def between(text: str, body: str) -> str:
    """``text`` with ``body`` between the markers."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README needs the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}"
