"""What a pass costs beside rivals: every engine a process of its own, asked in turn. Part of `benchmarks.engine`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIZES = (1, 2, 4, 8, 16, 32, 64)
PREFILL = 512
RIVALS = "llama,transformers-bfloat16,transformers-float32"
OWN = "int8"

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
        "rounds": rounds,
        "about": {kind: text for kind, text in about.items() if text},
    }


def interval(own: list[float], other: list[float]) -> list[float]:
    """Median and quartiles of the rounds' ratios."""
    ratios = sorted(a / b for a, b in zip(own, other, strict=True))
    return [round(ratios[len(ratios) * part // 4], 3) for part in (2, 1, 3)]


def gguf_of(model: str) -> Path | None:
    """The GGUF file that a catalogue model was converted from."""
    from cache.paths import models_dir

    return next(iter(sorted((models_dir() / model).glob("*.gguf"))), None)
