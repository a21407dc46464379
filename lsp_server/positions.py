"""Columns of a line in the three position encodings of LSP 3.17 (utf-8, utf-16, utf-32), against code points.

A column past the end means the end; one inside a character means its start. Both directions are pure
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]
ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
DEFAULT_ENCODING: Encoding = "utf-16"


def choose_encoding(offered: object) -> Encoding:
    """The first encoding of the client's list that we speak; utf-16 where it offers none."""
    if isinstance(offered, Sequence) and not isinstance(offered, str):
        for name in offered:
            if name in ENCODINGS:
                return ENCODINGS[ENCODINGS.index(name)]  # plain, where the client's may be an enum
    return DEFAULT_ENCODING


def to_index(line: str, column: int, encoding: Encoding) -> int:
    """The code point index of a protocol column in ``line`` (the line without its end)."""
    if column <= 0:
        return 0
    if encoding == "utf-32" or line.isascii():
        return min(column, len(line))
    if encoding == "utf-16":
        units = line.encode("utf-16-le", "surrogatepass")
        if 2 * column >= len(units):
            return len(line)
        if _is_surrogate(units, column, 0xDC) and _is_surrogate(units, column - 1, 0xD8):
            column -= 1
        return len(units[: 2 * column].decode("utf-16-le", "surrogatepass"))
    data = line.encode("utf-8", "surrogatepass")
    if column >= len(data):
        return len(line)
    while data[column] & 0xC0 == 0x80:
        column -= 1
    return len(data[:column].decode("utf-8", "surrogatepass"))


def to_column(line: str, index: int, encoding: Encoding) -> int:
    """The protocol column of a code point index in ``line``."""
    head = line[: max(index, 0)]
    if encoding == "utf-32" or head.isascii():
        return len(head)
    if encoding == "utf-16":
        return len(head.encode("utf-16-le", "surrogatepass")) // 2
    return len(head.encode("utf-8", "surrogatepass"))


def length_from_utf16(text: str, units: int) -> int:
    """Code points in the first ``units`` UTF-16 units of ``text`` (lengths in accept notifications)."""
    return to_index(text, units, "utf-16")


def _is_surrogate(units: bytes, index: int, half: int) -> bool:
    return 2 * index + 1 < len(units) and units[2 * index + 1] & 0xFC == half
