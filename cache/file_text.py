"""Reads a file's text as the index wants it, or says why it is not wanted.

Opened so that nothing can block or be followed: a file may have become a pipe or a link since it was listed.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from charset_normalizer import from_bytes

MAX_BYTES = 1 << 20
MAX_LINE = 5_000  # characters; no one writes such a line by hand
MAX_MEAN_LINE = 300
GUESS_BYTES = 1 << 16  # of a file that is not UTF-8, for guessing what it is

_BOMS = (  # the longer first: UTF-32 begins like UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GENERATED = re.compile(r"@generated|\bDO NOT (EDIT|MODIFY)\b|\bauto-?generated\b", re.IGNORECASE)
_HEAD = 1_000  # characters in which a generator signs its work
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x7f-\x84\x86-\x9f]")


class UnwantedError(Exception):
    """A file is not indexed; the argument is the reason, one of ``workspace.REASONS``."""


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> tuple[bytes, os.stat_result]:
    """The content of a regular file and what the file was then; raises UnwantedError."""
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        raise UnwantedError("vanished") from None
    except (OSError, ValueError):  # ValueError: a NUL in the name
        raise UnwantedError("unreadable") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnwantedError("special")
        try:
            data = file.read(max_bytes + 1)  # its size may be a lie, or grow
        except OSError:
            raise UnwantedError("unreadable") from None
    if len(data) > max_bytes:
        raise UnwantedError("huge")
    return data, status


def decode(data: bytes) -> str:
    """Text with ``\\n`` line ends; raises UnwantedError for what is no text or not written by hand."""
    text = _decoded(data).replace("\r\n", "\n").replace("\r", "\n")
    if _GENERATED.search(text, 0, _HEAD):
        raise UnwantedError("generated")
    lines = text.count("\n") + 1
    if len(text) > MAX_MEAN_LINE * lines + MAX_LINE or any(length > MAX_LINE for length in _lengths(text)):
        raise UnwantedError("minified")
    return text


def _decoded(data: bytes) -> str:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return data[len(bom) :].decode(encoding)
            except UnicodeDecodeError:
                raise UnwantedError("encoding") from None
    if b"\0" in data:
        raise UnwantedError("binary")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    guess = from_bytes(data[:GUESS_BYTES]).best()
    try:
        text = data.decode(guess.encoding) if guess is not None else ""
    except (UnicodeDecodeError, LookupError):
        text = ""
    if not text or _CONTROLS.search(text):
        raise UnwantedError("encoding" if guess is not None else "binary")
    return text


def _lengths(text: str) -> Iterator[int]:
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield end - start
        start = end + 1
    yield len(text) - start
