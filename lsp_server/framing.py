"""The framing of the protocol's messages for blocking streams; standard library only."""

from __future__ import annotations

import json
from typing import IO, Any

LENGTH_DIGITS = 9  # no message has a gigabyte; who says so does not speak the protocol


def frame(message: Any) -> bytes:
    """A message as bytes."""
    return frame_body(json.dumps(message, separators=(",", ":")).encode())


def frame_body(body: bytes) -> bytes:
    """An encoded message with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def read_body(stream: IO[bytes]) -> bytes | None:
    """The next message's bytes; None at the stream's end or where it carries no messages."""
    length = None
    while True:
        line = stream.readline()
        if not line:
            return None
        if not line.strip():
            if length is None:
                continue
            break
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            if not value.strip().isdigit() or len(value.strip()) > LENGTH_DIGITS:
                return None
            length = int(value)
    pieces = []
    while length:
        piece = stream.read(length)
        if not piece:
            return None
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def read_message_from(stream: IO[bytes]) -> Any:
    """The next message, decoded; None at the end, and for a body that is no JSON."""
    body = read_body(stream)
    try:
        return None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None
