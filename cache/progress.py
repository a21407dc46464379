"""Progress on stderr for downloads that other programs do: the growth of a directory is watched."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

POLL_SECONDS = 0.25
PLAIN_LINE_SECONDS = 10.0


@contextmanager
def watch_growth(directory: Path, total_bytes: int, label: str) -> Iterator[None]:
    """Shows how far `directory` has grown towards `total_bytes` while the block runs.

    On a terminal this is a bar; elsewhere a line now and then, so that a log stays readable.
    """
    console = Console(stderr=True)
    stop = threading.Event()
    show = _bar if console.is_terminal else _lines
    thread = threading.Thread(target=show, args=(console, directory, total_bytes, label, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def working(label: str) -> Iterator[None]:
    """Says what is being done while the block runs, and how long it took."""
    console = Console(file=sys.stderr, highlight=False)  # kept, so that libraries can be silenced meanwhile
    started = time.monotonic()
    if console.is_terminal:
        with console.status(label):
            yield
    else:
        console.print(f"{label} …", soft_wrap=True)
        yield
    console.print(f"{label}: done in {time.monotonic() - started:.0f} s", soft_wrap=True)


def directory_bytes(directory: Path) -> int:
    """The bytes of all files under `directory`; files that vanish meanwhile count nothing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            if path.is_file():
                total += path.stat().st_size
        except OSError:
            continue
    return total


def _bar(console: Console, directory: Path, total_bytes: int, label: str, stop: threading.Event) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=total_bytes)
        while True:
            stopped = stop.wait(POLL_SECONDS)
            progress.update(task, completed=min(directory_bytes(directory), total_bytes))
            if stopped:
                return


def _lines(console: Console, directory: Path, total_bytes: int, label: str, stop: threading.Event) -> None:
    console.print(f"{label}: {total_bytes / 1e6:.0f} MB", soft_wrap=True, highlight=False)
    while not stop.wait(PLAIN_LINE_SECONDS):
        done = min(directory_bytes(directory), total_bytes)
        console.print(f"{label}: {100 * done // max(total_bytes, 1)} %", soft_wrap=True, highlight=False)
