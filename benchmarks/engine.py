"""What a pass of the int8 engine costs beside its rivals, and whether what it computes is right.

``python -m benchmarks.engine [--json FILE]``: t(m) for m = 1…64 positions after 512, prefill, ratios to
llama.cpp on the same GGUF file and to transformers, ready time and memory, row invariance, error against
float32. Every engine is a process of its own, asked in turn within one run; a ratio is the median over
rounds, with the middle half of the rounds as its interval. llama.cpp comes with the extra ``bench``, or in
another interpreter (``--llama-python``): build it for this machine, ``CMAKE_ARGS=-DGGML_NATIVE=ON``. Ends
with the bounds that must hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIZES = (1, 2, 4, 8, 16, 32, 64)
PREFILL = 512
RIVALS = "llama,transformers-bfloat16,transformers-float32"
OWN = "int8"
SECOND_MODEL = "smollm2-135m-q4"
READY = """
import json, resource, sys, time
from speculation.loading import load_engine
from speculation.request import CompletionRequest
completer = load_engine(sys.argv[1], "cpu", "int8", "auto")
ready = time.time()
lines = "".join(f"def f{i}(a, b):\\n    return a + b * {i}\\n\\n" for i in range(120))
generation = completer.start(CompletionRequest(lines + "def g(", len(lines) + 6, max_tokens=16))
while generation.step():
    pass
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"ready": ready, "peak_bytes": peak, "prompt_tokens": generation.metrics.prompt_tokens}))
"""

Report = dict[str, Any]


class Worker:
    """An engine in a process of its own."""

    def __init__(self, kind: str, model: str, threads: int, python: str = sys.executable) -> None:
        self.kind = kind
        script = Path(__file__).with_name("engine_worker.py")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [python, str(script), kind, model, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def ready(self) -> Report | None:
        """Waits until the engine is loaded; None when it cannot be."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        return json.loads(line) if line else None

    def ms(self, **request: int) -> float:
        """Milliseconds of one request."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())["ms"]

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


def costs(model: str, rivals: dict[str, tuple[str, str]], rounds: int, threads: int) -> Report:
    """Pass and prefill times of every engine, interleaved; ``rivals``: kind to (model or file,
    interpreter)."""
    workers, about = [], {}
    for kind, (what, python) in {OWN: (model, sys.executable), **rivals}.items():
        worker = Worker(kind, what, threads, python)
        if (started := worker.ready()) is None:
            print(f"{kind} does not start and is left out", file=sys.stderr)
            continue
        workers.append(worker)
        about[kind] = started["about"]
    requests = {f"t({m})": {"pass": m} for m in SIZES} | {"prefill": {"prefill": PREFILL}}
    times: dict[str, dict[str, list[float]]] = {w.kind: {name: [] for name in requests} for w in workers}
    for round_ in range(-1, rounds):  # the first round warms up
        for name, request in requests.items():
            if name == "prefill" and round_ >= max(2, rounds // 3):
                continue
            for worker in workers:
                ms = worker.ms(**request)
                if round_ >= 0:
                    times[worker.kind][name].append(ms)
    for worker in workers:
        worker.close()
    return {
        "ms": {kind: {n: round(median(ms), 2) for n, ms in by.items()} for kind, by in times.items()},
        "ratio": {
            kind: {n: interval(times[OWN][n], by[n]) for n in requests}
            for kind, by in times.items()
            if kind != OWN
        },
        "about": {kind: text for kind, text in about.items() if text},
    }


def interval(own: list[float], other: list[float]) -> list[float]:
    """Median and quartiles of the rounds' ratios."""
    ratios = sorted(a / b for a, b in zip(own, other, strict=True))
    return [round(ratios[len(ratios) * part // 4], 3) for part in (2, 1, 3)]


def ready(model: str, threads: int) -> Report:
    """Seconds from process start to a loaded engine, and the peak memory after a completion; weights
    cached."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    best: Report = {}
    for _ in range(3):
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-c", READY, model],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        found["ready_s"] = round(found.pop("ready") - began, 2)
        if not best or found["ready_s"] < best["ready_s"]:
            best = found
    return best


def exactness(part: str, model: str, *rest: str) -> Any:
    """A part of `benchmarks.engine_exactness`, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.engine_exactness", part, model, *rest]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def edits(model: str, scripts: int) -> Report:
    """Logits after random edits on a warm cache against those of a fresh process."""
    warm, fresh = (exactness("edits", model, kept, str(scripts)) for kept in ("warm", "fresh"))
    return {"scripts": len(fresh), "different": sum(a != b for a, b in zip(warm, fresh, strict=True))}


def invariance(model: str) -> Report:
    """The engine's own description of itself, row invariance run now."""
    from cache.models import resolve
    from speculation.verifier.choice import choose, describe

    return describe(choose("cpu", OWN, "auto", resolve(model)))


def bounds(report: Report) -> list[Report]:
    """What must hold, with the value measured; a line that was not measured has no value and is not ok."""
    lines: list[tuple[str, Any, str, float]] = []
    ratio = report.get("costs", {}).get("ratio", {})
    llama, bfloat16 = ratio.get("llama", {}), ratio.get("transformers-bfloat16", {})
    for name, limit in (("t(1)", 1.05), ("t(8)", 0.45), ("t(32)", 0.5), ("prefill", 0.6)):
        lines.append((f"{name} / llama.cpp", llama.get(name, [None])[0], "<=", limit))
    lines.append(("t(1) / transformers bfloat16", bfloat16.get("t(1)", [None])[0], "<=", 0.33))
    found = report.get("invariance", {}).get("row-invariant", {})
    lines.append(("kinds of passes whose bits differ", sum(not same for same in found.values()), "<=", 0))
    lines.append(("edit scripts whose bits differ", report.get("edits", {}).get("different"), "<=", 0))
    for model, errors in report.get("error", {}).items():
        lines.append((f"argmax equal to float32, {model}", errors[OWN]["argmax_equal"], ">=", 0.955))
        lines.append((f"mean KL from float32 (nats), {model}", errors[OWN]["mean_kl"], "<=", 0.01))
    started = report.get("ready", {})
    lines.append(("seconds from process start to ready", started.get("ready_s"), "<=", 5.0))
    lines.append(("peak memory (GB)", started.get("peak_bytes", 0) / 1e9 or None, "<=", 1.7))
    chunk = report.get("invariance", {}).get("prefill chunk ms")
    lines.append(("a prefill chunk (ms)", chunk, "<=", 100.0))
    return [
        {
            "name": name,
            "value": value if value is None else round(value, 4),
            "limit": f"{sign} {limit}",
            "ok": value is not None and (value <= limit if sign == "<=" else value >= limit),
        }
        for name, value, sign, limit in lines
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs every part and prints the bounds; 1 when one is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON too")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-q4")
    parser.add_argument(
        "--gguf", type=Path, help="the file llama.cpp reads (default: the one the model was made from)"
    )
    parser.add_argument(
        "--llama-python", default=sys.executable, help="an interpreter that has llama-cpp-python"
    )
    parser.add_argument("--rivals", default=RIVALS, help=f"comma separated, of {RIVALS} (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scripts", type=int, default=100, help="random edits on a warm cache")
    parser.add_argument(
        "--only", help="parts to run, comma separated: costs, ready, invariance, edits, error"
    )
    arguments = parser.parse_args(argv)
    parts = (
        set(arguments.only.split(","))
        if arguments.only
        else {"costs", "ready", "invariance", "edits", "error"}
    )

    import torch

    torch.set_num_threads(arguments.threads)
    report: Report = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "threads": arguments.threads,
            "torch": torch.__version__,
        },
        "model": arguments.model,
    }
    if "ready" in parts:
        report["ready"] = show("ready", ready(arguments.model, arguments.threads))
    if "costs" in parts:
        gguf = arguments.gguf or gguf_of(arguments.model)
        rivals = {
            kind: (str(gguf), arguments.llama_python)
            if kind == "llama"
            else (arguments.model, sys.executable)
            for kind in arguments.rivals.split(",")
            if kind != "llama" or gguf is not None
        }
        report["costs"] = show("costs", costs(arguments.model, rivals, arguments.rounds, arguments.threads))
    if "invariance" in parts:
        report["invariance"] = show("invariance", invariance(arguments.model))
    if "edits" in parts:
        report["edits"] = show("edits", edits(arguments.model, arguments.scripts))
    if "error" in parts:
        models = dict.fromkeys((arguments.model, SECOND_MODEL))
        report["error"] = show("error", {model: exactness("error", model) for model in models})
    report["bounds"] = bounds(report)
    for line in report["bounds"]:
        print(f"{'ok  ' if line['ok'] else 'MISS'}  {line['name']}: {line['value']} (limit {line['limit']})")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if all(line["ok"] for line in report["bounds"]) else 1


def show(name: str, part: Report) -> Report:
    """Prints a part as it is done."""
    print(f"{name}: {json.dumps(part)}", flush=True)
    return part


def gguf_of(model: str) -> Path | None:
    """The GGUF file that a catalogue model was converted from."""
    from cache.paths import models_dir

    return next(iter(sorted((models_dir() / model).glob("*.gguf"))), None)


if __name__ == "__main__":
    sys.exit(main())
