"""The framing of the protocol's messages: headers and bodies as bytes; standard library only.

A header block has the two fields of the protocol and nothing else. What else is said does not come from a
client of ours: a web page can make a browser post to a local port, but not without the request line and the
fields of HTTP, and so it is not listened to.
"""

from __future__ import annotations

import json
from typing import IO, Any

LENGTH_DIGITS = 9  # no message has a gigabyte; who says so does not speak the protocol
LONGEST_LINE = 1 << 12  # of a header
FIELDS = frozenset({b"content-length", b"content-type"})


class FramingError(ValueError):
    """The stream does not carry messages; nothing after this can be understood."""


class Header:
    """The header block of one message, taken line by line."""

    def __init__(self) -> None:
        self.length: int | None = None  # of the body, in bytes; known once the block is complete

    def take(self, line: bytes) -> bool:
        """Takes a line; True where it ends the block. Raises `FramingError`."""
        if not line.strip():
            return self.length is not None
        name, _, value = line.partition(b":")
        name, value = name.strip().lower(), value.strip()
        if name not in FIELDS or not line.endswith(b"\n"):
            raise FramingError(f"no header of a message: {line[:80]!r}")
        if name == b"content-length":
            if not value.isdigit() or len(value) > LENGTH_DIGITS:
                raise FramingError(f"no length: {line[:80]!r}")
            self.length = int(value)
        return False


def frame(message: Any) -> bytes:
    """A message as bytes."""
    return frame_body(json.dumps(message, separators=(",", ":")).encode())


def frame_body(body: bytes) -> bytes:
    """An encoded message with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def read_body(stream: IO[bytes]) -> bytes | None:
    """The next message's bytes; None at the stream's end or where it carries no messages."""
    header = Header()
    try:
        while not header.take(line := stream.readline(LONGEST_LINE)):
            if not line:
                return None
    except FramingError:
        return None
    length = header.length
    pieces = []
    while length:
        piece = stream.read(length)
        if not piece:
            return None
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def decoded(body: bytes) -> Any:
    """A body's message; ``...`` for one that is no JSON, or null."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return ...
    return ... if message is None else message


def read_message_from(stream: IO[bytes]) -> Any:
    """The next message, decoded; None at the end, and for a body that is no message."""
    body = read_body(stream)
    message = None if body is None else decoded(body)
    return None if message is ... else message
