"""Arrays of whole numbers below 2**24 on disk, three bytes each, little-endian, mapped and read without copying.

A token id, and a position in a segment, needs no fourth byte.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

WIDTH = 3  # bytes a number
LIMIT = 1 << 8 * WIDTH  # numbers are below this


def pack(numbers: npt.NDArray[np.uint32]) -> bytes:
    """The bytes of an array. Raises ValueError where a number does not fit."""
    if len(numbers) and int(numbers.max()) >= LIMIT:
        raise ValueError(f"{int(numbers.max())} does not fit in {WIDTH} bytes")
    return np.ascontiguousarray(numbers, "<u4").view(np.uint8).reshape(-1, 4)[:, :WIDTH].tobytes()


def pack_few(numbers: Sequence[int]) -> bytes:
    """The same for a few numbers, for which numpy would be slow."""
    wide = struct.pack(f"<{len(numbers)}I", *numbers)
    packed = bytearray(len(numbers) * WIDTH)
    packed[0::3], packed[1::3], packed[2::3] = wide[0::4], wide[1::4], wide[2::4]
    return bytes(packed)


@lru_cache(maxsize=256)
def unpacker(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """A function that gives the ``count`` numbers in bytes that were packed."""
    read = struct.Struct(f"<{count}I").unpack

    def unpack(data: bytes) -> tuple[int, ...]:
        wide = bytearray(4 * count)
        wide[0::4], wide[1::4], wide[2::4] = data[0::3], data[1::3], data[2::3]
        return read(wide)

    return unpack


class PackedArray:
    """A mapped file of packed numbers."""

    def __init__(self, path: Path) -> None:
        self._count = path.stat().st_size // WIDTH
        if self._count == 0:  # an empty file cannot be mapped
            self.data: mmap.mmap | bytes = b""
            return
        with path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return self._count

    def between(self, start: int, end: int) -> list[int]:
        """The numbers from index ``start`` up to ``end`` (not included)."""
        data = self.data[WIDTH * start : WIDTH * end]
        return list(unpacker(len(data) // WIDTH)(data))
