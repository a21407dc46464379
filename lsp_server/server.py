"""The language server of one connection: thin handlers around a `Session`.

One process serves any number of connections with one `CompletionService`; each connection has its own server
object, documents and settings.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lsp_server import messages, oneshot
from lsp_server.cli import version
from lsp_server.gate import path_of
from lsp_server.items import ACCEPT_COMMAND
from lsp_server.notebooks import NotebookCells
from lsp_server.positions import choose_encoding, length_from_utf16
from lsp_server.protocol import CompletionProtocol, DirectHandler
from lsp_server.records import Recorder
from lsp_server.service import CompletionService
from lsp_server.session import Session
from lsp_server.settings import Settings, resolve
from lsp_server.status import Status
from lsp_server.telemetry import TelemetryWriter, summary_line

if TYPE_CHECKING:
    from lsp_server.sources import Sources

logger = logging.getLogger(__name__)

SECTION = "specComplete"
EVERY_NOTEBOOK = types.NotebookDocumentSyncOptions(
    notebook_selector=[types.NotebookDocumentFilterWithNotebook(notebook="*")], save=False
)
# sent only to clients whose initialization options say so by `"status": true` and so on; the other options
# are settings
OPTIONAL_NOTIFICATIONS = ("status", "didChangeStatus", "telemetry", "moreAvailable")
NEOVIM_DEBOUNCE_MS = 200  # what Neovim waits by itself before it asks
SHORT_DEADLINE_MS = 300
CONFIGURATION_REPLY_S = 2.0  # a client that does not tell its settings by then has none
NOT_WORTH_A_LINE = frozenset({"superseded", "cancelled"})


class CompletionServer(LanguageServer):
    """One client's connection. Implements `status.Client`."""

    protocol: CompletionProtocol

    def __init__(
        self,
        service: CompletionService,
        writer: TelemetryWriter,
        code_version: str = "",
        on_retire: Callable[[], None] = lambda: None,
        sources: Sources | None = None,
    ) -> None:
        """``on_retire``: called when a process of newer code asks this one to take no more clients."""
        super().__init__(
            "spec-complete",
            version(),
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
            notebook_document_sync=EVERY_NOTEBOOK,
            protocol_cls=CompletionProtocol,
        )
        self.service = service
        self.code_version = code_version
        self.on_retire = on_retire
        self.wants: frozenset[str] = frozenset()  # our own notifications the client asked for
        self.client_pid: int | None = None
        self.recorder = Recorder(writer, self.telemetry)
        self.session = Session(service, self, self.recorder, Settings(), sources)
        self.cells = NotebookCells(self.session)
        self._oneshots: set[asyncio.Future[Any]] = set()  # what scripts wait for
        self._sources: dict[str, object] = {}  # settings by source
        self.environment: Mapping[str, str] = os.environ  # of the client, where it tells
        self._roots: list[str] = []
        self._indexing = False  # the sources know the roots
        self._no_reply: asyncio.TimerHandle | None = None
        self._settled = False  # after `initialized`
        self._stop_listening = service.listen(self._service_status)
        self.protocol.direct = DIRECT
        self.protocol.needs_no_initialize = frozenset(UNINITIALIZED)

        @self.command(ACCEPT_COMMAND)
        def accepted(completion_id: str) -> None:
            self.session.accepted(completion_id)

    def end(self) -> None:
        """The connection is closed."""
        self._stop_listening()
        if self._no_reply is not None:
            self._no_reply.cancel()
        for waiting in list(self._oneshots):
            waiting.cancel()
        self.session.end()

    # what the client is told

    def status(self, status: Status) -> None:
        """The state of the server, or of one document, changed."""
        if "status" in self.wants:
            self.protocol.notify("specComplete/status", status.as_json())
        if "didChangeStatus" in self.wants:
            self.protocol.notify("didChangeStatus", status.as_change())
        if status.kind == "error":
            self._log(status.message, types.MessageType.Error)

    def more_available(self, uri: str) -> None:
        """An answer that was cut at the deadline goes on."""
        if "moreAvailable" in self.wants:
            self.protocol.notify("specComplete/moreAvailable", {"uri": uri})

    def telemetry(self, record: Mapping[str, Any]) -> None:
        """One record of the latency log."""
        if "telemetry" in self.wants:
            self.protocol.notify("specComplete/telemetry", dict(record))
        elif record["kind"] == "request" and record["reason"] not in NOT_WORTH_A_LINE:
            self._log(f"{record['id']} {summary_line(record)}", types.MessageType.Log)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """To the log; never a window."""
        logger.error("%s: %s", source, error)

    def _log(self, message: str, kind: types.MessageType) -> None:
        self.protocol.notify("window/logMessage", types.LogMessageParams(kind, message))

    def _service_status(self, status: Status) -> None:
        engine = self.service.engine
        if engine is not None:
            self.recorder.facts.of_engine(engine)
        if self._settled:
            self.status(status)

    def complete_once(self, params: Any) -> asyncio.Future[Any]:
        """A script's completion; it ends with the connection."""
        answer = oneshot.complete(self.service, self.recorder, params)
        self._oneshots.add(answer)
        answer.add_done_callback(self._oneshots.discard)
        return answer

    # settings and folders

    def learn_client(self, params: types.InitializeParams) -> None:
        """`initialize`: encoding, folders, settings, and what the client wants to be told."""
        general = params.capabilities.general
        self.session.encoding = choose_encoding(general.position_encodings if general else None)
        self.client_pid = params.process_id
        folders = [folder.uri for folder in params.workspace_folders or []]
        self._roots = [path_of(uri) for uri in folders or [params.root_uri or ""] if uri]
        options = params.initialization_options
        options = dict(options) if isinstance(options, dict) else {}
        self.wants = frozenset(name for name in OPTIONAL_NOTIFICATIONS if options.pop(name, False) is True)
        self._sources["initialization options"] = options
        client: dict[str, object] = {}
        if "moreAvailable" in self.wants:  # whoever asks again when there is more need not wait for all of it
            client["deadlineMs"] = SHORT_DEADLINE_MS
        if params.client_info is not None and params.client_info.name == "Neovim":
            client["clientDebounceMs"] = NEOVIM_DEBOUNCE_MS
        self._sources = {"client": client, **self._sources}

    def settle(self) -> None:
        """`initialized`: from now on the client may be spoken to."""
        self._settled = True
        self._apply_settings()
        self._service_status(self.service.status)
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.configuration:  # it may say that nothing is to be indexed
            loop = asyncio.get_running_loop()
            self._no_reply = loop.call_later(CONFIGURATION_REPLY_S, self._begin_indexing)
            self.pull_configuration()
        else:
            self._begin_indexing()
        watching = workspace.did_change_watched_files if workspace is not None else None
        if watching is not None and watching.dynamic_registration:
            self._watch_files()

    def _begin_indexing(self) -> None:
        if self._no_reply is not None:
            self._no_reply.cancel()
        if not self._indexing:
            self._indexing = True
            self.session.feed.set_roots(self._roots)

    def _watch_files(self) -> None:
        """Files that change on disk are indexed again."""
        watchers = [types.FileSystemWatcher(glob_pattern="**/*")]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        self.client_register_capability(
            types.RegistrationParams(
                [types.Registration(id="files", method=method, register_options=options)]
            )
        )

    def _apply_settings(self) -> None:
        settings, problems = resolve(*self._sources.items(), environment=self.environment)
        self.recorder.facts.of_settings(settings)
        self.session.configure(settings)
        for problem in problems:
            self._log(problem, types.MessageType.Warning)

    def pull_configuration(self) -> None:
        """Asks the client for its `specComplete` settings."""

        def received(reply: concurrent.futures.Future[Any]) -> None:
            if reply.cancelled():
                return
            if reply.exception() is None:
                values = reply.result()
                first = values[0] if isinstance(values, (list, tuple)) and values else None
                self.set_source("workspace/configuration", first)
            self._begin_indexing()

        item = types.ConfigurationItem(section=SECTION)
        self.workspace_configuration(types.ConfigurationParams([item])).add_done_callback(received)

    def set_source(self, source: str, values: object) -> None:
        """Takes the settings of one source."""
        self._sources[source] = values
        self._apply_settings()

    def change_folders(self, added: list[str], removed: list[str]) -> None:
        """`workspace/didChangeWorkspaceFolders`, as URIs."""
        gone = {path_of(uri) for uri in removed}
        kept = [root for root in self._roots if root not in gone]
        self._roots = kept + [path_of(uri) for uri in added]
        if self._indexing:
            self.session.feed.set_roots(self._roots)


