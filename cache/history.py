"""What the user accepted and edited, per workspace: kept on disk as JSON lines, found again as n-grams.

Every line is appended with one write, so a crash costs at most the last one. The file is readable by its
owner only and bounded; nothing of a file that may hold secrets is recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cache.boundaries import Encode
from cache.durable import PRIVATE, exclusive, replace_synced, wait_for
from cache.hot_index import HotIndex
from cache.ngrams import Match
from cache.secrets import is_secret
from cache.short_grams import ShortGrams

Kind = Literal["completion", "edit"]
_State = tuple[int, int, int, int]

MAX_BYTES = 1 << 20  # of a workspace's history; beyond it the older half is dropped
MAX_TEXT = 20_000  # characters of one record
_PATIENCE_S = 5.0  # for another process that shortens a history that is to be cleared


class Record(NamedTuple):
    """One accepted completion or edit."""

    kind: str
    path: str  # of the document
    text: str
    time_s: float  # since the epoch


class History:
    """One workspace's history. Turned off, it neither reads nor writes.

    Recorded by one thread. ``refresh`` and queries are for another, the one that drafts.
    """

    def __init__(
        self,
        directory: Path,
        root: str,
        encode: Encode,
        enabled: bool = True,
        secret_patterns: Sequence[str] = (),
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """``directory``: where histories are kept (``paths.history_dir``)."""
        self.path = file_for(directory, root)
        self.enabled = enabled
        self._secret_patterns = tuple(secret_patterns)
        self._max_bytes = max_bytes
        self._encode = encode
        self._count = 0
        self._last = ""  # the text recorded last
        self._lock = threading.Lock()  # of the file
        self._forget()
        self._is_behind = False  # whether what is on disk is to be read before more is added

    def load(self) -> None:
        """Makes what earlier sessions recorded findable; for the background."""
        if not self.enabled:
            return
        with self._lock:
            self._begin_with(_state(self.path))
            self._is_behind = False
        for record in self.records():
            self._remember(record.text)

    def record(self, kind: Kind, path: str, text: str) -> None:
        """Remembers a text; an error on disk leaves it remembered for this session.

        An edit is found in the open document; until it is read from disk only its short grams are.
        """
        if not self.enabled or not text.strip() or is_secret(path, self._secret_patterns):
            return
        text = text[:MAX_TEXT]
        if kind == "edit" and text.strip() in self._last:
            return
        self._last = text
        self.refresh()
        if self._is_behind:
            self.load()
        line = json.dumps({"kind": kind, "path": path, "text": text, "time": round(time.time(), 3)}) + "\n"
        with self._lock:
            try:
                if self._append(line.encode()) > self._max_bytes:
                    self._shorten()
            except OSError:
                pass
        self._remember(text, is_elsewhere=kind == "edit")

    def records(self) -> list[Record]:
        """Everything on disk, oldest first; lines that cannot be read are passed over."""
        return list(_parse(self._read()))

    def clear(self) -> None:
        """Forgets everything, on disk as well."""
        with self._lock:
            _remove(self.path)
            self._forget()

    def refresh(self) -> None:
        """Forgets at once what another process cleared; costs one look at the file."""
        if not self.enabled or not self._lock.acquire(blocking=False):  # we are writing it
            return
        try:
            self._check()
        finally:
            self._lock.release()

    def query(self, context: Sequence[int], max_hits: int = 8) -> list[Match]:
        """The longest, then most recent, places where the end of ``context`` was written before."""
        if not self.enabled:
            return []
        return self._index.query(context, max_hits) or self._short.query(context, max_hits)

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that followed a match."""
        store = self._index if match.place is not None else self._short
        return store.continuation(match, count)

    def tokens(self) -> list[list[int]]:
        """What can be found, as token sequences, oldest first."""
        return [self._index.tokens(document) for document in self._index.documents()]

    def _remember(self, text: str, is_elsewhere: bool = False) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if not is_elsewhere:
            self._count += 1
            self._index.open(f"{self.path.stem}:{self._count}", text)
        self._short.add(self._encode(text))

    def _forget(self) -> None:
        """Begins anew, at once: what is being searched or added to just now ends with its last user."""
        self._index = HotIndex(self._encode, max_tokens=self._max_bytes // 4)
        self._short = ShortGrams()
        self._head = b""  # how the file begins that has what is remembered; another begins otherwise
        self._state: _State | None = None  # of that file when it was last looked at
        self._last = ""
        self._is_behind = True

    def _begin_with(self, state: _State | None) -> None:
        self._state, self._head = state, _head(self.path)

    def _check(self) -> None:
        state = _state(self.path)
        if state == self._state:
            return
        if self._head and _head(self.path) != self._head:
            self._forget()
        else:
            self._begin_with(state)

    def _read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError:
            return b""

    def _append(self, line: bytes) -> int:
        """Appends a line and returns the file's size."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE)
        try:
            size = os.fstat(descriptor).st_size
            if not size and self._head:  # cleared just now
                self._forget()
            if size:
                os.lseek(descriptor, size - 1, os.SEEK_SET)
                if os.read(descriptor, 1) != b"\n":  # an interrupted write: keep it to itself
                    line = b"\n" + line
            os.write(descriptor, line)
            self._begin_with(_state(self.path))
            return size + len(line)
        finally:
            os.close(descriptor)

    def _shorten(self) -> None:
        """Drops the older half; another session that is doing so saves us the work."""
        try:
            with exclusive(self.path.with_suffix(".lock")):
                for leftover in _leftovers(self.path):
                    leftover.unlink(missing_ok=True)
                data = self._read()
                keep = data[-self._max_bytes // 2 :]
                replace_synced(self.path, keep[keep.find(b"\n") + 1 :])
                self._begin_with(_state(self.path))
        except BlockingIOError:
            return


def file_for(directory: Path, root: str) -> Path:
    """The history file of a workspace root."""
    identity = os.path.realpath(root) if root else ""
    return directory / f"{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.jsonl"


def remove(directory: Path, root: str) -> bool:
    """Deletes the history of a workspace root, and what crashes left of it; returns whether there was any.

    Processes that have it in memory notice (``History.refresh``).
    """
    return _remove(file_for(directory, root))


def _remove(path: Path) -> bool:
    if not any(found.exists() for found in (path, *_leftovers(path))):
        return False
    lock = path.with_suffix(".lock")
    with wait_for(lock, _PATIENCE_S):  # who is shortening it would bring half of it back
        for found in (path, *_leftovers(path)):
            found.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        lock.unlink(missing_ok=True)
    return True


def _leftovers(path: Path) -> list[Path]:
    """Copies that a crash left behind in the middle of being written."""
    return list(path.parent.glob(f"{path.name}.*.tmp"))


def _state(path: Path) -> _State | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _head(path: Path) -> bytes:
    """The first line, its time included: no two files begin with the same."""
    try:
        with path.open("rb") as file:
            return file.readline(MAX_TEXT)
    except OSError:
        return b""


def _parse(data: bytes) -> Iterator[Record]:
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
            yield Record(str(row["kind"]), str(row["path"]), str(row["text"]), float(row["time"]))
        except (ValueError, KeyError, TypeError):
            continue
