"""A language client that speaks plain JSON: it holds its own text, and every answer it got."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("scripted_server.py")
URI = "file:///workspace/sample.py"


class Client:
    """One connection. `texts` are the documents as the editor has them, with `\\n` for every line end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._arrived = asyncio.Event()
        self.replies: list[dict[str, Any]] = []
        self.notifications: list[dict[str, Any]] = []
        self.configuration: Any = None
        self.versions: dict[str, int] = {}
        self.process: asyncio.subprocess.Process | None = None
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = 0
                while line := (await self._reader.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                if not length:
                    return
                self._take(json.loads(await self._reader.readexactly(length)))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message and "id" in message:
            result: Any = None
            if message["method"] == "workspace/configuration":
                result = [self.configuration for _ in message["params"]["items"]]
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif "method" in message:
            self.notifications.append(message)
            self._arrived.set()
        else:
            self.replies.append(message)
            waiting = self._waiting.pop(message.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Sends a request; (its id, a future of the whole reply)."""
        request_id = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id, future

    async def call(self, method: str, params: Any, timeout_s: float = 30.0) -> Any:
        """A request's result; an error reply raises."""
        _, future = self.request(method, params)
        reply = await asyncio.wait_for(future, timeout_s)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["result"]

    async def initialize(
        self,
        encoding: str = "utf-16",
        settings: dict[str, Any] | None = None,
        notifications: tuple[str, ...] = ("status", "telemetry", "moreAvailable"),
        roots: tuple[str, ...] = ("file:///workspace",),
        configuration: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"general": {"positionEncodings": [encoding]}}
        if configuration:
            capabilities["workspace"] = {"configuration": True}
        result = await self.call(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": roots[0] if roots else None,
                "workspaceFolders": [{"uri": root, "name": root} for root in roots],
                "capabilities": capabilities,
                "initializationOptions": {**dict.fromkeys(notifications, True), **(settings or {})},
                **more,
            },
        )
        self.notify("initialized", {})
        return result

    async def ready(self, timeout_s: float = 40.0) -> None:
        """Waits until the server said that the model is there."""
        await self.until(
            lambda: any(s.get("kind") == "ready" for s in self.said("specComplete/status")), timeout_s
        )

    async def until(self, condition: Any, timeout_s: float = 20.0) -> None:
        """Waits for a condition on what was notified."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"nothing happened; notified: {self.notifications[-5:]}"
            self._arrived.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), 0.05)

    def said(self, method: str) -> list[dict[str, Any]]:
        return [message["params"] for message in self.notifications if message["method"] == method]

    async def records(self, count: int) -> list[dict[str, Any]]:
        """The records of the first ``count`` requests: a record comes a little after its answer."""

        def requests() -> list[dict[str, Any]]:
            return [r for r in self.said("specComplete/telemetry") if r["kind"] == "request"]

        await self.until(lambda: len(requests()) >= count)
        return requests()

    def open(self, text: str, uri: str = URI, language: str = "python") -> None:
        self.versions[uri] = 1
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def change(self, text: str, start: tuple[int, int], end: tuple[int, int], uri: str = URI) -> None:
        self.versions[uri] += 1
        span = {
            "start": dict(zip(("line", "character"), start, strict=True)),
            "end": dict(zip(("line", "character"), end, strict=True)),
        }
        self.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": uri, "version": self.versions[uri]},
                "contentChanges": [{"range": span, "text": text}],
            },
        )

    def replace(self, text: str, uri: str = URI) -> None:
        """A full sync."""
        self.versions[uri] += 1
        self.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": self.versions[uri]}, "contentChanges": [{"text": text}]},
        )

    def close(self, uri: str = URI) -> None:
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def ask(
        self, line: int, character: int, uri: str = URI, invoked: bool = False, selected: Any = None
    ) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        context: dict[str, Any] = {"triggerKind": 1 if invoked else 2}
        if selected is not None:
            context["selectedCompletionInfo"] = selected
        return self.request(
            "textDocument/inlineCompletion",
            {
                "textDocument": {"uri": uri},
                "position": {"line": line, "character": character},
                "context": context,
            },
        )

    async def complete(
        self, line: int, character: int, timeout_s: float = 20.0, **how: Any
    ) -> list[dict[str, Any]]:
        """The items of a completion; empty for null."""
        _, future = self.ask(line, character, **how)
        reply = await asyncio.wait_for(future, timeout_s)
        assert "error" not in reply, reply
        return reply["result"]["items"] if reply["result"] else []

    def cancel(self, request_id: int) -> None:
        self.notify("$/cancelRequest", {"id": request_id})

    async def stop(self) -> None:
        """A polite end."""
        await self.call("shutdown", None)
        self.notify("exit", None)
        await self._writer.drain()

    def disconnect(self) -> None:
        self._task.cancel()
        self._writer.close()


@contextlib.asynccontextmanager
async def spawned(tmp_path: Path, transport: str = "stdio", **options: Any) -> AsyncIterator[Client]:
    """A client of a fresh server process with a scripted engine, over ``stdio`` or ``socket``."""
    options.setdefault("log", str(tmp_path / "engine.jsonl"))
    socket = tmp_path / "s"
    if transport == "socket":
        options["socket"] = str(socket)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(SERVER),
        json.dumps(options),
        stdin=pipe,
        stdout=pipe,
        stderr=(tmp_path / "stderr").open("ab"),
        cwd=tmp_path,
        env={**os.environ, "SPEC_COMPLETE_STATE_DIR": str(tmp_path / "state")},
        limit=1 << 24,
    )
    try:
        if transport == "socket":
            client = await connected(socket)
        else:
            assert process.stdout is not None and process.stdin is not None
            client = Client(process.stdout, process.stdin)
        client.process = process
        yield client
        client.disconnect()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def connected(socket: Path, timeout_s: float = 30.0) -> Client:
    """A client of a server that listens (soon) on a Unix socket."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return Client(*await asyncio.open_unix_connection(socket, limit=1 << 24))
        except (FileNotFoundError, ConnectionRefusedError):
            assert time.monotonic() < deadline, "nobody listens"
            await asyncio.sleep(0.05)


def engine_events(tmp_path: Path, event: str = "") -> list[dict[str, Any]]:
    """What the engine of a spawned server was asked."""
    log = tmp_path / "engine.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [row for row in rows if not event or row["event"] == event]


def accepted(text: str, item: dict[str, Any], encoding: str = "utf-16") -> str:
    """The editor's text after accepting an item."""
    lines = text.split("\n")
    span = item["range"]
    assert span["start"]["line"] == span["end"]["line"]
    line = lines[span["start"]["line"]].encode(_codec(encoding))
    unit = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    head, tail = line[: unit * span["start"]["character"]], line[unit * span["end"]["character"] :]
    insert = item["insertText"]
    lines[span["start"]["line"]] = head.decode(_codec(encoding)) + insert + tail.decode(_codec(encoding))
    return "\n".join(lines)


def column(text: str, encoding: str = "utf-16") -> int:
    """The protocol column at the end of a text without line ends."""
    return len(text.encode(_codec(encoding))) // {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]


def _codec(encoding: str) -> str:
    return {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[encoding]
