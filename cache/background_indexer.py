"""Keeps a frozen index up to date while the editor runs, without the editor noticing.

The work is done by a child process of lowest priority: building a trie holds the interpreter lock for a
second at a time, which a thread would pass on to every keystroke. A thread here only waits for the child and
then maps what it made.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from cache import index_failures
from cache.boundaries import Encode
from cache.frozen_index import FrozenIndex
from cache.index_builder import IndexBuilder, IndexBusyError
from cache.workspace import Workspace

SETTLE_S = 5.0  # changed files are collected this long: saving and branch switches come in bursts
BUSY_RETRY_S = 30.0
RETRY_S = 10.0  # after a failure; twice as long after each further one
MAX_RETRY_S = 3600.0

logger = logging.getLogger(__name__)

LoadEncode = Callable[[], Encode]  # picklable: it is called in the child


class BackgroundIndexer:
    """Builds at start and after changes; ``stop`` ends it within a second."""

    def __init__(
        self,
        index: FrozenIndex,
        workspace: Workspace,
        load_encode: LoadEncode,
        settle_s: float = SETTLE_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self.error = ""  # why the last build failed, "" when it did not
        self.built = threading.Event()  # set after the first build, successful or not
        self._index = index
        self._workspace = workspace
        self._load_encode = load_encode
        self._settle_s = settle_s
        self._retry_s = retry_s
        self._changed: set[str] | None = None  # None: look at everything
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="frozen index", daemon=True)

    def start(self) -> None:
        """Maps what is there, then brings it up to date."""
        self._wake.set()
        self._thread.start()

    def changed(self, paths: Collection[str]) -> None:
        """Files or directories (absolute paths) were made, changed or removed."""
        with self._lock:
            if self._changed is not None:
                self._changed.update(paths)
        self._wake.set()

    def stop(self) -> None:
        """Ends the child and the thread; what the child finished stays."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while True:
            self._wake.wait()
            if self._stopping.wait(self._settle_s if self.built.is_set() else 0.0):
                return
            self._wake.clear()
            with self._lock:
                paths, self._changed = self._changed, set()
            outcome: int | None = None
            try:
                if not self.built.is_set():
                    self._index.refresh()
                outcome = self._build(paths)
                self._index.refresh()
                problem = "" if outcome in (0, BUSY) else f"the process ended with exit code {outcome}"
            except Exception as error:  # whatever it was: this thread must not die of it
                problem = f"{type(error).__name__}: {error}"
            if self._stopping.is_set():
                return
            self._report(problem)
            self.built.set()
            failures = failures + 1 if problem else 0
            if problem or outcome == BUSY:
                with self._lock:
                    self._changed = None
                self._wake.set()
                if self._stopping.wait(self._pause_s(failures) if problem else BUSY_RETRY_S):
                    return

    def _pause_s(self, failures: int) -> float:
        return min(MAX_RETRY_S, self._retry_s * 2.0 ** min(failures - 1, 30))

    def _report(self, problem: str) -> None:
        """Makes a failure known, once; what the child wrote down itself says more than its exit code."""
        before = self.error
        self.error = f"building the index of {self._workspace.root} failed: {problem}" if problem else ""
        if self.error and self.error != before:
            logger.warning("%s", self.error)
        if problem and not index_failures.is_noted(self._index.directory):
            index_failures.note(self._index.directory, str(self._workspace.root), problem)

    def _build(self, paths: Collection[str] | None) -> int | None:
        child = multiprocessing.get_context("spawn").Process(
            target=_build,
            args=(self._index.directory, self._workspace, self._load_encode, paths),
            daemon=True,
        )
        child.start()
        while child.is_alive():
            child.join(0.2)
            if self._stopping.is_set():
                child.kill()  # at any point: the index is made for it
                child.join()
        return child.exitcode


BUSY = 75  # exit code of a child that found another at work


def _build(
    directory: Path, workspace: Workspace, load_encode: LoadEncode, paths: Collection[str] | None
) -> None:
    """The child's whole life."""
    os.dup2(sys.stderr.fileno(), 1)  # standard output may carry the editor's protocol
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with contextlib.suppress(AttributeError, OSError):
        os.nice(19)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        IndexBuilder(directory, workspace, load_encode()).run(paths)
    except IndexBusyError:
        sys.exit(BUSY)
    except Exception as error:
        index_failures.note(directory, str(workspace.root), f"{type(error).__name__}: {error}")
        raise


def _end_with_parent() -> None:
    """An editor that was killed leaves nothing working behind its back."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
