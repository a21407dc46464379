"""The spawned server's manners: capabilities, encodings, malformed messages, clients that come and go."""

import asyncio
import time

import pytest
from lsp_testkit.client import URI, accepted, column, connected, engine_events, spawned
from lsp_testkit.engine import text_hash

TRANSPORTS = ["stdio", "socket"]
ENCODINGS = ["utf-8", "utf-16", "utf-32"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_capability_is_announced_and_the_end_is_clean(tmp_path, transport):
    async with spawned(tmp_path, transport) as client:
        result = await client.initialize()
        assert result["capabilities"]["inlineCompletionProvider"] == {}
        assert result["capabilities"]["textDocumentSync"]["change"] == 2
        assert "specComplete.accept" in result["capabilities"]["executeCommandProvider"]["commands"]
        await client.stop()
        if transport == "stdio":
            assert await asyncio.wait_for(client.process.wait(), 2) == 0
    assert (tmp_path / "stderr").read_text() == ""


async def test_initialize_is_answered_while_the_model_loads_and_requests_get_null(tmp_path):
    async with spawned(tmp_path, load_steps=20) as client:
        await client.initialize()
        client.open("x = ")
        assert await client.complete(0, 4, timeout_s=1) == []
        await client.until(
            lambda: any(0 < s.get("progress", 0) < 1 for s in client.said("specComplete/status"))
        )
        await client.ready()
        assert await client.complete(0, 4) != []


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_encoding_sees_the_same_text_and_accepts_the_same_buffer(tmp_path, transport, encoding):
    text = 'a = "日本 😀 e\u0301 👨‍👩‍👧"; b = '
    async with spawned(tmp_path, transport, script=["says", "naïve_😀()"]) as client:
        result = await client.initialize(encoding)
        assert result["capabilities"]["positionEncoding"] == encoding
        await client.ready()
        client.open("first\n" + text[:-4])
        client.change("b = ", (1, column(text[:-4], encoding)), (1, column(text[:-4], encoding)))
        items = await client.complete(1, column(text, encoding))
        assert accepted("first\n" + text, items[0], encoding) == "first\n" + text + "naïve_😀()"
        assert engine_events(tmp_path, "start")[0]["sha"] == text_hash(
            "first\n" + text, len("first\n" + text)
        )


PLACES = [
    ("a\fb\nc\x0bd\x85e\u2028f\ng", 2, 1),
    ("one\rtwo\rthree", 2, 5),
    ("one\r\ntwo\r\n", 1, 3),
    ("only", 0, 2),
    ("", 0, 0),
]


@pytest.mark.parametrize(("text", "line", "character"), PLACES)
async def test_the_prompt_is_the_true_text_whatever_the_line_ends(tmp_path, text, line, character):
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    offset = sum(len(one) + 1 for one in normal.split("\n")[:line]) + character
    async with spawned(tmp_path, script=["says", "said()"]) as client:
        await client.initialize("utf-32")
        await client.ready()
        client.open(text)
        await client.complete(line, character)
        assert engine_events(tmp_path, "start")[0]["sha"] == text_hash(normal, offset)


@pytest.mark.parametrize(
    ("line", "character"), [(0, 99), (99, 0), (0, 2**31 - 1), (2**40, 2**40), (2**70, 0)]
)
async def test_a_position_past_the_end_is_the_end(tmp_path, line, character):
    async with spawned(tmp_path, script=["says", "said()"]) as client:
        await client.initialize()
        await client.ready()
        client.open("x = y")
        items = await client.complete(line, character)
        assert items[0]["insertText"] == "x = ysaid()"
        assert items[0]["range"] == {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 5}}


DOCUMENT, POSITION, CONTEXT = {"uri": URI}, {"line": 0, "character": 0}, {"triggerKind": 2}
MALFORMED = [
    None,
    [],
    "text",
    {"textDocument": DOCUMENT, "position": POSITION},
    {"textDocument": DOCUMENT, "position": POSITION, "context": None},
    {"textDocument": DOCUMENT, "position": POSITION, "context": {}},
    {"textDocument": DOCUMENT, "position": POSITION, "context": {"triggerKind": 0}},
    {"textDocument": DOCUMENT, "position": POSITION, "context": {"triggerKind": 9}},
    {"textDocument": DOCUMENT, "position": POSITION, "context": {"triggerKind": "1"}},
    {"textDocument": DOCUMENT, "position": POSITION, "context": {"triggerKind": True}},
    {"textDocument": DOCUMENT, "position": {"line": -1, "character": 0}, "context": CONTEXT},
    {"textDocument": DOCUMENT, "position": {"line": 0, "character": -1}, "context": CONTEXT},
    {"textDocument": DOCUMENT, "position": {"line": 0.5, "character": 0}, "context": CONTEXT},
    {"textDocument": DOCUMENT, "position": {"line": 0}, "context": CONTEXT},
    {"textDocument": DOCUMENT, "position": [0, 0], "context": CONTEXT},
    {"textDocument": {}, "position": POSITION, "context": CONTEXT},
    {"textDocument": {"uri": 3}, "position": POSITION, "context": CONTEXT},
    {"position": POSITION, "context": CONTEXT},
    {
        "textDocument": DOCUMENT,
        "position": POSITION,
        "context": {"triggerKind": 1, "selectedCompletionInfo": {}},
    },
]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_malformed_requests_are_answered_with_invalid_params(tmp_path, transport):
    async with spawned(tmp_path, transport) as client:
        await client.initialize()
        await client.ready()
        client.open("x = ")
        for params in MALFORMED:
            _, future = client.request("textDocument/inlineCompletion", params)
            reply = await asyncio.wait_for(future, 2)
            assert reply["error"]["code"] == -32602, params
        assert await client.complete(0, 4) != []
        assert not client.said("window/showMessage")


