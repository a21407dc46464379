"""The command line of the comparison."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from benchmarks.engine_costs import gguf_of
from benchmarks.packages import Release, benchmark_cache
from benchmarks.peers import bounds, plan, report
from benchmarks.peers.figures import workload_figures
from benchmarks.peers.process import ROOT, PeerError
from benchmarks.peers.results import Results, code_hash, key_of
from benchmarks.peers.run import Runner
from benchmarks.peers.tasks import Workloads
from benchmarks.replay import MODEL, RELEASES, tokenizer_of
from cache.models import resolve
from speculation.families import markers_for

LLAMA_PYTHON_VARIABLE = "SPEC_COMPLETE_LLAMA_PYTHON"
console = Console(stderr=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what was asked for and prints the bounds; 1 when one that was measured is missed."""
    options = arguments(argv)
    if options.report is not None:
        report.write(json.loads(options.report.read_text(encoding="utf-8")), options.quality)
        return 0
    made = compare(options)
    text = json.dumps(made, indent=1) + "\n"
    last = benchmark_cache() / "peers" / "last.json"
    for path in filter(None, (last, options.json)):
        path.write_text(text, encoding="utf-8")
    for line in made["bounds"]:
        print(bounds.as_text(line))
    console.print(f"figures: {last}")
    if options.plot is not None:
        from benchmarks.peers import plots

        plots.draw(made, options.plot)
    return 1 if any(line["ok"] is False for line in made["bounds"]) else 0


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Measures what is not known yet and gathers all figures."""
    names = plan.chosen(options.workload)
    peers = plan.Peers(
        options.model, options.engine, options.threads, options.llama_python, gguf_of(options.model)
    )
    wanted = [peer for peer in options.peers.split(",") if peer]
    setting = {**configuration(options), "peers": peers.versions(wanted)}
    folder = benchmark_cache() / "peers"
    folder.mkdir(exist_ok=True)
    path = folder / f"{key_of(setting)}.jsonl"
    if options.again:
        path.unlink(missing_ok=True)
    results = Results(path)
    tokenizer = tokenizer_of(None, options.model)
    markers = markers_for(tokenizer, options.model)
    makers = Workloads(tokenizer, markers, [Release.parse(text) for text in options.packages.split(",")])
    console.print(
        f"about {plan.estimate_minutes(names, wanted, options.limit):.0f} minutes where nothing is known"
    )
    console.print(f"each result is kept in {path}")
    workloads: dict[str, Any] = {}
    with peers, progress() as bars:
        running = Runner(peers.start(wanted), tokenizer, markers.end_ids, results)
        for name in names:
            began = time.monotonic()
            if name in plan.COMPLETIONS:
                workload = makers.make(name)
                parts = plan.plan_of(name, peers.started, options.limit)
                total = min(len(workload.tasks), max((p.limit for p in parts.values()), default=0))
                bar = bars.add_task(name, total=total)
                records = running.run(name, workload, parts, partial(moved, bars, bar))
                workloads[name] = workload_figures(records)
            elif name == "truth":
                workloads[name] = truth(results, options)
            else:
                from benchmarks.peers import typing_run

                workloads[name] = typing_run.run(peers, makers, results, running, options, bars)
            console.print(f"{name}: {(time.monotonic() - began) / 60:.1f} minutes")
        about = {name: worker.about for name, worker in peers.started.items()}
    made: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": machine(options.threads),
        "configuration": setting,
        "peers": about,
        "not_started": peers.failures,
        "workloads": workloads,
    }
    made["bounds"] = bounds.judged(made)
    return made


def truth(results: Results, options: argparse.Namespace) -> dict[str, Any]:
    """Tokens per forward on what the developers wrote, by the replay: no model, every hunk."""
    known = results.get("truth", "all")
    if known is None:
        command = [sys.executable, "-m", "benchmarks.replay", "--stream", "truth", "--quick"]
        command += ["--packages", options.packages, "--model", options.model]
        if options.limit is not None:
            command += ["--limit", str(options.limit)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(done.stdout)
        known = {"workload": "truth", "task": "all", "limit": options.limit, "results": figures}
        if options.limit is None:
            results.add(known)
    figures = known["results"]
    against = {**figures["forwards_against_transformers_prompt_lookup"], "n": figures["n"]}
    return {**figures, "forwards_against_transformers_prompt_lookup": against}


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """What decides the figures, beside the peers' versions. Not the commit: what the files say counts."""
    return {
        "model": resolve(options.model).hash,
        "engine": options.engine,
        "threads": options.threads,
        "packages": options.packages,
        "code": code_hash(ROOT),
        "machine": machine(options.threads)["processor"],
    }


def machine(threads: int) -> dict[str, Any]:
    """What it ran on."""
    import torch

    processor = platform.processor() or platform.machine()
    names = Path("/proc/cpuinfo")
    if names.exists():
        rows = [row.split(":", 1)[1].strip() for row in names.read_text().splitlines() if "model name" in row]
        processor = rows[0] if rows else processor
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "system": platform.system(),
        "python": platform.python_version(),
        "spec_complete": importlib.metadata.version("spec-complete"),
    }


def moved(bars: Progress, bar: TaskID, count: int) -> None:
    """Shows how many tasks are done."""
    bars.update(bar, completed=count)


def progress() -> Progress:
    """A bar for each workload."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Compares with what people would use instead."
    )
    parser.add_argument("--workload", default="all", help=f"comma separated, of {', '.join(plan.WORKLOADS)}")
    parser.add_argument("--limit", type=int, help="at most so many tasks of each workload and peer")
    parser.add_argument("--peers", default=",".join(plan.PEERS), help="comma separated; ours is always there")
    parser.add_argument("--again", action="store_true", help="forget what was measured in this configuration")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--engine", default="auto", help="our engine")
    parser.add_argument("--threads", type=int, default=2)
    default = ",".join(f"{r.name}=={r.old}:{r.new}" for r in RELEASES)
    parser.add_argument("--packages", default=default, help="NAME==OLD:NEW,…")
    parser.add_argument(
        "--llama-python",
        default=os.environ.get(LLAMA_PYTHON_VARIABLE, sys.executable),
        help=f"an interpreter that has llama-cpp-python (or {LLAMA_PYTHON_VARIABLE})",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw the figures")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="measure nothing: write the README's tables from figures"
    )
    parser.add_argument("--quality", type=Path, metavar="FILE", help="with --report: figures of infilling")
    return parser.parse_args(argv)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(str(error))
