"""A script's side of the shared process: one blocking call a completion."""

from __future__ import annotations

import socket
from typing import Any

from lsp_server.daemon import DaemonError, EngineChoice, join, running
from lsp_server.framing import frame, read_message_from


class DaemonClient:
    """A connection to the process that owns the model. A context manager."""

    def __init__(self, choice: EngineChoice, start: bool = False) -> None:
        """Joins the running process; ``start``: starts one if there is none. Raises `DaemonError`."""
        connection = join(choice) if start else running(choice)
        if connection is None:
            raise DaemonError("no process has this model loaded")
        self._connection: socket.socket = connection
        self._stream = connection.makefile("rb")
        self._id = 0

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """What `oneshot.complete` answers; its fields are described there. Raises `DaemonError`."""
        self._id += 1
        call = {"jsonrpc": "2.0", "id": self._id, "method": "specComplete/complete", "params": request}
        try:
            self._connection.sendall(frame(call))
            while (reply := read_message_from(self._stream)) is not None:
                if reply.get("id") == self._id:
                    break
        except OSError as error:
            raise DaemonError(f"the model's process is gone: {error}") from error
        if reply is None:
            raise DaemonError("the model's process is gone")
        if "error" in reply:
            raise DaemonError(reply["error"]["message"])
        result: dict[str, Any] = reply["result"]
        return result

    def close(self) -> None:
        self._stream.close()
        self._connection.close()

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
