"""Writes the latency log: rotating, bounded, private, and never in a completion's way.

`write` only appends to a bounded queue; a background thread serialises and writes. Whatever goes wrong with
the file (full disk, no permission, directory gone) costs records, which are counted, and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cache.paths import log_dir
from lsp_server.telemetry_schema import VERSION

if sys.platform != "win32":
    import fcntl

LOG_NAME = "telemetry.jsonl"
MAX_BYTES = 16 * 2**20
KEEP_FILES = 4  # rotated ones beside the current one
QUEUE_LIMIT = 10_000  # records; about 20 MB while the disk is stuck
FLUSH_DELAY_S = 0.2  # records of a burst share one write
RETRY_DELAY_S = 5.0  # after the log could not be written


class TelemetryWriter:
    """The log file's owner in this process; several processes may write the same file.

    ``path`` None writes no file. ``sinks`` are given every record as well, on the background thread; what
    they raise is dropped. Records must not be changed after they were handed to `write`.
    """

    def __init__(
        self,
        path: Path | None,
        max_bytes: int = MAX_BYTES,
        keep_files: int = KEEP_FILES,
        sinks: Sequence[Callable[[Mapping[str, Any]], None]] = (),
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep_files = keep_files
        self._sinks = tuple(sinks)
        self._queue: deque[tuple[Mapping[str, Any], bool]] = (
            deque()
        )  # records, and whether the file gets them
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._file: int | None = None
        self._refused = 0  # by a full queue; counted by the callers
        self._failed = 0  # by the file; counted by the thread
        self._reported_lost = 0
        self._retry_at = 0.0

    @property
    def lost(self) -> int:
        """Records that never reached the file; the log says so too once it can be written again."""
        return self._refused + self._failed

    def write(self, record: Mapping[str, Any], keep: bool = True) -> None:
        """Hands one record to the background thread; never raises, never waits for the disk.

        ``keep`` False: the file does not get it, only the sinks do.
        """
        keep = keep and self.path is not None
        if self._closing.is_set() or not (keep or self._sinks):
            return
        if len(self._queue) >= QUEUE_LIMIT:
            self._refused += keep
            return
        self._queue.append((record, keep))
        if self._thread is None:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """Writes what is queued and stops; gives up after ``timeout_s`` when the disk hangs."""
        self._closing.set()
        self._wake.set()
        atexit.unregister(self.close)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _start(self) -> None:
        with (
            self._start_lock,
            contextlib.suppress(RuntimeError),
        ):  # no new threads: at exit, or out of resources
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
                thread.start()
                self._thread = thread
                atexit.register(self.close)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._closing.wait(FLUSH_DELAY_S)
            self._wake.clear()
            self._drain()
        self._drain()
        self._forget_file()

    def _drain(self) -> None:
        lines: list[bytes] = []
        size = 0
        while self._queue:
            record, keep = self._queue.popleft()
            for sink in self._sinks:
                with contextlib.suppress(Exception):
                    sink(record)
            if not keep:
                continue
            try:
                line = _line(record)
            except (TypeError, ValueError, RecursionError):
                self._failed += 1
                continue
            if len(line) > self._max_bytes:
                self._failed += 1
                continue
            if lines and size + len(line) > self._max_bytes:
                self._put(lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line)
        if lines:
            self._put(lines)

    def _put(self, lines: list[bytes]) -> None:
        if time.monotonic() < self._retry_at and not self._closing.is_set():
            self._failed += len(lines)
            return
        unreported = self.lost - self._reported_lost
        notes = [_line({"v": VERSION, "kind": "lost", "count": unreported})] if unreported else []
        try:
            whole = self._append(notes + lines)
        except OSError:
            whole = 0
        if notes and whole:
            self._reported_lost += unreported
        missing = len(lines) - max(0, whole - len(notes))
        if missing:
            self._failed += missing
            self._forget_file()
            self._retry_at = time.monotonic() + RETRY_DELAY_S

    def _append(self, lines: list[bytes]) -> int:
        """Appends in one write, as other processes share the log; returns how many lines are whole."""
        data = b"".join(lines)
        descriptor = self._open_with_room(len(data))
        mend = b"\n" if _ends_inside_a_line(descriptor) else b""
        written = os.write(descriptor, mend + data)
        return max(0, (mend + data)[:written].count(b"\n") - len(mend))

    def _open_with_room(self, size: int) -> int:
        """The log's descriptor; a log that would grow past its bound is rotated away first."""
        descriptor = self._open()
        if os.fstat(descriptor).st_size + size > self._max_bytes and os.fstat(descriptor).st_size > 0:
            with _locked(descriptor):  # two processes must not both rotate
                if self._is_current(descriptor):
                    if sys.platform == "win32":  # where only closed files can be renamed
                        self._forget_file()
                    self._rotate()
            self._forget_file()
            descriptor = self._open()
        return descriptor

    def _open(self) -> int:
        assert self.path is not None
        if self._file is not None and self._is_current(self._file):
            return self._file
        self._forget_file()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(
            self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600
        )
        if sys.platform != "win32" and stat.S_ISREG(os.fstat(self._file).st_mode):
            os.fchmod(self._file, 0o600)
        return self._file

    def _is_current(self, descriptor: int) -> bool:
        """False after another process rotated the log, or somebody removed it."""
        assert self.path is not None
        try:
            return os.path.samestat(self.path.stat(), os.fstat(descriptor))
        except OSError:
            return False

    def _rotate(self) -> None:
        assert self.path is not None
        names = [self.path, *rotated_paths(self.path, self._keep_files)]
        for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)

    def _forget_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None


def log_path() -> Path | None:
    """This user's log; None where its directory cannot be made."""
    try:
        return log_dir() / LOG_NAME
    except OSError:
        return None


def rotated_paths(path: Path, keep_files: int = KEEP_FILES) -> list[Path]:
    """Where rotated logs go, newest first."""
    return [path.with_name(f"{path.name}.{number}") for number in range(1, keep_files + 1)]


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _ends_inside_a_line(descriptor: int) -> bool:
    """True after a write that a full disk or a kill cut short."""
    if os.fstat(descriptor).st_size == 0:
        return False
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) != b"\n"


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    if sys.platform == "win32":
        yield
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
