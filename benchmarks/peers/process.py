"""The parent's end of a worker process: a peer that is asked and waited for, so that only one computes at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LAST_LINES = 5  # of a dead worker's stderr that are shown


class PeerError(Exception):
    """A peer could not be started, died, or refused a request; says what it said."""


class Worker:
    """A peer in a process of its own."""

    def __init__(
        self, kind: str, settings: Mapping[str, Any], threads: int, python: str = sys.executable
    ) -> None:
        self.kind = kind
        self._errors = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peers.worker", kind, json.dumps({**settings, "threads": threads})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self.about: dict[str, Any] = {}

    def ready(self) -> Worker:
        """Waits until the peer is loaded.

        Raises:
            PeerError: it cannot be.
        """
        self.about = self._reply()["about"]
        return self

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """One request, answered.

        Raises:
            PeerError: the peer refused it or died.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **request}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerError(f"{self.kind} is gone: {self._last_words()}") from error
        return self._reply()

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()
        self._errors.close()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self.kind} ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.kind}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        return " | ".join(deque((line.strip() for line in self._errors), LAST_LINES)) or "it said nothing"
