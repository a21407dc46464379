"""The thin front end: the editor's server process, which passes messages to the process that owns the model.

It keeps what is needed to take up the conversation with a new process when the old one is gone: `initialize`,
the last settings and folders, a mirror of the open documents. Standard library only: it starts in a moment.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from lsp_server.daemon import DaemonError, EngineChoice, join
from lsp_server.framing import decoded, frame, frame_body, read_body
from lsp_server.memory import SessionMemory
from lsp_server.parent import PARENT_CHECK_S, is_alive
from lsp_server.settings import resolve

INTERNAL_ERROR = -32603
LAST_WORDS_S = 0.5  # for what the editor said before it went
REPLAY = "specComplete-replay"
FAILURES_BEFORE_REST = 5
RETRY_S = 0.2
REST_S = 10.0  # between attempts, once that many have failed


class FrontEnd:
    """Relays between the editor's streams and a connection that may be replaced."""

    def __init__(
        self, editor_in: IO[bytes], editor_out: IO[bytes], connect: Callable[[EngineChoice], socket.socket]
    ) -> None:
        self._in = editor_in
        self._out = editor_out
        self._connect = connect
        self._said: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        self._memory = SessionMemory()
        self._choice = EngineChoice()
        self._lock = threading.Lock()  # of all below, and of what is sent to the process
        self._out_lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._pending: dict[Any, str] = {}  # requests without an answer: id -> method
        self._failures = 0
        self._has_begun = False
        self._ending = threading.Event()

    def run(self) -> int:
        """Relays until the editor is gone; returns the exit code.

        This thread only reads: whatever the process that owns the model does, or while it starts, the editor's
        end is seen.
        """
        relaying = threading.Thread(target=self._relay_from_editor, name="from-editor", daemon=True)
        relaying.start()
        while (body := read_body(self._in)) is not None:
            message = decoded(body)
            if isinstance(message, dict):
                self._said.put((message, body))
                if message.get("method") == "exit":
                    break
        self._said.put(None)
        relaying.join(LAST_WORDS_S)
        if self._lock.acquire(timeout=LAST_WORDS_S):
            self._ending.set()
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
            self._lock.release()
        return 0 if self._memory.was_shut_down else 1

    def _relay_from_editor(self) -> None:
        while (said := self._said.get()) is not None:
            self._from_editor(*said)

    def _from_editor(self, message: dict[str, Any], body: bytes) -> None:
        method, request_id = message.get("method"), message.get("id")
        with self._lock:
            self._memory.from_editor(message)
            if method == "initialize":
                self._choice = _engine_choice(message.get("params"))
                self._watch_parent(message.get("params"))
                if not self._has_begun:
                    self._has_begun = True
                    threading.Thread(target=self._reconnect, name="connect", daemon=True).start()
            if method is not None and isinstance(request_id, (int, str)):  # others are refused
                self._pending[request_id] = method
            if self._connection is not None and self._send(frame_body(body)):
                return
            if method == "initialize":
                return  # sent again when there is a process
            self._answer_pending()

    def _take(self, connection: socket.socket) -> None:
        self._connection = connection
        threading.Thread(target=self._relay, args=(connection,), name="relay", daemon=True).start()

    def _send(self, data: bytes) -> bool:
        assert self._connection is not None
        try:
            self._connection.sendall(data)
        except OSError:
            return False
        return True

    def _relay(self, connection: socket.socket) -> None:
        """From the process to the editor, until the process is gone."""
        with connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while (body := read_body(stream)) is not None:
                if not self._from_process(body):
                    continue
                self._write(frame_body(body))
        with self._lock:
            if self._ending.is_set() or self._connection is not connection:
                return
            self._connection = None
            self._answer_pending()
        self._reconnect()

    def _from_process(self, body: bytes) -> bool:
        """Whether the editor gets this message."""
        message = decoded(body)
        if not isinstance(message, dict) or "method" in message:
            return isinstance(message, dict)
        request_id = message.get("id")
        with self._lock:
            if request_id == REPLAY:
                return False
            if request_id is None:
                return True  # an error about something that was no request
            method = self._pending.pop(request_id, None)
            if method == "initialize":
                self._memory.initialized_as(message)
            self._failures = 0
        return method is not None

    def _answer_pending(self) -> None:
        """Whoever waits gets null: the process that would have answered is gone."""
        for request_id, method in list(self._pending.items()):
            if method != "initialize":
                del self._pending[request_id]
                self._write(frame({"jsonrpc": "2.0", "id": request_id, "result": None}))

    def _reconnect(self) -> None:
        """Connects to a process, the first or a new one, and tells it what was said until then.

        Never on the thread that reads: while a process starts, the editor may go away.
        """
        while not self._ending.is_set():
            self._failures += 1
            if self._failures > FAILURES_BEFORE_REST:
                self._ending.wait(REST_S)
            try:
                connection = self._connect(self._choice)
            except (DaemonError, OSError) as error:
                if self._failures == FAILURES_BEFORE_REST:
                    self._give_up(f"spec-complete: {error}")
                self._ending.wait(RETRY_S)
                continue
            with self._lock:
                if self._ending.is_set():
                    connection.close()
                    return
                self._take(connection)
                initialize = next(
                    (key for key, method in self._pending.items() if method == "initialize"), None
                )
                replayed = REPLAY if initialize is None else initialize  # 0 is an id
                if all(self._send(frame(message)) for message in self._memory.replay(replayed)):
                    return
                self._connection = None

    def _give_up(self, message: str) -> None:
        """Tells once what is wrong; an `initialize` that still waits is refused."""
        self._tell(message)
        with self._lock:
            for request_id in [key for key, method in self._pending.items() if method == "initialize"]:
                del self._pending[request_id]
                error = {"code": INTERNAL_ERROR, "message": message}
                self._write(frame({"jsonrpc": "2.0", "id": request_id, "error": error}))

    def _write(self, data: bytes) -> None:
        with self._out_lock, contextlib.suppress(OSError, ValueError):
            self._out.write(data)
            self._out.flush()

    def _tell(self, message: str) -> None:
        params = {"type": 1, "message": message}
        self._write(frame({"jsonrpc": "2.0", "method": "window/logMessage", "params": params}))

    @staticmethod
    def _watch_parent(params: Any) -> None:
        """Ends with the editor even where others hold our standard input open."""
        pid = params.get("processId") if isinstance(params, dict) else None
        if isinstance(pid, int) and is_alive(pid):
            threading.Thread(target=_end_with, args=(pid,), daemon=True).start()


def relay_standard_streams() -> int:
    """The front end on standard input and output."""
    return FrontEnd(sys.stdin.buffer, sys.stdout.buffer, join).run()


def _engine_choice(params: Any) -> EngineChoice:
    options = params.get("initializationOptions") if isinstance(params, dict) else None
    settings, _ = resolve(("initialization options", options if isinstance(options, dict) else None))
    return EngineChoice.of(settings)


def _end_with(pid: int) -> None:
    while is_alive(pid):
        time.sleep(PARENT_CHECK_S)
    os._exit(0)
