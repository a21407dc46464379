"""Brings a frozen index up to date with its workspace: tokenise what changed, write segments, merge.

A segment is written and synced in full before the manifest names it, and the manifest is replaced in one
step. So a process that ends at any point leaves a usable index, short of at most its unfinished segment.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cache import index_failures
from cache import segment as segments
from cache.boundaries import Encode
from cache.durable import exclusive, replace_synced
from cache.file_text import UnwantedError
from cache.frozen_index import MANIFEST, Manifest
from cache.index_scan import Differences, concerns_all, differences
from cache.paths import private_dir
from cache.segment import IndexedFile, Segment, SegmentDamagedError
from cache.workspace import Workspace

SEGMENT_TOKENS = 1_000_000  # a segment is closed at this size: what a crash can lose
MERGE_ABOVE = 4  # small segments; each costs every query a look-up
STATS = "stats.json"
SEEN = "seen.json"
_RACY_NS = 2_000_000_000  # a file changed this recently may change again with the same time stamp


class IndexBusyError(Exception):
    """Another process is building this index; it will be up to date without us."""

    exit_code = 2


@dataclass
class BuildStats:
    """What a build saw and did."""

    files: int = 0  # in the index afterwards
    tokens: int = 0  # of these files
    text_bytes: int = 0  # of these files
    disk_bytes: int = 0
    segments: int = 0
    stage: str = "scan"  # then "read", then "merge"
    seconds: float = 0.0
    to_read: int = 0  # files that were new or changed
    read: int = 0  # of these, done
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    damaged: list[str] = field(default_factory=list)  # segments that had to be dropped


class IndexBuilder:
    """Builds and maintains one workspace's index directory; one process at a time."""

    def __init__(
        self, directory: Path, workspace: Workspace, encode: Encode, segment_tokens: int = SEGMENT_TOKENS
    ) -> None:
        self._directory = directory
        self._workspace = workspace
        self._encode = encode
        self._segment_tokens = segment_tokens
        self._segments: dict[str, Segment] = {}  # oldest first
        self._manifest = Manifest()
        self._seen: dict[str, tuple[str, int]] = {}  # digest and time of files that were only touched
        self._pending: list[tuple[IndexedFile, array[int]]] = []
        self._pending_tokens = 0

    def run(
        self,
        paths: Collection[str] | None = None,
        on_progress: Callable[[BuildStats], None] = lambda stats: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> BuildStats:
        """Looks at ``paths`` (absolute or below the root), or at everything. Raises IndexBusyError.

        Everything also where they do not suffice: after damage, of a directory, of an ignore file.
        ``cancelled`` is asked between files; what was done until then is kept.
        """
        begun = time.perf_counter()
        stats = BuildStats()
        private_dir(self._directory)
        try:
            with exclusive(self._directory / "lock"):
                is_whole = self._open(stats)
                on_progress(stats)
                if paths is not None and (not is_whole or concerns_all(self._workspace, paths)):
                    paths = None
                found = differences(self._workspace, self._known(), paths, stats.skipped)
                self._index(found, stats, on_progress, cancelled)
                stats.stage = "merge"
                on_progress(stats)
                self._flush()
                self._retire(found.gone)
                self._merge(self._unwanted(found))
                self._sweep()
                self._keep_seen()
        except BlockingIOError as error:
            raise IndexBusyError(
                f"the index of {self._workspace.root} is being built by another process"
            ) from error
        index_failures.forget(self._directory)
        self._count(stats)
        stats.seconds = time.perf_counter() - begun
        if paths is None:
            replace_synced(self._directory / STATS, json.dumps(stats.__dict__).encode())
        return stats

    def _open(self, stats: BuildStats) -> bool:
        """Opens what is there, drops what is damaged and removes what an interrupted build left behind.

        Returns whether there was an index and all of it is there.
        """
        self._pending.clear()
        self._pending_tokens = 0
        self._manifest = Manifest.read(self._directory)
        is_whole = self._manifest.root != ""
        self._manifest.root = str(self._workspace.root)
        opened = {}
        for name, checksums in self._manifest.segments.items():
            try:
                opened[name] = self._segments.get(name) or Segment(self._directory / name, checksums)
                opened[name].masked = set(self._manifest.outdated.get(name, ()))
            except (SegmentDamagedError, OSError, ValueError, TypeError) as error:
                stats.damaged.append(str(error))
        self._segments = opened
        self._seen = _read_seen(self._directory)
        self._commit()
        self._sweep()
        return is_whole and not stats.damaged

    def _files(self) -> Iterator[IndexedFile]:
        """What is indexed, each file once."""
        for segment in self._segments.values():
            for index, file in enumerate(segment.files):
                if index not in segment.masked:
                    yield file

    def _known(self) -> dict[str, IndexedFile]:
        return {file.path: self._as_seen(file) for file in self._files()}

    def _as_seen(self, file: IndexedFile) -> IndexedFile:
        """With the time at which it was last found to be unchanged."""
        digest, mtime_ns = self._seen.get(file.path, ("", 0))
        return file._replace(mtime_ns=mtime_ns) if digest == file.digest else file

    def _index(
        self,
        found: Differences,
        stats: BuildStats,
        on_progress: Callable[[BuildStats], None],
        cancelled: Callable[[], bool],
    ) -> None:
        known = self._known()
        stats.to_read = len(found.changed)
        stats.stage = "read"
        for entry in found.changed:
            if cancelled():
                return
            try:
                now, data = self._workspace.read(entry.path)
                digest = hashlib.blake2b(data, digest_size=16).hexdigest()
                old = known.get(entry.path)
                mtime_ns = now.mtime_ns if time.time_ns() - now.mtime_ns > _RACY_NS else 0
                if old is not None and old.digest == digest:
                    self._seen[entry.path] = (digest, mtime_ns)
                else:
                    tokens = array("I", self._encode(self._workspace.text(data)))
                    self._add(IndexedFile(now.path, len(data), mtime_ns, digest), tokens)
            except UnwantedError as unwanted:
                stats.skipped[str(unwanted)] += 1
                if entry.path in known:
                    found.gone.add(entry.path)
            stats.read += 1
            on_progress(stats)

    def _add(self, file: IndexedFile, tokens: array[int]) -> None:
        self._pending.append((file, tokens))
        self._pending_tokens += len(tokens)
        if self._pending_tokens >= self._segment_tokens:
            self._flush()

    def _flush(self) -> None:
        """Makes a segment of what is pending."""
        if self._pending:
            self._write(self._pending, replacing=())
            self._pending = []
            self._pending_tokens = 0

    def _write(self, contents: list[tuple[IndexedFile, array[int]]], replacing: Collection[str]) -> None:
        name = (
            f"{max([int(n.split('-')[0]) for n in self._segments], default=0) + 1:06d}-{secrets.token_hex(4)}"
        )
        checksums = segments.write(self._directory / name, contents)
        self._manifest.segments[name] = checksums
        self._segments[name] = Segment(self._directory / name, checksums)
        for old in replacing:
            del self._segments[old]
        self._commit()

    def _retire(self, gone: set[str]) -> None:
        """Marks the files that are gone as outdated."""
        for segment in self._segments.values():
            segment.masked |= {i for i, file in enumerate(segment.files) if file.path in gone}
        self._commit()

    def _commit(self) -> None:
        """Puts the segments in force; of a file in several, only the newest copy counts."""
        newer: set[str] = set()
        for segment in reversed(self._segments.values()):
            segment.masked |= {i for i, file in enumerate(segment.files) if file.path in newer}
            newer |= {file.path for file in segment.files}
        self._manifest.segments = {name: self._manifest.segments[name] for name in self._segments}
        self._manifest.outdated = {n: sorted(s.masked) for n, s in self._segments.items() if s.masked}
        self._manifest.write(self._directory)

    def _unwanted(self, found: Differences) -> set[str]:
        """Files that are still there but must not be kept: they became secret or ignored."""
        return {path for path in found.gone - found.crowded if (self._workspace.root / path).exists()}

    def _merge(self, unwanted: set[str]) -> None:
        """Rewrites small, mostly outdated and unwanted segments into fewer."""
        live = {name: _live_tokens(segment) for name, segment in self._segments.items()}
        small = [name for name in self._segments if live[name] < self._segment_tokens // 2]
        chosen = set(small) if len(small) > MERGE_ABOVE else set()
        for name, segment in self._segments.items():
            stale = live[name] < len(segment.tokens) // 2
            if stale or any(file.path in unwanted for file in segment.files):
                chosen.add(name)
        group: list[str] = []
        for name in [n for n in self._segments if n in chosen]:
            if group and sum(live[n] for n in group) + live[name] > self._segment_tokens:
                self._rewrite(group)
                group = []
            group.append(name)
        if group:
            self._rewrite(group)

    def _rewrite(self, names: list[str]) -> None:
        contents = [
            (self._as_seen(file), segment.tokens_of(file))
            for segment in (self._segments[name] for name in names)
            for index, file in enumerate(segment.files)
            if index not in segment.masked
        ]
        if contents:
            self._write(contents, replacing=names)
        else:
            for name in names:
                del self._segments[name]
            self._commit()

    def _sweep(self) -> None:
        """Removes what the manifest does not name."""
        for path in self._directory.iterdir():
            if path.is_dir() and path.name not in self._segments:
                shutil.rmtree(path, ignore_errors=True)  # on Windows a reader may still map it: next time
            elif path.suffix == ".tmp":
                path.unlink(missing_ok=True)

    def _keep_seen(self) -> None:
        """Writes down what was seen of files whose segment does not say it."""
        written = {file.path: file for file in self._files()}
        self._seen = {
            path: (digest, mtime_ns)
            for path, (digest, mtime_ns) in self._seen.items()
            if (file := written.get(path)) and file.digest == digest and file.mtime_ns != mtime_ns
        }
        if self._seen != _read_seen(self._directory):
            replace_synced(self._directory / SEEN, json.dumps(self._seen).encode())

    def _count(self, stats: BuildStats) -> None:
        files = self._known().values()
        stats.files = len(files)
        stats.tokens = sum(file.length for file in files)
        stats.text_bytes = sum(file.size for file in files)
        stats.segments = len(self._segments)
        stats.disk_bytes = sum(path.stat().st_size for path in self._directory.rglob("*") if path.is_file())


def read_stats(directory: Path) -> BuildStats | None:
    """What the last full build of an index saw and did."""
    try:
        data = json.loads((directory / STATS).read_bytes())
        return BuildStats(**{**data, "skipped": Counter(data["skipped"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_seen(directory: Path) -> dict[str, tuple[str, int]]:
    try:
        rows = json.loads((directory / SEEN).read_bytes())
        return {path: (str(digest), int(mtime_ns)) for path, (digest, mtime_ns) in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remove(directory: Path) -> None:
    """Deletes an index. Raises IndexBusyError while it is being built."""
    try:
        with exclusive(directory / "lock"):
            (directory / MANIFEST).unlink(missing_ok=True)  # first: what follows is garbage from now on
            shutil.rmtree(directory, ignore_errors=True)
    except BlockingIOError as error:
        raise IndexBusyError("the index is being built; try again when that is done") from error


def unreadable(base: Path) -> list[Path]:
    """Index directories below ``base`` that no workspace can use: without a manifest, or with a damaged one."""
    directories = [path for path in base.glob("[0-9a-f]*") if path.is_dir()]
    return sorted(path for path in directories if not _is_root(Manifest.read(path).root))


def _is_root(root: object) -> bool:
    return isinstance(root, str) and root != ""


def _live_tokens(segment: Segment) -> int:
    return sum(file.length for index, file in enumerate(segment.files) if index not in segment.masked)
