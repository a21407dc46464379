"""What the user accepted and edited, per workspace: kept on disk as JSON lines, found again as n-grams.

Every line is appended with one write, so a crash costs at most the last one. The file is readable by its
owner only and bounded; nothing of a file that may hold secrets is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cache.boundaries import Encode
from cache.durable import PRIVATE, exclusive, replace_synced
from cache.hot_index import HotIndex
from cache.ngrams import Match
from cache.secrets import is_secret
from cache.short_grams import ShortGrams

Kind = Literal["completion", "edit"]

MAX_BYTES = 1 << 20  # of a workspace's history; beyond it the older half is dropped
MAX_TEXT = 20_000  # characters of one record


class Record(NamedTuple):
    """One accepted completion or edit."""

    kind: str
    path: str  # of the document
    text: str
    time_s: float  # since the epoch


class History:
    """One workspace's history. Turned off, it neither reads nor writes."""

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
        self._index = HotIndex(encode, max_tokens=max_bytes // 4)
        self._short = ShortGrams()
        self._count = 0
        self._lock = threading.Lock()

    def load(self) -> None:
        """Makes what earlier sessions recorded findable; for the background."""
        for record in self.records() if self.enabled else ():
            self._remember(record.text)

    def record(self, kind: Kind, path: str, text: str) -> None:
        """Remembers a text; an error on disk leaves it remembered for this session."""
        if not self.enabled or not text.strip() or is_secret(path, self._secret_patterns):
            return
        text = text[:MAX_TEXT]
        self._remember(text)
        line = json.dumps({"kind": kind, "path": path, "text": text, "time": round(time.time(), 3)}) + "\n"
        with self._lock:
            try:
                if self._append(line.encode()) > self._max_bytes:
                    self._shorten()
            except OSError:
                return

    def records(self) -> list[Record]:
        """Everything on disk, oldest first; lines that cannot be read are passed over."""
        return list(_parse(self._read()))

    def clear(self) -> None:
        """Forgets everything, on disk as well."""
        with self._lock:
            self.path.unlink(missing_ok=True)
            for document in self._index.documents():
                self._index.close(document)
            self._short.clear()

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

    def _remember(self, text: str) -> None:
        self._count += 1
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._index.open(f"{self.path.stem}:{self._count}", text)
        self._short.add(self._encode(text))

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
            if size:
                os.lseek(descriptor, size - 1, os.SEEK_SET)
                if os.read(descriptor, 1) != b"\n":  # an interrupted write: keep it to itself
                    line = b"\n" + line
            os.write(descriptor, line)
            return size + len(line)
        finally:
            os.close(descriptor)

    def _shorten(self) -> None:
        """Drops the older half; another session that is doing so saves us the work."""
        try:
            with exclusive(self.path.with_suffix(".lock")):
                data = self._read()
                keep = data[-self._max_bytes // 2 :]
                replace_synced(self.path, keep[keep.find(b"\n") + 1 :])
        except BlockingIOError:
            return


class ReplacedText:
    """Text deleted or replaced in this session, in memory only: likely to be written again near by."""

    def __init__(self, encode: Encode, max_passages: int = 64) -> None:
        self._encode = encode
        self._max_passages = max_passages
        self._passages: list[_Passage] = []  # oldest first

    def add(self, document: str, start: int, text: str) -> None:
        """``text`` was removed at offset ``start``; characters deleted one after another make one passage."""
        if not text:
            return
        last = self._passages[-1] if self._passages else None
        if last is not None and last.document == document and last.tokens is None:
            if start + len(text) == last.start:
                last.text, last.start = (text + last.text)[:MAX_TEXT], start
                return
            if start == last.start:
                last.text = (last.text + text)[:MAX_TEXT]
                return
        self._passages.append(_Passage(document, start, text[:MAX_TEXT]))
        del self._passages[: -self._max_passages]

    def passages(self, document: str, count: int = 8) -> list[list[int]]:
        """The most recent passages as tokens, the likeliest last: those of ``document`` after all others."""
        chosen = sorted(self._passages, key=lambda passage: passage.document == document)[-count:]
        for passage in chosen:
            if passage.tokens is None:
                passage.tokens = list(self._encode(passage.text))
        return [passage.tokens for passage in chosen if passage.tokens]

    def clear(self) -> None:
        """Forgets everything."""
        self._passages.clear()


class _Passage:
    __slots__ = ("document", "start", "text", "tokens")

    def __init__(self, document: str, start: int, text: str) -> None:
        self.document = document
        self.start = start
        self.text = text
        self.tokens: list[int] | None = None  # made when first asked for; the passage is complete then


def file_for(directory: Path, root: str) -> Path:
    """The history file of a workspace root."""
    identity = os.path.realpath(root) if root else ""
    return directory / f"{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.jsonl"


def _parse(data: bytes) -> Iterator[Record]:
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
            yield Record(str(row["kind"]), str(row["path"]), str(row["text"]), float(row["time"]))
        except (ValueError, KeyError, TypeError):
            continue
