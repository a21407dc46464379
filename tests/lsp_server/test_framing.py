"""What comes over a stream that is no message: nothing of it ends the process or hangs it."""

import asyncio
import io
import json
import os
import socket
import threading
import time

import pytest
from lsp_testkit.engine import ScriptedEngine, says

from lsp_server.daemon import DaemonError
from lsp_server.framing import frame, frame_body, read_body, read_message_from
from lsp_server.frontend import FrontEnd
from lsp_server.hosting import Host
from lsp_server.memory import SessionMemory
from lsp_server.parent import is_alive
from lsp_server.service import CompletionService
from lsp_server.status import Status
from lsp_server.telemetry import TelemetryWriter
from lsp_server.transport import converse

DEEP = b"[" * 200_000
HEADERS = [b"9" * 12, b"9" * 5000, b"-1", b"1.5", b"", "٣".encode()]


async def received(data):
    reader, messages = asyncio.StreamReader(), []
    reader.feed_data(data)
    reader.feed_eof()
    await asyncio.wait_for(converse(reader, messages.append), 10)
    return messages


@pytest.mark.parametrize("body", [b"null", b"{", DEEP, b"\xff"])
async def test_a_body_that_is_no_message_does_not_end_the_connection(body):
    assert await received(frame_body(body) + frame_body(b'{"a": 1}')) == [..., {"a": 1}]


@pytest.mark.parametrize("length", HEADERS)
async def test_a_length_that_is_none_ends_the_connection(length):
    data = b"Content-Length: " + length + b"\r\n\r\n{}"
    assert await received(data) == []
    assert read_body(io.BytesIO(data)) is None


def test_a_blocking_reader_takes_what_is_no_json_as_no_message():
    assert read_message_from(io.BytesIO(frame_body(DEEP))) is None


def test_the_front_end_goes_on_after_what_is_no_message():
    bodies = [b"null", DEEP, b"[1]", b'{"id": [1], "method": "x"}', b'{"method": "shutdown", "id": 1}']
    out = io.BytesIO()

    def connect(choice):
        raise OSError

    front_end = FrontEnd(io.BytesIO(b"".join(map(frame_body, bodies))), out, connect)
    assert front_end.run() == 0
    assert json.loads(out.getvalue().partition(b"\r\n\r\n")[2])["id"] == 1


def test_a_process_id_that_no_process_can_have_is_not_alive():
    assert not is_alive(2**40)
    assert is_alive(os.getpid())


def ends_in_s(connect, *messages):
    """How long a front end takes to end when its editor leaves right after these messages."""
    front_end = FrontEnd(io.BytesIO(b"".join(map(frame, messages))), io.BytesIO(), connect)
    running = threading.Thread(target=front_end.run, daemon=True)
    began_s = time.monotonic()
    running.start()
    running.join(5)
    return time.monotonic() - began_s


INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"processId": None}}


def test_the_editors_end_is_seen_while_a_process_starts():
    gone = threading.Event()

    def connect(choice):
        gone.wait(10)
        raise DaemonError("it did not start")

    assert ends_in_s(connect, INITIALIZE) < 2
    gone.set()


def test_the_editors_end_is_seen_where_the_process_takes_nothing():
    ours, theirs = socket.socketpair()
    text = {"textDocument": {"uri": "file:///a", "languageId": "x", "version": 1, "text": "x" * 2**22}}
    opened = {"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": text}
    with ours, theirs:
        assert ends_in_s(lambda choice: ours, INITIALIZE, opened, opened) < 2


HTTP = [
    b"POST / HTTP/1.1\r\nHost: localhost:4000\r\nContent-Length: %d\r\n\r\n%b",
    b"OPTIONS * HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b",
    b"\r\nPOST /a:b HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b",
    b"Host: localhost\r\nContent-Length: %d\r\n\r\n%b",
    b"Content-Length: %d\r\nOrigin: https://example.com\r\n\r\n%b",
]


@pytest.mark.parametrize("request_", HTTP)
async def test_what_a_web_page_posts_is_no_message(request_):
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "shutdown"}'
    data = request_ % (len(body), body)
    assert await received(data + frame_body(body)) == []
    assert read_body(io.BytesIO(data)) is None


async def test_a_header_may_tell_the_type_of_the_body():
    data = b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length: 2\r\n\r\n{}"
    assert await received(data) == [{}]
    assert read_body(io.BytesIO(data)) == b"{}"


async def test_a_connection_that_speaks_http_is_closed_before_its_body_came():
    host = Host(CompletionService(ScriptedEngine(says("x"))), TelemetryWriter(None))
    port = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(host.on_tcp("127.0.0.1", 0, port.set_result))
    reader, writer = await asyncio.open_connection("127.0.0.1", await port)
    writer.write(b"POST / HTTP/1.1\r\n")
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    host._finished.set()
    await serving
    host.service.stop()


async def test_initialize_with_the_id_zero_keeps_it_when_the_process_comes_late(monkeypatch):
    ids = []

    def replay(memory, initialize_id):
        ids.append(initialize_id)
        return iter(())

    class Connection:
        def makefile(self, mode):
            return io.BytesIO()

    monkeypatch.setattr(SessionMemory, "replay", replay)
    front_end = FrontEnd(io.BytesIO(), io.BytesIO(), lambda choice: Connection())
    front_end._take = lambda connection: None
    front_end._pending[0] = "initialize"
    front_end._reconnect()
    assert ids == [0]


@pytest.mark.parametrize("attached", [True, False])
async def test_a_process_whose_load_failed_takes_no_more_clients(tmp_path, attached):
    host = Host(CompletionService(ScriptedEngine(says("x"))), TelemetryWriter(None))
    serving = asyncio.create_task(host.on_socket(tmp_path / "s"))
    while not (tmp_path / "s").exists():
        await asyncio.sleep(0.005)
    if not attached:
        host._watch_load(Status("error", "no space left"))
        assert (tmp_path / "s").exists()  # whoever started it is told why
    _, writer = await asyncio.open_unix_connection(tmp_path / "s")
    while not host._connections:
        await asyncio.sleep(0.005)
    if attached:
        host._watch_load(Status("error", "no space left"))
    assert not (tmp_path / "s").exists()
    writer.close()
    assert await asyncio.wait_for(serving, 10) == 0
    host.service.stop()
