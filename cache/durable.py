"""Files that are either there and whole or not there, readable by their owner only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PRIVATE = 0o600


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Writes a new file with mode 0600 and waits until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_synced(path: Path, data: bytes) -> None:
    """Replaces a file's content in one step: a reader, or a crash, sees the old or the new."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    write_synced(temporary, data)
    temporary.replace(path)
    sync_directory(path.parent)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock that ends with the process, however it ends; BlockingIOError when another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        if sys.platform == "win32":
            import msvcrt

            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except OSError as error:
                raise BlockingIOError(str(error)) from error
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def wait_for(path: Path, patience_s: float) -> Iterator[None]:
    """Holds the same lock, and waits for it; BlockingIOError when another still holds it after that time."""
    end = time.monotonic() + patience_s
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(exclusive(path))
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.05)
        yield


def sync(path: Path) -> None:
    """Waits until a file written by someone else is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Makes renames and new files in a directory last; nothing to do where directories cannot be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
