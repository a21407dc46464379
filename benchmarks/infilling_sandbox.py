"""Runs programs that nobody has read: each in a process of its own with little of everything.

Limits on CPU time, memory, file size, open files and processes; a time-out by the clock after which the whole group
is killed; an empty directory to stand in, removed afterwards; no site packages and no environment; a network of its
own with nothing in it where ``unshare`` may make one. `benchmarks.infilling_guard` does the rest from the inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

Verdict = Literal["passed", "failed", "timeout"]

WALL_S = 10.0
LIMITS = {
    "RLIMIT_CPU": 5,  # seconds
    "RLIMIT_AS": 1 << 30,  # bytes
    "RLIMIT_FSIZE": 1 << 20,  # bytes, of the output too
    "RLIMIT_NOFILE": 64,
    "RLIMIT_NPROC": 0,  # no other process or thread (root is exempt; the guard refuses them all the same)
    "RLIMIT_CORE": 0,
}
_GUARD = Path(__file__).with_name("infilling_guard.py")


def run(program: str, wall_s: float = WALL_S, **limits: int) -> Verdict:
    """Whether a program comes to its end without an error.

    Args:
        wall_s: seconds by the clock after which it and all that it started are killed.
        limits: others than those of `LIMITS`, by the same names.
    """
    word = secrets.token_hex(16)
    order = {"program": program, "word": word, "limits": {**LIMITS, **limits}}
    with (
        tempfile.TemporaryDirectory(prefix="infilling-") as directory,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as said,  # a file and not a pipe: what is said without end is cut by the limit
    ):
        given.write(json.dumps(order).encode())
        given.seek(0)
        process = subprocess.Popen(
            [*_without_network(), sys.executable, "-I", "-S", "-B", str(_GUARD)],
            stdin=given,
            stdout=said,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env={"PATH": os.defpath, "TMPDIR": directory},
            start_new_session=True,
        )
        try:
            code = process.wait(wall_s)
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing of the group is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        if code == 0 and said.read() == word.encode():
            return "passed"
    return "timeout" if code in (-signal.SIGKILL, -signal.SIGXCPU) else "failed"


@cache
def _without_network() -> tuple[str, ...]:
    """The command that gives what follows it a network without anything in it; none where that is not allowed."""
    command = ("unshare", "--user", "--map-root-user", "--net")
    try:
        done = subprocess.run([*command, "true"], capture_output=True, timeout=WALL_S)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if done.returncode == 0 else ()
