"""The protocol object of one connection: pygls, with the messages that must not fail taken out of its hands.

pygls does not answer a request that it cannot deserialise, pops up a window at every error, ends the process
at the client's `exit` and mirrors documents with `str.splitlines`. So messages about documents and
completions go to our handlers as they are, and what else cannot be understood is answered with an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.protocol import LanguageServerProtocol, lsp_method

from lsp_server.messages import InvalidParamsError

if TYPE_CHECKING:
    from lsp_server.server import CompletionServer

logger = logging.getLogger(__name__)

INVALID_REQUEST, INVALID_PARAMS, NOT_INITIALIZED, INTERNAL_ERROR = -32600, -32602, -32002, -32603
DirectHandler = Callable[
    ["CompletionServer", Any, Any], Any
]  # (server, request id or None, params) -> result
# what `initialize` needs; the rest of a client's capabilities may be of a protocol newer than ours
INITIALIZE_FIELDS = (
    "processId",
    "rootUri",
    "rootPath",
    "workspaceFolders",
    "initializationOptions",
    "clientInfo",
)


class CompletionProtocol(LanguageServerProtocol):
    """Answers every request exactly once."""

    _server: CompletionServer
    direct: dict[str, DirectHandler]
    initialized = False
    needs_no_initialize: frozenset[str] = frozenset()
    on_exit: Callable[[bool], None] = staticmethod(lambda was_shut_down: None)

    def receive(self, message: Any) -> None:
        """Handles one decoded message; never raises."""
        if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
            self._send_error(None, INVALID_REQUEST, "not a JSON-RPC message")
            return
        request_id = message.get("id")
        if isinstance(request_id, bool) or not isinstance(request_id, (int, str, type(None))):
            self._send_error(None, INVALID_REQUEST, "an id is a whole number or a text")
            return
        try:
            self._receive(message)
        except Exception:
            logger.exception("message %s failed", message.get("method"))
            if "method" in message and "id" in message:
                self._send_error(message["id"], INTERNAL_ERROR, "internal error; see the server's log")

    def _receive(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        is_request = method is not None and request_id is not None
        if is_request and self._shutdown:
            self._send_error(request_id, INVALID_REQUEST, "the server is shutting down")
        elif method is not None and not self.initialized and not self._comes_early(method):
            if is_request:
                self._send_error(request_id, NOT_INITIALIZED, "initialize comes first")
        elif method in self.direct:
            self._handle_directly(self.direct[method], request_id, message.get("params"))
        else:
            self._handle_by_pygls(message, is_request)

    def _comes_early(self, method: str) -> bool:
        return method in (types.INITIALIZE, types.EXIT) or method in self.needs_no_initialize

    def _handle_directly(self, handler: DirectHandler, request_id: Any, params: Any) -> None:
        try:
            result = handler(self._server, request_id, params)
        except InvalidParamsError as error:
            if request_id is not None:
                self._send_error(request_id, INVALID_PARAMS, str(error))
            return
        if request_id is None:
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda done: self._send_outcome(request_id, done))
            return
        self._send_result(request_id, result)

    def _handle_by_pygls(self, message: dict[str, Any], is_request: bool) -> None:
        try:
            structured = self.structure_message(message)
        except Exception:
            if message.get("method") == types.INITIALIZE and isinstance(message.get("params"), dict):
                structured = self.structure_message(
                    {**message, "params": _bare_initialize(message["params"])}
                )
            elif is_request:
                self._send_error(message["id"], INVALID_PARAMS, "the parameters do not fit the method")
                return
            else:
                return
        self.handle_message(structured)

    def _send_outcome(self, request_id: Any, done: asyncio.Future[Any]) -> None:
        if done.cancelled():  # the client is gone
            return
        if (error := done.exception()) is not None:
            self._send_error(request_id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        else:
            self._send_result(request_id, done.result())

    def _send_result(self, request_id: Any, result: Any) -> None:
        self._send_data({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _send_error(self, request_id: Any, code: int, message: str) -> None:
        self._send_data({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """Adds what pygls leaves out of the capabilities."""
        result = yield from super().lsp_initialize(params)
        self._server.learn_client(params)
        self.initialized = True
        result.capabilities.inline_completion_provider = types.InlineCompletionOptions()
        if isinstance(result.capabilities.text_document_sync, types.TextDocumentSyncOptions):
            result.capabilities.text_document_sync.save = True
        return result

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> None:  # type: ignore[override]
        """Ends the connection, not the process: other clients may be attached to it."""
        self.on_exit(self._shutdown)


def _bare_initialize(params: dict[str, Any]) -> dict[str, Any]:
    bare = {name: params[name] for name in INITIALIZE_FIELDS if name in params}
    capabilities = params.get("capabilities")
    general = capabilities.get("general") if isinstance(capabilities, dict) else None
    encodings = general.get("positionEncodings") if isinstance(general, dict) else None
    bare["capabilities"] = (
        {"general": {"positionEncodings": encodings}} if isinstance(encodings, list) else {}
    )
    return {"processId": None, "rootUri": None, **bare}
