"""One immutable piece of a frozen index: a token array and a trie over it, both memory-mapped.

A directory with ``tokens`` (packed, documents behind one another, a separator after each), ``documents``
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
from cache.ngrams import MAX_MATCH, Match
from cache.packed import WIDTH, PackedArray, pack, pack_few

FORMAT = f"2-{sys.byteorder}-{gram_trie.GRAM}"  # another format is another index
_BEFORE_BYTES = WIDTH * (MAX_MATCH - gram_trie.GRAM)
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
        self.tokens = PackedArray(directory / "tokens")
        self._data = self.tokens.data
        self._positions = gram_trie.GramTrie(directory).positions

    def positions(self, key: str) -> Sequence[int]:
        """Where a gram ends, the most recent first, outside of masked files."""
        found = self._positions(key)
        if found and self.masked:
            starts, masked = self._starts, self.masked
            return [position for position in found if bisect_right(starts, position) - 1 not in masked]
        return found

    def hits(self, positions: Sequence[int], before: Before) -> list[tuple[int, int]]:
        """(agreeing tokens, position) of places of a gram; ``before``: the context before that gram."""
        data, number, most = self._data, before.number, before.tokens
        hits = []
        for position in positions:
            end = WIDTH * (position + 1 - gram_trie.GRAM)
            if end >= _BEFORE_BYTES:
                found = int.from_bytes(data[end - _BEFORE_BYTES : end], "little")
            else:  # the segment begins here
                found = int.from_bytes(data[:end], "little") << 8 * (_BEFORE_BYTES - end)
            agree = (8 * _BEFORE_BYTES - (found ^ number).bit_length()) // (8 * WIDTH)
            hits.append((gram_trie.GRAM + min(agree, most, end // WIDTH), position))
        return hits

    def path_at(self, position: int) -> str:
        """The file that holds a position."""
        return self.files[bisect_right(self._starts, position) - 1].path

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match, within its file."""
        file = self.files[bisect_right(self._starts, match.at) - 1]
        return self.tokens.between(match.at + 1, min(match.at + 1 + count, file.start + file.length))

    def tokens_of(self, file: IndexedFile) -> array[int]:
        """The tokens of one file."""
        return array("I", self.tokens.between(file.start, file.start + file.length))


class Before:
    """The tokens of a context before its last gram, as one number, the last token in its highest bytes.

    So is what stands before a place in a segment; the highest bit in which the two differ tells how many tokens
    agree, whatever their number, in three operations.
    """

    __slots__ = ("number", "tokens")

    def __init__(self, context: Sequence[int]) -> None:
        before = context[-MAX_MATCH : -gram_trie.GRAM]
        self.tokens = len(before)
        self.number = int.from_bytes(pack_few(before), "little") << 8 * (_BEFORE_BYTES - WIDTH * len(before))


def write(directory: Path, contents: Sequence[tuple[IndexedFile, Sequence[int]]]) -> dict[str, str]:
    """Writes a new segment and returns its checksums; nothing refers to it yet."""
    directory.mkdir(mode=0o700, parents=True)
    flat = array("I")
    files = []
    for file, tokens in contents:
        files.append(file._replace(start=len(flat), length=len(tokens)))
        flat.extend(tokens)
        flat.append(SEPARATOR)
    whole = np.frombuffer(flat, np.uint32)
    gram_trie.write(directory, whole)
    write_synced(directory / "tokens", pack(whole))
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
