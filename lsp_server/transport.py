"""Messages over byte streams: the framing of the language server protocol on standard streams and sockets.

Standard input is read by a thread of its own, as not every platform and not every kind of standard input can
be waited for; standard output is written by another, so that a client that does not read cannot stop the
event loop.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from lsp_server.framing import FramingError, Header, decoded

READ_SIZE = 1 << 16


class Writer(Protocol):
    """Where a protocol object sends its bytes."""

    def write(self, data: bytes) -> Any: ...

    def close(self) -> Any: ...


async def read_message(reader: asyncio.StreamReader) -> Any:
    """The next message, decoded; None at the stream's end. Raises `FramingError`.

    A body that is no JSON, or null, is ``...``.
    """
    header = Header()
    while not header.take(line := await reader.readline()):
        if not line:
            return None
    assert header.length is not None
    try:
        return decoded(await reader.readexactly(header.length))
    except asyncio.IncompleteReadError:
        return None


async def converse(reader: asyncio.StreamReader, receive: Callable[[Any], None]) -> None:
    """Hands every message to ``receive``, in order, until the stream ends."""
    while True:
        try:
            message = await read_message(reader)
        except (FramingError, ConnectionError, ValueError):
            return
        if message is None:
            return
        receive(message)
        await asyncio.sleep(0)  # a burst must not keep answers from going out


class StandardOutput:
    """Writes from a thread; ``stream`` belongs to it from now on."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        self._queue.put(data)

    def close(self, timeout_s: float = 0.5) -> None:
        """Writes what is queued; gives up when nobody reads."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError:
                return  # nobody reads any more; the end of standard input will tell


def standard_streams() -> tuple[asyncio.StreamReader, StandardOutput]:
    """Standard input and output for the protocol alone: what else is printed from now on goes to stderr."""
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    descriptor = sys.stdin.fileno()

    def feed() -> None:
        try:
            while data := os.read(descriptor, READ_SIZE):
                loop.call_soon_threadsafe(reader.feed_data, data)
            loop.call_soon_threadsafe(reader.feed_eof)
        except (OSError, RuntimeError):  # closed under us: the process is ending
            pass

    threading.Thread(target=feed, name="stdin", daemon=True).start()
    return reader, StandardOutput(out)
