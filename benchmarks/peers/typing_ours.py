"""The real language server behind an editor that does what our plugins do, in a directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.peers.process import PeerError
from benchmarks.peers.typing_session import Ghost
from benchmarks.peers.typing_tasks import Change
from benchmarks.session import Editor
from cache.paths import CACHE_DIR_VARIABLE, STATE_DIR_VARIABLE, cache_dir
from lsp_server.documents import Place
from lsp_server.settings import ENVIRONMENT_PREFIX, FILE_VARIABLE

READY_S = 300.0
INDEX_S = 120.0
QUIET_S = 2.0  # after a file is opened: what the server does then is not the keystrokes'
WANTED = {"status": True, "telemetry": True, "moreAvailable": True}  # as our plugins
WITHOUT_MODEL = ("no_engine", "not_ready", "failed")
SERVER = (sys.executable, "-I", "-m", "lsp_server")


class Server(Editor):
    """A client that knows its server's process."""

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid


class OurTyping:
    """A server with the workspaces as its folders. A context manager; nothing of it is left behind."""

    def __init__(self, files: Mapping[str, str], model: str, threads: int) -> None:
        self._folder = TemporaryDirectory(prefix="peers-")
        root = Path(self._folder.name)
        self._root = root / "workspaces"
        for path, text in files.items():
            target = self._root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self._environment = {
            **os.environ,
            CACHE_DIR_VARIABLE: str(_cache_of(root / "cache")),
            STATE_DIR_VARIABLE: str(root / "state"),
            FILE_VARIABLE: str(
                root / "settings.json"
            ),  # there is none: the defaults, whatever the user has set
            f"{ENVIRONMENT_PREFIX}MODEL": model,
            "OMP_NUM_THREADS": str(threads),
        }
        self._uri = ""
        self._version = 0
        self._text = ""
        self._completion = ""  # id of the last answer
        self._cpu_s = 0.0
        self._editor: Server | None = None

    def __enter__(self) -> OurTyping:
        """Indexes the workspaces, then starts the server and waits until the model is loaded."""
        folders = sorted(path for path in self._root.iterdir() if path.is_dir())
        for folder in folders:
            command = [*SERVER, "index", str(folder)]
            subprocess.run(command, env=self._environment, check=True, timeout=INDEX_S, capture_output=True)
        with patch.dict(os.environ, self._environment):  # the client gives its own environment on
            self._editor = Server([*SERVER, "serve", "--no-daemon"])
        uris = [folder.as_uri() for folder in folders]
        self._call(
            "initialize",
            {
                "processId": None,
                "rootUri": None,
                "workspaceFolders": [{"uri": uri, "name": uri.rsplit("/", 1)[-1]} for uri in uris],
                "capabilities": {"general": {"positionEncodings": ["utf-32"]}},
                "initializationOptions": WANTED,
            },
        )
        self._notify("initialized", {})
        if not self._editor.ready.wait(READY_S):
            raise PeerError("our server did not load the model")
        return self

    def __exit__(self, *error: object) -> None:
        if self._editor is not None:
            self._editor.close()
        self._folder.cleanup()

    def begin(self, change: Change) -> None:
        """The file as it was is opened, and the replaced lines are deleted but for an empty one."""
        self._uri = (self._root / change.workspace / change.path).as_uri()
        self._text, self._version = change.text_before(), 1
        document = {"uri": self._uri, "languageId": "python", "version": 1, "text": self._text}
        self._notify("textDocument/didOpen", {"textDocument": document})
        self._change_to(change.typist().place.text())
        time.sleep(QUIET_S)
        self._cpu_s = self._cpu_now()

    def ask(self, place: Place) -> Ghost:
        """The edit that led to this place, and an automatic request there."""
        editor = self._editor
        assert editor is not None
        told = len(editor.order)
        began = time.perf_counter()
        self._change_to(place.text())
        number = editor.request(
            "textDocument/inlineCompletion",
            {
                "textDocument": {"uri": self._uri},
                "position": {"line": place.line, "character": place.column},
                "context": {"triggerKind": 2},
            },
        )
        answered_at, result = self._reply(number)
        cpu_s, self._cpu_s = self._cpu_s, self._cpu_now()
        record = self._record(told)
        if record.get("reason") in WITHOUT_MODEL:
            raise PeerError("our server has no model")
        items = result["items"] if result else []
        text, replaced = ghost_of(items[0], place) if items else ("", 0)
        self._completion = items[0]["command"]["arguments"][0] if items else ""
        return Ghost(
            text,
            replaced,
            (answered_at - began) * 1e3,
            self._cpu_s - cpu_s,
            record.get("new_tokens", 0) + record.get("forwards", 0) + record.get("drafted", 0),
            {"route": record.get("route", ""), "reason": record.get("reason", "")},
        )

    def accepted(self) -> None:
        """Tells the server, as the editor's command does."""
        self._call(
            "workspace/executeCommand", {"command": "specComplete.accept", "arguments": [self._completion]}
        )

    def end(self) -> None:
        """Closes the file."""
        self._notify("textDocument/didClose", {"textDocument": {"uri": self._uri}})

    def peak_bytes(self) -> int:
        """The server's peak memory, where the system tells."""
        return _peak_of(self._pid)

    def _change_to(self, text: str) -> None:
        """One edit from the text as it is: what both share at the ends stays."""
        if text == self._text:
            return
        self._version += 1
        document = {"uri": self._uri, "version": self._version}
        self._notify(
            "textDocument/didChange",
            {"textDocument": document, "contentChanges": [edit_between(self._text, text)]},
        )
        self._text = text

    def _reply(self, number: int) -> tuple[float, Any]:
        assert self._editor is not None
        deadline = time.monotonic() + READY_S
        while number not in self._editor.replies:
            if time.monotonic() > deadline:
                raise PeerError("our server did not answer")
            time.sleep(0.0005)
        return self._editor.replies[number]

    def _record(self, told: int) -> dict[str, Any]:
        """The latency record of the last request; it follows the answer."""
        assert self._editor is not None
        deadline = time.monotonic() + 1.0
        while len(self._editor.order) <= told and time.monotonic() < deadline:
            time.sleep(0.001)
        return self._editor.order[-1] if len(self._editor.order) > told else {}

    def _cpu_now(self) -> float:
        return _cpu_of(self._pid)

    @property
    def _pid(self) -> int:
        return self._editor.pid if self._editor is not None else 0

    def _call(self, method: str, params: Any) -> Any:
        assert self._editor is not None
        return self._editor.call(method, params)

    def _notify(self, method: str, params: Any) -> None:
        assert self._editor is not None
        self._editor.notify(method, params)