async def test_unknown_fields_and_methods_do_no_harm(tmp_path):
    async with spawned(tmp_path) as client:
        await client.initialize(unknownField={"a": [1]}, trace="off")
        await client.ready()
        client.open("x = ")
        params = {
            "textDocument": DOCUMENT,
            "position": {"line": 0, "character": 4},
            "context": CONTEXT,
            "more": {},
        }
        _, future = client.request("textDocument/inlineCompletion", params)
        assert (await asyncio.wait_for(future, 5))["result"]["items"]
        _, future = client.request("no/suchMethod", {})
        assert (await asyncio.wait_for(future, 2))["error"]["code"] == -32601
        for method in ("no/suchNotification", "$/setTrace", "textDocument/didSave", "$/cancelRequest"):
            client.notify(method, {"nothing": 1})
        client.notify(
            "textDocument/didChange", {"textDocument": {"uri": "file:///other"}, "contentChanges": [{}]}
        )
        client.notify("textDocument/didClose", {"textDocument": {"uri": "file:///other"}})
        client.send({"jsonrpc": "2.0", "id": "stray", "result": 1})
        client.send({"jsonrpc": "2.0", "id": "stray", "error": {"code": 1, "message": "x"}})
        assert await client.complete(0, 4) != []
        assert not client.said("window/showMessage")


async def test_an_initialize_of_a_newer_protocol_is_understood(tmp_path):
    async with spawned(tmp_path) as client:
        strange = {
            "general": {"positionEncodings": ["utf-8"]},
            "textDocument": {"completion": 7},
            "window": [],
        }
        result = await client.initialize(capabilities=strange)
        assert result["capabilities"]["positionEncoding"] == "utf-8"


async def test_a_body_that_is_no_json_does_not_end_the_conversation(tmp_path):
    async with spawned(tmp_path) as client:
        await client.initialize()
        client._writer.write(b"Content-Length: 5\r\n\r\n{nope")
        await client.ready()
        client.open("x = ")
        assert await client.complete(0, 4) != []


async def test_requests_before_initialize_and_after_shutdown_are_refused(tmp_path):
    async with spawned(tmp_path) as client:
        _, early = client.ask(0, 0)
        assert (await asyncio.wait_for(early, 10))["error"]["code"] == -32002
        await client.initialize()
        await client.call("shutdown", None)
        _, late = client.ask(0, 0)
        assert (await asyncio.wait_for(late, 2))["error"]["code"] == -32600


async def test_a_change_that_cannot_be_applied_makes_the_document_inactive_until_it_is_sent_whole(tmp_path):
    async with spawned(tmp_path, script=["hashes"]) as client:
        await client.initialize()
        await client.ready()
        client.open("x = ")
        client.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": URI, "version": 2},
                "contentChanges": [{"range": {"start": 3}, "text": "a"}],
            },
        )
        assert await client.complete(0, 4) == []
        assert client.said("specComplete/status")[-1]["reason"] == "out_of_step"
        client.replace("y = ")
        items = await client.complete(0, 4)
        assert items[0]["insertText"] == "y = h" + text_hash("y = ", 4)


@pytest.mark.parametrize("how", ["killed", "closed"])
async def test_the_server_is_gone_two_seconds_after_its_client(tmp_path, how):
    async with spawned(tmp_path, token_ms=300, script=["says", "long " * 50]) as client:
        if how == "killed":  # a process that is gone, while our end of the pipe stays open
            editor = await asyncio.create_subprocess_exec("sleep", "60")
            await client.initialize(processId=editor.pid)
        else:
            await client.initialize()
        await client.ready()
        client.open("x = ")
        client.ask(0, 4, invoked=True)
        await asyncio.sleep(0.3)
        gone = time.monotonic()
        if how == "killed":
            editor.kill()
            await editor.wait()
        else:
            client._writer.close()
        await asyncio.wait_for(client.process.wait(), 3)
        assert time.monotonic() - gone < 2.5


async def test_two_clients_share_one_engine_and_one_ends_without_the_other(tmp_path):
    async with spawned(tmp_path, "socket", script=["hashes"]) as first:
        second = await connected(tmp_path / "s")
        for client, text in ((first, "first = "), (second, "second = ")):
            await client.initialize()
            client.open(text)  # the same URI in both
        await first.ready()
        one, two = await asyncio.gather(first.complete(0, 8), second.complete(0, 9))
        assert one[0]["insertText"] == "first = h" + text_hash("first = ", 8)
        assert two[0]["insertText"] == "second = h" + text_hash("second = ", 9)
        await first.stop()
        second.change("x", (0, 9), (0, 9))
        items = await second.complete(0, 10)
        assert items[0]["insertText"] == "second = xh" + text_hash("second = x", 10)
        second.disconnect()


async def test_a_socket_server_ends_after_some_time_without_clients(tmp_path):
    async with spawned(tmp_path, "socket", idle_exit_s=0.3) as client:
        await client.initialize()
        await asyncio.sleep(0.6)
        assert client.process.returncode is None
        client.disconnect()
        assert await asyncio.wait_for(client.process.wait(), 3) == 0
        assert not (tmp_path / "s").exists()
