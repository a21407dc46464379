"""The figures as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot

Report = Mapping[str, Any]
COLOURS = {"ours": "#2a6f97", "llama": "#e07a5f", "transformers": "#8d99ae"}


def draw(report: Report, folder: Path) -> list[Path]:
    """Draws what was measured into a folder; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "spec-complete"  # the same figures give the same file
    drawn = []
    for name, figures in report["workloads"].items():
        if name in ("truth", "typing", "noise") or not figures["none"]["systems"]:
            continue
        path = folder / f"{name}.svg"
        bars(name, figures["none"]["systems"], path)
        drawn.append(path)
    if len(report["workloads"].get("typing", {}).get("waits", {})) > 0:
        path = folder / "typing.svg"
        waits(report["workloads"]["typing"]["waits"], path)
        drawn.append(path)
    return drawn


def bars(name: str, systems: Report, path: Path) -> None:
    """Median time of a completion, prefill and decode, by system."""
    names = list(systems)[::-1]
    figure, axes = pyplot.subplots(figsize=(7, 0.4 * len(names) + 1.1))
    for at, system in enumerate(names):
        row, colour = systems[system], COLOURS.get(system.partition("/")[0], "#555555")
        total, decode = row["total_ms"]["p50"], row["decode_ms"]["p50"]
        axes.barh(at, total - decode, color=colour, alpha=0.4)
        axes.barh(at, decode, left=total - decode, color=colour)
        axes.text(
            total, at, f" {row['tokens_per_forward']['value']:.2f} tokens / forward", va="center", fontsize=7
        )
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel("ms of a completion, median: prefill (light) and decode")
    axes.set_title(name, fontsize=9)
    axes.margins(x=0.25)
    save(figure, path)


def waits(by_peer: Mapping[str, list[float]], path: Path) -> None:
    """Time to ghost text on the keystrokes that do not follow the text, as a distribution."""
    figure, axes = pyplot.subplots(figsize=(6, 3))
    for peer, times in by_peer.items():
        ordered = sorted(times)
        shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
        axes.step(ordered, shares, where="post", color=COLOURS.get(peer), label=peer)
    axes.set_xlabel("ms to ghost text, keystrokes that do not follow it")
    axes.set_ylabel("share of keystrokes")
    axes.legend(fontsize=8)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Writes a picture without the date it was drawn."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
