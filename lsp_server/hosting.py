"""Runs servers on an event loop: one on standard streams, or one for each connection to a socket.

A client's end, however it comes, ends its connection; the process ends with its only client, or, on a socket,
after some time without any.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsp_server.daemon import code_version
from lsp_server.parent import PARENT_CHECK_S, is_alive
from lsp_server.server import CompletionServer
from lsp_server.service import CompletionService
from lsp_server.status import Status
from lsp_server.telemetry import TelemetryWriter
from lsp_server.transport import Writer, converse, standard_streams

if TYPE_CHECKING:
    from lsp_server.sources import Sources

SWITCH_INTERVAL_S = 0.0003  # the worker's Python code gives way to the event loop this often
LOAD_DELAY_S = 0.2  # importing torch blocks the loop for moments: `initialize` goes first


class Host:
    """The connections of one process."""

    def __init__(
        self,
        service: CompletionService,
        writer: TelemetryWriter,
        idle_exit_s: float = 0.0,
        sources: Sources | None = None,
    ) -> None:
        """``idle_exit_s``: a socket's host ends after this long without a client; 0: never."""
        self._sources = sources
        self.service = service
        self.writer = writer
        self.idle_exit_s = idle_exit_s
        self._connections = 0
        self._finished = asyncio.Event()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._retired = self._is_broken = False
        self._stop_listening: Callable[[], None] = lambda: None
        self._code_version = code_version()

    async def on_standard_streams(self) -> int:
        """Serves the one client on standard input and output; returns the exit code."""
        self._prepare()
        reader, writer = standard_streams()
        code = await self._connection(reader, writer, watch_parent=True)
        writer.close()
        return code

    async def on_socket(self, path: Path) -> int:
        """Serves every client that connects to a Unix socket; the file is removed at the end."""
        old_mask = os.umask(0o177)
        try:
            listening = await asyncio.start_unix_server(self._accept, path)
        finally:
            os.umask(old_mask)
        identity = path.stat()
        self._stop_listening = lambda: _remove_own(path, identity)
        try:
            return await self._serve_until_finished(listening)
        finally:
            self._stop_listening()

    def stop_sources(self) -> None:
        """Ends the indexers' processes."""
        if self._sources is not None:
            self._sources.stop()

    def retire(self) -> None:
        """No more new clients; ends with the last of those that are there."""
        self._stop_listening()
        self._retired = True

    async def on_tcp(self, host: str, port: int, announce: Callable[[int], None]) -> int:
        """Serves every client that connects; ``announce`` gets the port in use."""
        listening = await asyncio.start_server(self._accept, host, port)
        announce(listening.sockets[0].getsockname()[1])
        return await self._serve_until_finished(listening)

    async def _serve_until_finished(self, listening: asyncio.Server) -> int:
        self._prepare()
        self.service.listen(self._watch_load)
        self._watch_idle()
        async with listening:
            await self._finished.wait()
        return 0

    def _prepare(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        loop = asyncio.get_running_loop()
        loop.call_later(LOAD_DELAY_S, self.service.start)
        for name in ("SIGTERM", "SIGINT"):
            with contextlib.suppress(NotImplementedError, AttributeError):
                loop.add_signal_handler(getattr(signal, name), self._finished.set)

    def _watch_load(self, status: Status) -> None:
        """Who comes after a load that failed gets a new process, which may load."""
        if status.kind == "error":
            self._is_broken = True
            if self._connections:
                self.retire()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        if self._is_broken:  # it is told why; the next one has another process
            self.retire()
        self._watch_idle()
        try:
            await self._connection(reader, writer)
        finally:
            self._connections -= 1
            self._watch_idle()
            writer.close()

    async def _connection(
        self, reader: asyncio.StreamReader, writer: Writer, watch_parent: bool = False
    ) -> int:
        server = CompletionServer(self.service, self.writer, self._code_version, self.retire, self._sources)
        left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        server.protocol.set_writer(writer)
        server.protocol.on_exit = lambda clean: None if left.done() else left.set_result(0 if clean else 1)
        waits: list[Awaitable[Any]] = [left, converse(reader, server.protocol.receive), self._finished.wait()]
        if watch_parent:
            waits.append(_parent_gone(server))
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        server.end()
        return left.result() if left.done() and not left.cancelled() else 0

    def _watch_idle(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._connections == 0 and (self._retired or self.idle_exit_s > 0):
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(0.0 if self._retired else self.idle_exit_s, self._finished.set)


def _remove_own(path: Path, identity: os.stat_result) -> None:
    """Removes a socket's file, unless another process has put its own there."""
    with contextlib.suppress(OSError):
        if os.path.samestat(path.stat(), identity):
            path.unlink()


async def _parent_gone(server: CompletionServer) -> None:
    """Returns when the editor's process is gone."""
    while server.client_pid is None:
        await asyncio.sleep(PARENT_CHECK_S)
    if not is_alive(server.client_pid):  # another name space: nothing to watch
        await asyncio.Event().wait()
    while is_alive(server.client_pid):
        await asyncio.sleep(PARENT_CHECK_S)
