"""What a pass of the int8 engine costs beside its rivals, and whether everything that must hold does.

``python -m benchmarks.engine [--full] [--only PARTS] [--json FILE]`` runs the parts and ends with a line for each
bound: its value, of how many, the limit, ok or MISS. Parts: what a pass costs beside llama.cpp and transformers
(each engine a process of its own, asked in turn within one run; a ratio is the median over rounds, with the middle
half of the rounds as its interval), row invariance, edits on a warm cache, texts with drafts on and off, error
against float32, what a keystroke evaluates, cancellation, start and memory of the server, trees in the replay, wrong
use. With ``--json`` the parts that are not run are read from the file, so that a run can be taken up again.
By default fewer texts are tried than with ``--full``, and the lines say how many. llama.cpp comes with the extra
``bench``, or in another interpreter (``--llama-python``): build it for this machine, ``CMAKE_ARGS=-DGGML_NATIVE=ON``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.engine_bounds import SECOND_MODEL, bounds_for
from benchmarks.engine_costs import OWN, RIVALS, ROOT, costs, gguf_of

Report = dict[str, Any]
Counts = dict[str, int | None]
QUICK: Counts = {"rounds": 7, "scripts": 40, "prompts": 20, "truth": 600, "model": 60, "measured": 400}
FULL: Counts = {"rounds": 15, "scripts": 100, "prompts": 100, "truth": None, "model": 200, "measured": None}


class Parts:
    """The measurements, by name; each in processes of its own."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._model: str = arguments.model
        self._threads: int = arguments.threads
        self._arguments = arguments
        self._counts: Counts = FULL if arguments.full else QUICK

    def all(self) -> dict[str, Callable[[], Report]]:
        """The parts in the order they are run."""
        return {
            "costs": self.costs,
            "ready": self.ready,
            "invariance": self.invariance,
            "cancellation": lambda: self._run("engine_conduct", "cancellation", self._model),
            "wrong-use": lambda: self._run("engine_conduct", "wrong-use", self._model),
            "keystrokes": self.keystrokes,
            "error": self.error,
            "edits": self.edits,
            "trees": self.trees,
            "on-off": self.on_off,
        }

    def costs(self) -> Report:
        """Pass and prefill times beside the rivals that can be had."""
        gguf = self._arguments.gguf or gguf_of(self._model)
        rivals = {
            kind: (str(gguf), self._arguments.llama_python)
            if kind == "llama"
            else (self._model, sys.executable)
            for kind in self._arguments.rivals.split(",")
            if kind != "llama" or gguf is not None
        }
        return costs(self._model, rivals, self._counts["rounds"] or 0, self._threads)

    def ready(self) -> Report:
        """The server's start and its memory; weights cached."""
        found = self._run("engine_server", self._model)
        return {**found, "peak_gb": round(found["peak_bytes"] / 1e9, 3)}

    def invariance(self) -> Report:
        """The engine's own description of itself, row invariance run now."""
        from cache.models import resolve
        from speculation.verifier.choice import choose, describe

        found = describe(choose("cpu", OWN, "auto", resolve(self._model)))
        return {**found, "different": sum(not same for same in found["row-invariant"].values())}

    def edits(self) -> Report:
        """Logits after random edits on a warm cache against those of a fresh process."""
        scripts = str(self._counts["scripts"])
        warm, fresh = (
            self._run("engine_exactness", "edits", self._model, kept, scripts) for kept in ("warm", "fresh")
        )
        return {"scripts": len(fresh), "different": sum(a != b for a, b in zip(warm, fresh, strict=True))}

    def error(self) -> Report:
        """Distance from float32, bfloat16's beside it."""
        models = dict.fromkeys((self._model, SECOND_MODEL))
        return {model: self._run("engine_exactness", "error", model) for model in models}

    def on_off(self) -> Report:
        """Texts with forced drafts against texts without, on hunks of the replay."""
        prompts = str(self._counts["prompts"])
        return self._report("exactness", "--source", "edits", "--prompts", prompts, "--model", self._model)[
            "results"
        ]

    def keystrokes(self) -> Report:
        """New tokens a keystroke; no model is needed."""
        found = self._report("keystrokes", "--model", self._model)
        back = found["back_at_a_place"]
        return {
            "n": found["keystrokes"],
            "mean": found["new_tokens_mean"],
            "return": max(back, default=None),
            "returns": len(back),
            "keys": found["keys"],
        }

    def trees(self) -> Report:
        """Tokens a forward with trees, and under measured costs the gain with trees against without."""
        found = {
            stream: self._replay("--trees", "--stream", stream, *more, limit=stream)
            for stream, more in (("model", ("--engine", OWN, "--generate")), ("truth", ()))
        }
        measured = ("--cost", "measured", "--engine", OWN)
        chains = self._replay(*measured, limit="measured")
        found["measured"] = self._replay(*measured, "--trees", limit="measured")
        gain = found["measured"]["speedup"]["value"] / chains["speedup"]["value"]
        return {**found, "measured, chains": chains, "with / without": round(gain, 4)}

    def _replay(self, *options: str, limit: str) -> Report:
        count = self._counts[limit]
        limited = () if count is None else ("--limit", str(count))
        found = self._report("replay", "--quick", "--model", self._model, *options, *limited)
        return {name: found[name] for name in ("n", "tokens_per_forward", "speedup")}

    def _report(self, module: str, *options: str) -> Report:
        """What a command of `benchmarks` writes to its JSON file; missing its own bounds is no failure here."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            done = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{module}", *options, "--json", str(path)],
                cwd=ROOT,
                env=self._environment(),
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            if not path.exists():
                raise RuntimeError(f"benchmarks.{module} ended with {done.returncode} and without a report")
            return json.loads(path.read_text(encoding="utf-8"))

    def _run(self, module: str, *rest: str) -> Any:
        """What a part prints in a fresh process."""
        command = [sys.executable, "-m", f"benchmarks.{module}", *rest]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment(), stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": str(self._threads)}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the parts and prints the bounds; 1 when one is missed or not measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="read parts not run from it, write the figures"
    )
    parser.add_argument("--full", action="store_true", help="as many texts as the bounds name")
    parser.add_argument("--only", help="parts to run, comma separated (default: all); none: only read")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-q4")
    parser.add_argument(
        "--gguf", type=Path, help="the file llama.cpp reads (default: what the model was made from)"
    )
    parser.add_argument(
        "--llama-python", default=sys.executable, help="an interpreter that has llama-cpp-python"
    )
    parser.add_argument("--rivals", default=RIVALS, help=f"comma separated, of {RIVALS} (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args(argv)
    parts = Parts(arguments).all()
    wanted = list(parts) if arguments.only is None else [p for p in arguments.only.split(",") if p != "none"]
    if unknown := set(wanted) - set(parts):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    report = run(arguments, {name: parts[name] for name in parts if name in wanted})
    for bound, line in zip(bounds_for(arguments.model), report["bounds"], strict=True):
        print(bound.text(line))
    print(
        f"{'ok  ' if report['gpu'] else 'note'}  benchmarks.gpu on a GPU: {report['gpu'] or 'it has not been run'}"
    )
    return 0 if all(line["ok"] for line in report["bounds"]) else 1


def run(arguments: argparse.Namespace, parts: dict[str, Callable[[], Report]]) -> Report:
    """The report, written after every part; one that fails says why and is not measured."""
    import torch

    torch.set_num_threads(arguments.threads)
    report: Report = {}
    if arguments.json and arguments.json.exists():
        report = json.loads(arguments.json.read_text(encoding="utf-8"))
        if report.get("model") != arguments.model:
            report = {}
    report["machine"] = {
        "processor": platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": arguments.threads,
        "torch": torch.__version__,
    }
    report["model"] = arguments.model
    gpu = ROOT / "benchmarks" / "gpu.json"
    report["gpu"] = json.loads(gpu.read_text("utf-8"))["machine"].get("card") if gpu.exists() else None
    for name, part in [*parts.items(), ("", None)]:
        if part is not None:
            began = time.perf_counter()
            try:
                report[name] = part()
            except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
                report.pop(name, None)
                print(f"{name} could not be measured: {error}", file=sys.stderr)
            else:
                print(f"{name} ({time.perf_counter() - began:.0f} s): {json.dumps(report[name])}", flush=True)
        report["bounds"] = [bound.line(report) for bound in bounds_for(arguments.model)]
        if arguments.json:
            arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


if __name__ == "__main__":
    sys.exit(main())
