"""From a short gram of token ids to the positions where it ends: immutable, memory-mapped.

A marisa-trie gives each gram a dense number; an array gives, by that number, the gram's only position (most
have one) or where its list of positions stands. Keeping the positions beside the trie, not in its records,
makes building and queries faster and the files smaller (``python -m benchmarks.index`` measures both).

A gram is written as a string, one code point a token: id + 0x100, with the surrogates left out (no NUL, which
gives wrong answers). Grams are sorted and counted in numpy.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Sequence
from pathlib import Path

import marisa_trie
import numpy as np
import numpy.typing as npt

from cache.durable import sync, write_synced
from cache.packed import LIMIT

GRAM = 4  # tokens
MAX_POSITIONS = 32  # most recent positions kept of one gram
SEPARATOR = LIMIT - 1  # stands between documents: no token has this id
MOST_TOKENS = 1 << 26  # of a segment: so many places can be told apart
PARTS = ("trie", "places", "lists")

# a place is a position, or this flag, the number of positions less one, and where their list begins
_LISTED = 0x8000_0000
_START_BITS = 26
_START_MASK = (1 << _START_BITS) - 1
_COUNT_MASK = MAX_POSITIONS - 1
_FIRST_SURROGATE = 0xD800
_SURROGATES = 0x800

Tokens = npt.NDArray[np.uint32]


def gram_key(tokens: Sequence[int]) -> str:
    """The key of one gram."""
    limit = _FIRST_SURROGATE - 0x100
    return "".join([chr(t + 0x100 if t < limit else t + (0x100 + _SURROGATES)) for t in tokens])


class GramTrie:
    """A saved trie, mapped. Verify its files first: a damaged one can end the process."""

    def __init__(self, directory: Path) -> None:
        self._trie = marisa_trie.Trie()
        self._trie.mmap(str(directory / "trie"))
        self._get = self._trie.get
        self._places = map_array(directory / "places")
        self._lists = map_array(directory / "lists")

    def positions(self, key: str) -> Sequence[int]:
        """Where a gram ends, the most recent first."""
        number = self._get(key)
        if number is None:
            return ()
        place = self._places[number]
        if place < _LISTED:
            return (place,)
        start = place & _START_MASK
        return self._lists[start : start + (place >> _START_BITS & _COUNT_MASK) + 1].tolist()


def write(directory: Path, tokens: Tokens) -> None:
    """Builds and saves the trie over a token array; grams that contain a separator are left out.

    Raises ValueError where there are MOST_TOKENS or more.
    """
    if len(tokens) >= MOST_TOKENS:
        raise ValueError(f"{len(tokens)} tokens are too many for one segment")
    positions, grams, starts = _recent(tokens)
    counts = np.diff(np.append(starts, len(positions)))
    single = counts == 1
    lists, list_starts = _lists(positions, starts[~single], counts[~single])
    values = np.empty(len(starts), np.uint32)
    values[single] = positions[starts[single]]
    values[~single] = _LISTED | (counts[~single] - 1) << _START_BITS | list_starts
    keys = _strings(grams[starts])
    trie = marisa_trie.Trie(keys)
    places = np.empty_like(values)
    places[np.fromiter(map(trie.__getitem__, keys), np.int64, len(keys))] = values
    write_synced(directory / "trie", b"")  # made private first, then written by the library
    trie.save(str(directory / "trie"))
    sync(directory / "trie")
    write_synced(directory / "places", places.tobytes())
    write_synced(directory / "lists", lists.tobytes())


def map_array(path: Path) -> memoryview:
    """A file of native uint32 as a read-only view."""
    if path.stat().st_size == 0:  # cannot be mapped
        return memoryview(array("I"))
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("I")


def _recent(tokens: Tokens) -> tuple[Tokens, Tokens, npt.NDArray[np.int64]]:
    """Positions and grams, sorted by gram and then most recent first, and where each gram begins.

    Of equal grams the MAX_POSITIONS most recent are kept.
    """
    if len(tokens) < GRAM:
        return np.empty(0, np.uint32), np.empty((0, GRAM), np.uint32), np.empty(0, np.int64)
    grams = np.lib.stride_tricks.sliding_window_view(tokens, GRAM)
    whole = np.flatnonzero((grams != SEPARATOR).all(axis=1))[::-1]
    grams = grams[whole]
    order = np.lexsort([grams[:, column] for column in reversed(range(GRAM))])  # stable: most recent first
    grams = grams[order]
    kept = _ranks(_begins(grams)) < MAX_POSITIONS
    grams = grams[kept]
    positions = (whole[order[kept]] + (GRAM - 1)).astype(np.uint32)
    return positions, grams, np.flatnonzero(_begins(grams))


def _begins(grams: Tokens) -> npt.NDArray[np.bool_]:
    """Whether a row differs from the one before it."""
    begins = np.ones(len(grams), bool)
    begins[1:] = (grams[1:] != grams[:-1]).any(axis=1)
    return begins


def _ranks(begins: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Each row's place among its equals, from 0."""
    index = np.arange(len(begins))
    return index - np.maximum.accumulate(np.where(begins, index, 0))


def _lists(
    positions: Tokens, starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[Tokens, npt.NDArray[np.int64]]:
    """Lists behind one another, and where each begins."""
    begins = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    return positions[np.repeat(starts, counts) + within], begins


def _strings(grams: Tokens) -> list[str]:
    if len(grams) == 0:
        return []
    points = grams + np.uint32(0x100)
    points = np.where(points >= _FIRST_SURROGATE, points + np.uint32(_SURROGATES), points)
    strings: list[str] = np.ascontiguousarray(points, "<u4").view(f"<U{GRAM}")[:, 0].tolist()
    return strings
