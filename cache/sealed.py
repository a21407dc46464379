"""safetensors files that tell whether they are still what was written: each tensor's CRC-32 is in their header.

The whole check costs little more than reading, so it is made at every load. Of files made by others, and of those
too large to be read for nothing, `sample` looks at a piece of every megabyte.
"""

from __future__ import annotations

import json
import math
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

DTYPE_BYTES = {"I8": 1, "U8": 1, "BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I32": 4, "I64": 8}
_FIELD = "crc32"  # of the header's metadata
_BLOCK = 1 << 20
_SAMPLE = 4096  # bytes of every block
_MOST_HEADER = 100_000_000


class DamagedFileError(Exception):
    """The file is not what was written to it."""


def seal(tensors: Iterable[tuple[str, tuple[int, ...], memoryview]]) -> dict[str, str]:
    """Metadata to write a file of these tensors (name, shape, bytes) with, for `SealedFile` to read."""
    sums = {name: zlib.crc32(data, _start(name, shape)) for name, shape, data in tensors}
    return {"format": "pt", _FIELD: json.dumps(sums, separators=(",", ":"))}


class SealedFile:
    """A file with the metadata of `seal`. Threads may share it; it stays readable while the file is replaced.

    Everything raises DamagedFileError where the file is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        self._lock = threading.Lock()
        try:
            length = int.from_bytes(self._file.read(8), "little")
            if not 2 <= length <= _MOST_HEADER:
                raise ValueError("no header")
            self._header: dict[str, Any] = json.loads(self._file.read(length))
            self._sums: Mapping[str, int] = json.loads(self._header.pop("__metadata__")[_FIELD])
            self._start = 8 + length
            end = self._start + max((x["data_offsets"][1] for x in self._header.values()), default=0)
            whole = self._header.keys() == self._sums.keys() and path.stat().st_size == end
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            self._file.close()
            raise DamagedFileError(f"{path} is damaged: its header cannot be read ({error})") from error
        if not whole:
            self._file.close()
            raise DamagedFileError(f"{path} is damaged: it is not whole")

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def __iter__(self) -> Iterator[str]:
        return iter(self._header)

    def read(self, name: str) -> tuple[str, list[int], bytearray]:
        """A tensor's dtype, shape and bytes, in memory of their own."""
        dtype, shape, begin, length = self._entry(name)
        data = bytearray(length)
        self._fill(data, begin)
        self._compare(name, zlib.crc32(data, _start(name, shape)))
        return dtype, shape, data

    def check(self, name: str) -> str:
        """Reads a tensor for nothing but its sum; its dtype, which the sum does not cover."""
        dtype, shape, begin, length = self._entry(name)
        block = memoryview(bytearray(min(_BLOCK, length)))
        found = _start(name, shape)
        for at in range(0, length, _BLOCK):
            piece = block[: min(_BLOCK, length - at)]
            self._fill(piece, begin + at)
            found = zlib.crc32(piece, found)
        self._compare(name, found)
        return dtype

    def _entry(self, name: str) -> tuple[str, list[int], int, int]:
        try:
            entry = self._header[name]
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if end - begin == math.prod(shape) * DTYPE_BYTES[dtype]:
                return dtype, shape, self._start + begin, end - begin
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{self.path} is damaged: {name} is not described rightly") from error
        raise DamagedFileError(f"{self.path} is damaged: {name} is not described rightly")

    def _fill(self, data: bytearray | memoryview, begin: int) -> None:
        with self._lock:
            self._file.seek(begin)
            count = self._file.readinto(data)
        if count != len(data):
            raise DamagedFileError(f"{self.path} is damaged: it is not whole")

    def _compare(self, name: str, found: int) -> None:
        if found != self._sums[name]:
            raise DamagedFileError(f"{self.path} is damaged: {name} is not what was written")


def is_sealed_and_whole(path: Path) -> bool:
    """Whether a file has its sums and agrees with all of them."""
    try:
        file = SealedFile(path)
        for name in file:
            file.check(name)
    except (DamagedFileError, OSError):
        return False
    return True


def sample(path: Path) -> str:
    """A sum over a piece of every megabyte of a file, its beginning and its end, and its size."""
    size = path.stat().st_size
    found = zlib.crc32(str(size).encode())
    with path.open("rb", buffering=0) as file:
        for at in (*range(0, size, _BLOCK), max(0, size - _SAMPLE)):
            file.seek(at)
            found = zlib.crc32(file.read(_SAMPLE), found)
    return f"{found:08x}"


def _start(name: str, shape: Iterable[int]) -> int:
    """The sum to go on from: a tensor's name and shape belong to what was written."""
    return zlib.crc32(f"{name} {list(shape)}".encode())
