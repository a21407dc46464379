"""The n-gram index of a workspace's files on disk, as it is read: mapped, never changed.

One directory per (tokenizer, format, workspace root), with a manifest that names the segments in order of age
and the files in each that are out of date. ``index_builder`` writes it, and makes damaged segments anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cache.durable import replace_synced
from cache.gram_trie import GRAM, gram_key
from cache.ngrams import Match
from cache.segment import FORMAT, Before, Segment, SegmentDamagedError

MANIFEST = "manifest.json"


def directory_for(base: Path, root: str | Path, tokenizer_hash: str) -> Path:
    """Where the index of a workspace root is kept below ``base``."""
    identity = "\0".join((os.path.realpath(root), tokenizer_hash, FORMAT))
    return base / hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def indexes_of(base: Path, root: str | Path) -> list[Path]:
    """The index directories of a workspace root, one per tokenizer and format."""
    real = os.path.realpath(root)
    return sorted(
        path.parent for path in base.glob(f"*/{MANIFEST}") if Manifest.read(path.parent).root == real
    )


@dataclass
class Manifest:
    """What the index consists of; replaced in one step, so a reader sees the old or the new."""

    root: str = ""
    segments: dict[str, dict[str, str]] = field(default_factory=dict)  # checksums; oldest first
    outdated: dict[str, list[int]] = field(default_factory=dict)  # indices of files

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """The manifest in a directory; an empty one where none can be read."""
        try:
            data = json.loads((directory / MANIFEST).read_bytes())
            return cls(data["root"], dict(data["segments"]), dict(data["outdated"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def write(self, directory: Path) -> None:
        """Puts this manifest in force."""
        replace_synced(directory / MANIFEST, json.dumps(self.__dict__).encode())


class FrozenIndex:
    """The segments of one workspace. ``refresh`` may run in any thread; queries see the old or new set."""

    def __init__(self, directory: Path) -> None:
        """Reads nothing yet: call ``refresh``, in the background, since it verifies checksums."""
        self.directory = directory
        self.damaged: list[str] = []  # why segments were dropped
        self._segments: tuple[Segment, ...] = ()  # newest first
        self._overridden: set[str] = set()
        self._manifest = Manifest()  # the one that the segments are of
        self._lock = threading.Lock()  # of the masks: both of the above decide on them

    @property
    def token_count(self) -> int:
        """Tokens that can be found, separators included."""
        return sum(len(segment.tokens) for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Newest first."""
        return self._segments

    def refresh(self) -> None:
        """Takes over what the manifest now says; segments new here are verified first."""
        manifest = Manifest.read(self.directory)
        known = {segment.name: segment for segment in self._segments}
        segments = []
        for name, checksums in manifest.segments.items():
            try:
                segment = known.get(name) or Segment(self.directory / name, checksums)
            except (SegmentDamagedError, OSError, ValueError, TypeError) as error:
                self.damaged.append(str(error))
                continue
            segments.append(segment)
        with self._lock:
            self._manifest = manifest
            for segment in segments:
                self._mask(segment)
            self._segments = tuple(reversed(segments))

    def override(self, paths: set[str]) -> None:
        """Names the files (relative to the root) whose newer text is in the hot index."""
        with self._lock:
            if paths == self._overridden:
                return
            self._overridden = set(paths)
            for segment in self._segments:
                self._mask(segment)

    def query(self, context: Sequence[int], max_hits: int = 8) -> list[Match]:
        """The longest, then most recent, places where the context's end occurs; at least 4 tokens agree."""
        segments = self._segments
        if len(context) < GRAM or not segments:
            return []
        key = gram_key(context[-GRAM:])
        before: Before | None = None
        hits: list[tuple[int, int, int]] = []
        for age, segment in enumerate(segments):
            positions = segment.positions(key)
            if positions:
                if before is None:
                    before = Before(context)
                hits += [(length, -age, position) for length, position in segment.hits(positions, before)]
        hits.sort(reverse=True)
        del hits[max_hits:]
        return [
            Match(length, segments[-age].path_at(position), segments[-age], position)
            for length, age, position in hits
        ]

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""
        segment: Segment = match.place
        return segment.continuation(match, count)

    def _mask(self, segment: Segment) -> None:
        overridden = self._overridden
        masked = set(self._manifest.outdated.get(segment.name, ()))
        if overridden:
            masked.update(i for i, file in enumerate(segment.files) if file.path in overridden)
        segment.masked = masked
