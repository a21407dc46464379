"""One connection without a process: what a client says, and what the sources and the log get of it."""

import asyncio
import json

import pytest
from lsp_testkit.engine import ScriptedEngine, says

import lsp_server.server
from lsp_server.documents import Document
from lsp_server.feed import SourceFeed
from lsp_server.server import CompletionServer
from lsp_server.service import CompletionService
from lsp_server.settings import Settings

HIDDEN = "file:///project/hidden.py"


class Sources:
    """Notes what it is told."""

    def __init__(self):
        self.events = []

    def open(self, owner, path, root, lines):
        self.events.append(("open", path, root))

    def close(self, owner, path):
        self.events.append(("close", path))

    def add_root(self, root, others, settings, owner=None):
        self.events.append(("root", root, settings.index, settings.history, settings.secret_patterns))

    def remove_root(self, root, owner=None):
        self.events.append(("gone", root))

    def leave(self, owner):
        self.events.append(("left",))


class Log:
    """Stands where the log's writer stands."""

    def __init__(self):
        self.records = []

    def write(self, record, keep=True):
        if keep:
            self.records.append(record)


class Connection:
    """A server object, and what it sent."""

    def __init__(self, configuration=False, environment=None, **options):
        self.sources, self.log, self.sent, self.ended = Sources(), Log(), [], False
        self.service = CompletionService(ScriptedEngine(says("scripted()")))
        self.server = CompletionServer(self.service, self.log, sources=self.sources)
        self.server.protocol.set_writer(self)
        self.says("specComplete/hello", {"version": "", "environment": environment}, id="hello")
        capabilities = {"workspace": {"configuration": True}} if configuration else {}
        self.says(
            "initialize",
            {
                "processId": None,
                "rootUri": None,
                "workspaceFolders": [{"uri": "file:///project", "name": "project"}],
                "capabilities": capabilities,
                "initializationOptions": options,
            },
            id=1,
        )
        self.says("initialized", {})

    def write(self, data):
        self.sent.append(json.loads(data.partition(b"\r\n\r\n")[2]))

    def close(self):
        """Nothing to close."""

    def end(self):
        """The client is gone."""
        if not self.ended:
            self.ended = True
            self.server.end()

    def says(self, method, params, **rest):
        self.server.protocol.receive({"jsonrpc": "2.0", "method": method, "params": params, **rest})

    def opens(self, uri=HIDDEN, text="x = "):
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.says("textDocument/didOpen", {"textDocument": document})

    def asks(self, request_id, uri=HIDDEN, selected=None):
        params = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 4}}
        context = {"triggerKind": 1, "selectedCompletionInfo": selected}
        self.says("textDocument/inlineCompletion", {**params, "context": context}, id=request_id)

    def reply_to(self, request_id):
        return next((m for m in self.sent if m.get("id") == request_id and "method" not in m), None)

    def asked(self, method):
        return [message for message in self.sent if message.get("method") == method]

    def replies(self, **reply):
        question = self.asked("workspace/configuration")[-1]
        self.server.protocol.receive({"jsonrpc": "2.0", "id": question["id"], **reply})

    def roots(self):
        return [event for event in self.sources.events if event[0] == "root"]

    async def until(self, condition):
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("nothing happened")

    async def ready(self):
        self.service.start()
        await self.until(lambda: self.service.ready)


