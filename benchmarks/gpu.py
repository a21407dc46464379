"""What the graphs engine costs on one CUDA card: ``python -m benchmarks.gpu [--model DIR] [--json FILE]``.

**This has not been run on a GPU yet**: only ``--device cpu --tiny``, which runs every section on a small
shape to show that the command works, and whose figures mean nothing. Under 8 minutes on one card, no network;
imports torch, transformers, numpy and this project's own packages. Without ``--model`` the weights are
random, in the 1.5B shape: speed is the same, but near ties are far more common than in a trained model, so
differences between texts are overstated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks import gpu_sections as sections
from benchmarks.gpu_measures import wait
from benchmarks.gpu_sections import Run, Section
from speculation.verifier.base import VerifierError

LIMIT_S = 480.0

SECTIONS: dict[str, Callable[[Run], Section]] = {
    "machine": sections.machine,
    "ready": sections.ready,
    "passes": sections.passes,
    "prefill": sections.prefill,
    "decode": sections.decode,
    "forced_acceptance": sections.forced_acceptance,
    "one_shape": sections.one_shape,
    "precision": sections.precision,
    "attention": sections.attention,
    "quantised": sections.quantised,
}


def bounds(report: Section) -> list[Section]:
    """What must hold, with the value measured; only what was measured is listed."""
    lines = [("seconds", report["seconds"], LIMIT_S, report["seconds"] <= LIMIT_S)]
    if "texts_that_differ" in (shape := report.get("one_shape", {})):
        differ = shape["texts_that_differ"]
        lines.append(("texts that drafts change, one shape", differ, 0, differ == 0))
    if report["machine"].get("card"):
        context = str(sections.CONTEXTS[0])
        if context in report.get("passes", {}).get("ms", {}):
            one = report["passes"]["ms"][context]["1"]
            ratio = one["best"]["median"] / one["transformers"]["median"]
            lines.append(("1 position, captured / transformers", ratio, 0.5, ratio <= 0.5))
        if context in report.get("decode", {}):
            share = report["decode"][context]["share_of_read_bandwidth"]
            lines.append(("decode, share of the measured read bandwidth", share, 0.6, share >= 0.6))
    return [{"name": name, "value": value, "limit": limit, "ok": ok} for name, value, limit, ok in lines]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs every section and prints the report as JSON; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a local model directory (safetensors); default: random weights")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small shape: shows that the command works")
    parser.add_argument("--json", help="also write the report to this file")
    arguments = parser.parse_args(argv)
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device; --device cpu --tiny shows that the command works", file=sys.stderr)
        return 2
    run = Run(arguments.model, torch.device(arguments.device), arguments.tiny)
    report: Section = {}
    for name, section in SECTIONS.items():
        if run.seconds() > LIMIT_S * 0.8:
            report[name] = {"skipped": f"after {run.seconds():.0f} s"}
            continue
        print(f"{name} ({run.seconds():.0f} s)", file=sys.stderr)
        try:
            report[name] = section(run)
        except (torch.OutOfMemoryError, VerifierError) as error:
            report[name] = {"skipped": str(error)}
        wait(run.device)
    report["seconds"] = round(run.seconds(), 1)
    report["bounds"] = bounds(report)
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 0 if all(line["ok"] for line in report["bounds"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