def _initialized(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.settle()


def _folders_changed(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.change_folders(*messages.folder_changes(params))


def _hello(server: CompletionServer, request_id: Any, params: Any) -> dict[str, Any]:
    if (variables := messages.environment(params)) is not None:
        server.environment = variables
    return {"version": server.code_version, "pid": os.getpid()}


def _retire(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.on_retire()


def _complete(server: CompletionServer, request_id: Any, params: Any) -> asyncio.Future[Any]:
    return server.complete_once(params)


def _inline_completion(server: CompletionServer, request_id: Any, params: Any) -> asyncio.Future[Any]:
    return server.session.request(request_id, messages.inline_completion_params(params))


def _cancel(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.session.cancel(messages.request_id(params))


def _did_open(server: CompletionServer, request_id: Any, params: Any) -> None:
    document = messages.opened_document(params)
    server.session.open(document.uri, document.language, document.version, document.text)


def _did_change(server: CompletionServer, request_id: Any, params: Any) -> None:
    uri = messages.document_uri(params)
    server.session.change(uri, messages.document_version(params), messages.content_changes(params))


def _did_close(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.session.close(messages.document_uri(params))


def _did_save(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.session.feed.files_changed([messages.document_uri(params)])


def _files_changed(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.session.feed.files_changed(messages.changed_files(params))


def _did_show(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.session.shown(messages.completion_id(params))


def _did_partially_accept(server: CompletionServer, request_id: Any, params: Any) -> None:
    text = messages.insert_text(params)
    accepted = length_from_utf16(text, messages.accepted_length(params))
    server.session.partially_accepted(messages.completion_id(params), len(text) - accepted)


def _did_change_configuration(server: CompletionServer, request_id: Any, params: Any) -> None:
    workspace = server.client_capabilities.workspace
    if workspace is not None and workspace.configuration:
        server.pull_configuration()
        return
    settings = params.get("settings") if isinstance(params, dict) else None
    section = settings.get(SECTION) if isinstance(settings, dict) else None
    server.set_source("workspace/didChangeConfiguration", section)


def _cells_opened(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.cells.open(params)


def _cells_changed(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.cells.change(params)


def _cells_closed(server: CompletionServer, request_id: Any, params: Any) -> None:
    server.cells.close(params)


# messages of our own processes, which come without `initialize`
UNINITIALIZED: dict[str, DirectHandler] = {
    "specComplete/hello": _hello,
    "specComplete/retire": _retire,
    "specComplete/complete": _complete,
}
DIRECT: dict[str, DirectHandler] = {
    **UNINITIALIZED,
    types.INITIALIZED: _initialized,
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: _folders_changed,
    types.TEXT_DOCUMENT_INLINE_COMPLETION: _inline_completion,
    types.CANCEL_REQUEST: _cancel,
    types.TEXT_DOCUMENT_DID_OPEN: _did_open,
    types.TEXT_DOCUMENT_DID_CHANGE: _did_change,
    types.TEXT_DOCUMENT_DID_CLOSE: _did_close,
    types.TEXT_DOCUMENT_DID_SAVE: _did_save,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: _files_changed,
    types.NOTEBOOK_DOCUMENT_DID_OPEN: _cells_opened,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE: _cells_changed,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE: _cells_closed,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: _did_change_configuration,
    "textDocument/didShowCompletion": _did_show,
    "textDocument/didPartiallyAcceptCompletion": _did_partially_accept,
}
