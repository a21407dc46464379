"""Engines in processes of their own that are asked in turn, and the answers of a run that is not finished."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.infilling_holes import Hole
from benchmarks.infilling_sandbox import run

ROOT = Path(__file__).resolve().parent.parent
Answer = dict[str, Any]


class WorkerError(Exception):
    """An engine's process did not start or ended; says what it said last."""


class Worker:
    """An engine in a process of its own."""

    def __init__(self, settings: dict[str, Any], python: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(settings["threads"])}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("infilling_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._settings = settings

    def ready(self) -> str:
        """Loads the engine and waits for it; what it says of itself."""
        return str(self.ask(self._settings)["about"])

    def ask(self, request: dict[str, Any]) -> Answer:
        """Sends a line and waits for the answer."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise WorkerError(self._last_word()) from error
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(self._last_word())
        return dict(json.loads(line))

    def _last_word(self) -> str:
        self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"it ended with {self._process.returncode}"

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        self._log.close()


class Kept:
    """Answers of a run that is not finished, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[tuple[str, str], Answer] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:  # the run was stopped while it wrote
                    continue
                self._answers[row["peer"], row["hole"]] = row["answer"]

    def get(self, peer: str, hole: str) -> Answer | None:
        """An answer that is there already."""
        return self._answers.get((peer, hole))

    def add(self, peer: str, hole: str, answer: Answer) -> None:
        """Keeps an answer."""
        self._answers[peer, hole] = answer
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"peer": peer, "hole": hole, "answer": answer}) + "\n")

    def of(self, peer: str, holes: Iterable[Hole]) -> dict[str, Answer]:
        """Hole names to the answers of a peer."""
        found = {hole.name: self.get(peer, hole.name) for hole in holes}
        return {name: answer for name, answer in found.items() if answer is not None}

    def forget(self) -> None:
        """The run is finished: the next one starts anew."""
        self._path.unlink(missing_ok=True)


def fill(
    wanted: Sequence[tuple[Hole, str]],
    requests: Mapping[str, dict[str, Any]],
    settings: Mapping[str, tuple[str, dict[str, Any]]],
    kept: Kept,
) -> dict[str, str]:
    """Has every hole filled and tried that is not.

    Args:
        wanted: holes and who is to fill them, in order.
        requests: hole names to what is asked.
        settings: peers to an interpreter and what its worker is told.

    Returns:
        The peers that started, with what they say of themselves.
    """
    about = {}
    judge = cache(run)  # the same text is the same program
    with ExitStack() as stack, Progress(console=Console(stderr=True)) as progress:
        workers = {}
        for name, (python, told) in progress.track(list(settings.items()), description="loading engines"):
            worker = Worker(told, python)
            stack.callback(worker.close)
            try:
                about[name] = worker.ready()
            except WorkerError as error:
                progress.console.print(f"{name} does not start and is left out: {error}", markup=False)
                continue
            workers[name] = worker
        asked = [(hole, name) for hole, name in wanted if name in workers]
        for hole, name in progress.track(asked, description="filling holes"):
            if kept.get(name, hole.name) is None:
                answer = workers[name].ask(requests[hole.name])
                kept.add(name, hole.name, {**answer, "verdict": judge(hole.program(answer["text"]))})
    return about
