"""What comes over a stream that is no message: nothing of it ends the process or hangs it."""

import asyncio
import io
import json
import os

import pytest
from lsp_testkit.engine import ScriptedEngine, says

from lsp_server import frontend, hosting
from lsp_server.framing import frame_body, read_body, read_message_from
from lsp_server.frontend import FrontEnd
from lsp_server.hosting import Host
from lsp_server.memory import SessionMemory
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


@pytest.mark.parametrize("alive", [frontend._alive, hosting._alive])
def test_a_process_id_that_no_process_can_have_is_not_alive(alive):
    assert not alive(2**40)
    assert alive(os.getpid())


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