def ghost_of(item: Mapping[str, Any], place: Place) -> tuple[str, int]:
    """The text an item shows at the cursor, and the characters behind it that go."""
    span = item["range"]
    lead = place.column - span["start"]["character"]
    return item["insertText"][lead:], span["end"]["character"] - place.column


def edit_between(old: str, new: str) -> dict[str, Any]:
    """The smallest replacement that turns one text into the other, as the protocol has it (code points)."""
    start = 0
    most = min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[len(old) - 1 - end] == new[len(new) - 1 - end]:
        end += 1
    last = len(old) - end
    span = {"start": _position(old, start), "end": _position(old, last)}
    return {"range": span, "text": new[start : len(new) - end]}


def _position(text: str, offset: int) -> dict[str, int]:
    return {"line": text.count("\n", 0, offset), "character": offset - text.rfind("\n", 0, offset) - 1}


def _cache_of(folder: Path) -> Path:
    """A cache directory with the models and measured costs of the user's, and nothing else of it."""
    folder.mkdir(mode=0o700)
    for name in ("models", "costs"):
        source = cache_dir() / name
        if source.is_dir():
            (folder / name).symlink_to(source, target_is_directory=True)
    return folder


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process, where the system tells; else 0."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_of(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) * 1024 for row in rows if row.startswith("VmHWM")), 0)
