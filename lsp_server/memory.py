"""What a front end remembers of a conversation, to have it again with another process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lsp_server.documents import ChangeError, Document
from lsp_server.messages import (
    InvalidParamsError,
    content_changes,
    document_uri,
    document_version,
    opened_document,
)
from lsp_server.notebooks import NotebookCells
from lsp_server.positions import Encoding, choose_encoding

CONFIGURATION = "workspace/didChangeConfiguration"
FOLDERS = "workspace/didChangeWorkspaceFolders"


class SessionMemory:
    """Follows the editor's messages."""

    def __init__(self) -> None:
        self.was_shut_down = False
        self._initialize: dict[str, Any] | None = None
        self._is_initialized = False
        self._encoding: Encoding = "utf-16"
        self._configuration: dict[str, Any] | None = None
        self._folders: list[dict[str, Any]] = []
        self._documents: dict[str, Document] = {}
        self._cells = NotebookCells(self)

    def from_editor(self, message: dict[str, Any]) -> None:
        """Takes note of one message."""
        method, params = message.get("method"), message.get("params")
        try:
            if method == "initialize":
                self._initialize = message
            elif method == "initialized":
                self._is_initialized = True
            elif method == "shutdown":
                self.was_shut_down = True
            elif method == CONFIGURATION:
                self._configuration = message
            elif method == FOLDERS:
                self._folders.append(message)
            elif method == "textDocument/didOpen":
                opened = opened_document(params)
                self.open(opened.uri, opened.language, opened.version, opened.text)
            elif method == "textDocument/didChange":
                self.change(document_uri(params), document_version(params), content_changes(params))
            elif method == "textDocument/didClose":
                self.close(document_uri(params))
            elif method == "notebookDocument/didOpen":
                self._cells.open(params)
            elif method == "notebookDocument/didChange":
                self._cells.change(params)
            elif method == "notebookDocument/didClose":
                self._cells.close(params)
        except InvalidParamsError:
            pass  # the server will say so

    def initialized_as(self, reply: dict[str, Any]) -> None:
        """Takes note of the server's answer to `initialize`."""
        result = reply.get("result")
        capabilities = result.get("capabilities") if isinstance(result, dict) else None
        if isinstance(capabilities, dict):
            self._encoding = choose_encoding([capabilities.get("positionEncoding")])

    def replay(self, initialize_id: Any) -> Iterator[dict[str, Any]]:
        """The messages that bring a new process to where the old one was."""
        if self._initialize is None:
            return
        yield {**self._initialize, "id": initialize_id}
        if not self._is_initialized:
            return
        yield {"jsonrpc": "2.0", "method": "initialized", "params": {}}
        if self._configuration is not None:
            yield self._configuration
        yield from self._folders
        for document in self._documents.values():
            params = {
                "uri": document.uri,
                "languageId": document.language,
                "version": document.version,
                "text": document.text,
            }
            yield {"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": params}}

    def open(self, uri: str, language: str, version: int, text: str) -> None:
        """A document or cell was opened."""
        self._documents[uri] = Document(uri, language, version, text)

    def change(self, uri: str, version: int | None, changes: Sequence[Any]) -> None:
        """A document or cell was edited."""
        document = self._documents.get(uri)
        if document is None:
            return
        try:
            for change in changes:
                document.apply(change, self._encoding)
        except ChangeError:
            document.out_of_step = True
        document.version = version if version is not None else document.version

    def close(self, uri: str) -> None:
        """A document or cell was closed."""
        self._documents.pop(uri, None)
