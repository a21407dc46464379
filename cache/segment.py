"""One immutable piece of a frozen index: a token array and a trie over it, both memory-mapped.

A directory with ``tokens`` (uint32, documents behind one another, a separator after each), ``documents``
(JSON) and the trie's files. It is part of an index when the manifest names it, together with its checksums.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cache import gram_trie
from cache.durable import sync_directory, write_synced
from cache.gram_trie import SEPARATOR
from cache.ngrams import Match

FORMAT = f"1-{sys.byteorder}-{gram_trie.GRAM}"  # another format is another index
PARTS = ("tokens", "documents", *gram_trie.PARTS)


class SegmentDamagedError(Exception):
    """A segment's files are missing or not what was written: drop it and index its files again."""


class IndexedFile(NamedTuple):
    """A file as it was when it was indexed."""

    path: str  # relative to the root, with "/"
    size: int  # bytes
    mtime_ns: int
    digest: str  # of the content
    start: int = 0  # of its tokens in the segment
    length: int = 0  # tokens


class Segment:
    """A verified, mapped segment. Masked files are those of which something newer is known elsewhere."""

    def __init__(self, directory: Path, checksums: dict[str, str]) -> None:
        """Verifies the checksums, then maps the files; raises SegmentDamagedError."""
        verify(directory, checksums)
        self.name = directory.name
        self.files = [IndexedFile(*row) for row in json.loads((directory / "documents").read_bytes())]
        self.masked: set[int] = set()  # indices of files
        self._starts = [file.start for file in self.files]
        self.tokens = gram_trie.map_array(directory / "tokens")
        self._trie = gram_trie.GramTrie(directory)

    def hits(self, key: str, back: Sequence[int]) -> list[tuple[int, int]]:
        """(agreeing tokens, position) of each place of a gram; ``back``: the context, last token first."""
        tokens = self.tokens
        masked = self.masked
        hits = []
        for position in self._trie.positions(key):
            if masked and bisect_right(self._starts, position) - 1 in masked:
                continue
            length = gram_trie.GRAM
            at = position - length
            for token in back[length:]:
                if at < 0 or tokens[at] != token:
                    break
                length += 1
                at -= 1
            hits.append((length, position))
        return hits

    def path_at(self, position: int) -> str:
        """The file that holds a position."""
        return self.files[bisect_right(self._starts, position) - 1].path

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match, within its file."""
        following = self.tokens[match.at + 1 : match.at + 1 + count].tolist()
        return following[: following.index(SEPARATOR)] if SEPARATOR in following else following

    def tokens_of(self, file: IndexedFile) -> array[int]:
        """The tokens of one file."""
        return array("I", self.tokens[file.start : file.start + file.length])


def write(directory: Path, contents: Sequence[tuple[IndexedFile, Sequence[int]]]) -> dict[str, str]:
    """Writes a new segment and returns its checksums; nothing refers to it yet."""
    directory.mkdir(mode=0o700, parents=True)
    flat = array("I")
    files = []
    for file, tokens in contents:
        files.append(file._replace(start=len(flat), length=len(tokens)))
        flat.extend(tokens)
        flat.append(SEPARATOR)
    gram_trie.write(directory, np.frombuffer(flat, np.uint32))
    write_synced(directory / "tokens", memoryview(flat).cast("B"))
    write_synced(directory / "documents", json.dumps(files, separators=(",", ":")).encode())
    sync_directory(directory)
    return {part: _checksum(directory / part) for part in PARTS}


def verify(directory: Path, checksums: dict[str, str]) -> None:
    """Raises SegmentDamagedError unless every file is byte for byte what was written."""
    for part in PARTS:
        try:
            found = _checksum(directory / part)
        except OSError as error:
            raise SegmentDamagedError(f"{directory.name}/{part}: {error.strerror}") from error
        if found != checksums.get(part):
            raise SegmentDamagedError(f"{directory.name}/{part} is not what was written")


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
