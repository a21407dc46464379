"""Who gets which tasks in which modes, how the peers are started, and how long it is going to take."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.packages import benchmark_cache
from benchmarks.peers.process import PeerError, Worker
from benchmarks.peers.results import key_of
from benchmarks.peers.run import Part

PEERS = ("ours", "llama", "transformers")
OURS = ("off", "lookup", "full")
LLAMA = ("plain", "lookup-2", "lookup-10")  # drafts of 2 pay on a CPU, 10 is the library's default
TRANSFORMERS = ("plain", "lookup")

# tasks of each peer; the slow one gets fewer, and ratios to it are over those
COMPLETIONS: dict[str, dict[str, Part]] = {
    "edits": {
        "ours": Part((*OURS, "full-product"), 28),
        "llama": Part(LLAMA, 28),
        "transformers": Part(TRANSFORMERS, 8),
    },
    "fresh": {"ours": Part(OURS, 20), "llama": Part(LLAMA, 20), "transformers": Part(TRANSFORMERS, 4)},
    "noise": {"ours": Part(("off", "full"), 32)},
    "rewrite": {"ours": Part(OURS, 12), "llama": Part(LLAMA, 12), "transformers": Part(TRANSFORMERS, 3)},
    "languages": {"ours": Part((*OURS, "full-product"), 12), "llama": Part(LLAMA, 8)},
}
TYPING_CHANGES = 6
WORKLOADS = (*COMPLETIONS, "typing", "truth")

# for the estimate only: tokens of a prompt and of a text, ms of prefill and of decoding a token, by peer and mode
TOKENS = {
    "edits": (560, 64),
    "fresh": (150, 64),
    "noise": (192, 64),
    "rewrite": (250, 120),
    "languages": (500, 64),
}
PREFILL_MS = {"ours": 6.0, "llama": 11.0, "transformers": 13.0}
TOKEN_MS = {
    "ours/off": 50.0, "ours/lookup": 35.0, "ours/full": 25.0, "ours/full-product": 20.0,
    "llama/plain": 45.0, "llama/lookup-2": 35.0, "llama/lookup-10": 45.0,
    "transformers/plain": 160.0, "transformers/lookup": 130.0,
}  # fmt: skip
TYPING_MINUTES, TRUTH_MINUTES, START_MINUTES = 9.0, 4.0, 1.5


def chosen(names: str) -> list[str]:
    """The workloads of a comma separated list.

    Raises:
        SystemExit: one of them is unknown.
    """
    asked = WORKLOADS if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    for name in asked:
        if name not in WORKLOADS:
            raise SystemExit(f"unknown workload {name!r}: use all, or some of {', '.join(WORKLOADS)}")
    return list(asked)


def plan_of(workload: str, peers: Mapping[str, object], limit: int | None) -> dict[str, Part]:
    """What the peers that are there get of a workload."""
    return {
        peer: Part(part.modes, part.limit if limit is None else min(limit, part.limit))
        for peer, part in COMPLETIONS[workload].items()
        if peer in peers
    }


def estimate_minutes(workloads: Sequence[str], peers: Sequence[str], limit: int | None) -> float:
    """Minutes of a run on two quiet cores."""
    minutes = START_MINUTES
    for name in workloads:
        if name == "typing":
            minutes += TYPING_MINUTES * min(limit or TYPING_CHANGES, TYPING_CHANGES) / TYPING_CHANGES
        elif name == "truth":
            minutes += TRUTH_MINUTES
        else:
            for peer, part in plan_of(name, dict.fromkeys(peers), limit).items():
                minutes += part.limit * task_ms(name, peer, part) / 60_000
    return minutes


def task_ms(workload: str, peer: str, part: Part) -> float:
    """Milliseconds of a task: one prefill for all modes, but where a peer cannot go on from one."""
    prompt, tokens = TOKENS[workload]
    prefills = len(part.modes) if peer == "transformers" or workload == "noise" else 1
    return prefills * prompt * PREFILL_MS[peer] + sum(
        tokens * TOKEN_MS[f"{peer}/{mode}"] for mode in part.modes
    )


class Peers:
    """The worker processes. A context manager: none of them outlives it."""

    def __init__(self, model: str, engine: str, threads: int, llama_python: str, gguf: Path | None) -> None:
        self._model, self._engine, self._threads = model, engine, threads
        self._llama_python, self._gguf = llama_python, gguf
        self.started: dict[str, Worker] = {}
        self.failures: dict[str, str] = {}

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.started.values():
            worker.close()

    def start(self, peers: Sequence[str]) -> dict[str, Worker]:
        """Starts peers one after the other; one that cannot be started is left out and said so, ours must start."""
        for peer in dict.fromkeys(("ours", *peers)):
            print(f"loading {peer}", file=sys.stderr)
            try:
                self.started[peer] = self._worker(peer, self._settings(peer)).ready()
            except PeerError as error:
                if peer == "ours":
                    raise
                self.failures[peer] = str(error)
                print(f"{peer} is left out: {error}", file=sys.stderr)
        return self.started

    def versions(self, peers: Sequence[str]) -> dict[str, str]:
        """What the peers' libraries are, without loading a model."""
        import torch
        import transformers

        found = {"ours": f"torch {torch.__version__}"}
        if "transformers" in peers:
            found["transformers"] = f"{transformers.__version__} {self.dtype()}"
        if "llama" in peers:
            code = "import llama_cpp; print(llama_cpp.__version__)"
            command = [self._llama_python, "-c", code]
            done = subprocess.run(command, capture_output=True, text=True)
            found["llama"] = done.stdout.strip() or "missing"
        return found

    def dtype(self) -> str:
        """transformers' faster number format on this machine; tried once and remembered."""
        import torch
        import transformers

        key = key_of(
            {"t": transformers.__version__, "p": torch.__version__, "m": self._model, "n": self._threads}
        )
        path = benchmark_cache() / "peers" / f"dtype-{key}.json"
        if not path.exists():
            times = {}
            for dtype in ("float32", "bfloat16"):
                worker = self._worker("transformers", {"model": self._model, "dtype": dtype}).ready()
                times[dtype] = worker.ask("calibrate", tokens=12)["ms"]
                worker.close()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(times), encoding="utf-8")
        times = json.loads(path.read_text(encoding="utf-8"))
        return min(times, key=lambda name: times[name])

    def _settings(self, peer: str) -> dict[str, Any]:
        if peer == "ours":
            return {"model": self._model, "engine": self._engine}
        if peer == "transformers":
            return {"model": self._model, "dtype": self.dtype()}
        if self._gguf is None:
            raise PeerError(f"{self._model} was not made from a GGUF file, which llama.cpp needs")
        return {"gguf": str(self._gguf)}

    def _worker(self, peer: str, settings: Mapping[str, Any]) -> Worker:
        python = self._llama_python if peer == "llama" else sys.executable
        return Worker(peer, settings, self._threads, python)