@pytest.fixture
async def connect():
    made = []

    def make(*args, **options):
        made.append(Connection(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.end()
        one.service.stop()


async def test_roots_wait_for_the_clients_settings(connect):
    client = connect(configuration=True)
    await client.until(lambda: client.asked("workspace/configuration"))
    assert client.roots() == []
    client.replies(result=[{"index": False, "history": False, "secretPatterns": ["hid*"]}])
    assert client.roots()
    assert all(row == ("root", "/project", False, False, ("hid*",)) for row in client.roots())


@pytest.mark.parametrize("answered", [True, False])
async def test_a_client_that_does_not_tell_its_settings_is_indexed_all_the_same(
    connect, monkeypatch, answered
):
    monkeypatch.setattr(lsp_server.server, "CONFIGURATION_REPLY_S", 60.0 if answered else 0.01)
    client = connect(configuration=True)
    await client.until(lambda: client.asked("workspace/configuration"))
    if answered:
        client.replies(error={"code": -32603, "message": "no"})
    await client.until(client.roots)
    assert client.roots() == [("root", "/project", True, True, ())]


async def test_changed_settings_reach_the_sources_and_the_open_documents(connect):
    client = connect()
    client.opens()
    assert client.sources.events[-1] == ("open", "/project/hidden.py", "/project")
    for patterns, last in ((["hidden.py"], "close"), ([], "open")):
        section = {"specComplete": {"index": False, "secretPatterns": patterns}}
        client.says("workspace/didChangeConfiguration", {"settings": section})
        assert client.roots()[-1] == ("root", "/project", False, True, tuple(patterns))
        assert client.sources.events[-1][:2] == (last, "/project/hidden.py")


@pytest.mark.parametrize("settings", [{"enabled": False}, {"disabled_languages": ("dotenv",)}])
def test_a_secret_is_not_indexed_where_completions_are_off_either(settings):
    sources = Sources()
    feed = SourceFeed(sources, lambda: Settings(**settings))
    feed.opened(Document("file:///project/.env", "dotenv", 1, "KEY=1"))
    assert sources.events == []


@pytest.mark.parametrize("uri", ["scratch://[a]/b.py", "file://[a/b.py", "file://a\u2100b/c"])
async def test_a_name_that_is_no_uri_does_not_hang_the_others(connect, uri):
    client = connect()
    await client.ready()
    client.opens(uri)
    client.opens()
    client.asks(7)
    await client.until(lambda: client.reply_to(7))
    assert client.reply_to(7)["result"]["items"]


@pytest.mark.parametrize("where", ["launch", "_consider"])
async def test_a_fault_of_our_own_is_answered_and_the_next_request_works(connect, monkeypatch, where):
    client = connect()
    await client.ready()
    client.opens()

    def fails(*arguments):
        raise RuntimeError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(client.server.session._flights, where, fails)
        client.asks(7)
        await client.until(lambda: client.reply_to(7))
    assert client.reply_to(7)["result"] is None
    assert client.log.records[-1]["reason"] == "failed"
    client.asks(8)
    await client.until(lambda: client.reply_to(8))
    assert client.reply_to(8)["result"]["items"]


@pytest.mark.parametrize(
    ("start", "end"), [((1, 0), (1, 4)), ((0, 0), (1, 1)), ((0, 0), (0, 3)), ((0, 5), (0, 6))]
)
async def test_a_selected_entry_that_is_not_at_the_cursor_is_ignored(connect, start, end):
    client = connect()
    await client.ready()
    client.opens(text="x = y + z\nlast")
    span = {
        "start": dict(zip(("line", "character"), start, strict=True)),
        "end": dict(zip(("line", "character"), end, strict=True)),
    }
    selected = {"range": span, "text": "chosen"}
    client.asks(7, selected=selected)
    await client.until(lambda: client.reply_to(7))
    item = client.reply_to(7)["result"]["items"][0]
    assert item["insertText"].startswith("x = scripted()")


async def test_a_script_is_told_at_once_that_the_model_could_not_be_loaded(connect):
    client = connect()

    def load(progress):
        raise OSError("no space left")

    client.service._source = load
    for request_id in (7, 8):  # one waits for the load, one comes after it
        client.says("specComplete/complete", {"text": "x = ", "offset": 4}, id=request_id)
        client.service.start()
        await client.until(lambda number=request_id: client.reply_to(number))
        assert "no space left" in client.reply_to(request_id)["error"]["message"]


@pytest.mark.parametrize(
    "wrong",
    [{"sampling": [1]}, {"deadline_ms": "soon"}, {"offset": 5}, {"offset": True}, {"max_tokens": 1.5}],
)
async def test_a_scripts_malformed_request_is_refused(connect, wrong):
    client = connect()
    client.says("specComplete/complete", {"text": "x = ", "offset": 4, **wrong}, id=7)
    assert client.reply_to(7)["error"]["code"] == -32602


async def test_a_script_that_is_gone_does_not_hold_the_engine(connect):
    client = connect()
    engine = client.service._source
    engine.script, engine.token_s = says("0123456789" * 50), 0.01
    await client.ready()
    client.says("specComplete/complete", {"text": "x = ", "offset": 4}, id=7)
    await client.until(lambda: engine.count("step") > 2)
    client.end()
    await client.until(lambda: engine.count("close"))
    assert engine.count("step") < 60
    assert client.reply_to(7) is None


async def test_a_client_that_wants_no_log_gets_none_and_the_others_do(connect):
    quiet, loud = connect(telemetryLog=False), connect()
    for client in (quiet, loud):
        await client.ready()
        client.opens()
        client.asks(7)
        await client.until(lambda client=client: client.reply_to(7))
    assert quiet.log.records == []
    assert loud.log.records[-1]["kind"] == "request"


@pytest.mark.parametrize("request_id", [1.5, [1], {"a": 1}, True])
async def test_an_id_that_is_none_is_refused(connect, request_id):
    client = connect()
    client.opens()
    client.asks(request_id)
    assert client.sent[-1]["id"] is None and client.sent[-1]["error"]["code"] == -32600


async def test_each_client_has_the_settings_of_its_own_environment(connect, monkeypatch):
    monkeypatch.setenv("SPEC_COMPLETE_MAX_TOKENS", "9")  # of whoever started the process
    told = [{"SPEC_COMPLETE_MAX_TOKENS": "7"}, {}, None, "x", {"SPEC_COMPLETE_MAX_TOKENS": 7}]
    clients = [connect(environment=variables) for variables in told]
    assert [client.server.session.settings.max_tokens for client in clients] == [7, 64, 9, 9, 64]
