"""The shared process: several editors on one model, and what happens when it dies."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from lsp_testkit.client import SERVER, URI, Client
from lsp_testkit.engine import text_hash

# the product's front end, with a connection to a scripted server instead of the real one
FRONT_END = """
import json, socket, subprocess, sys, time
from pathlib import Path
from lsp_server.daemon import DaemonError
from lsp_server.frontend import FrontEnd

server, options = sys.argv[1], json.loads(sys.argv[2])
path = options["socket"]

def connect(choice):
    try:
        return connected()
    except OSError:
        Path(path).unlink(missing_ok=True)
    child = subprocess.Popen(
        [sys.executable, "-I", server, json.dumps(options)], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )
    with open(options["pids"], "a") as file:
        print(child.pid, file=file)
    deadline = time.monotonic() + 30
    while True:
        try:
            return connected()
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)

def connected():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection

sys.exit(FrontEnd(sys.stdin.buffer, sys.stdout.buffer, connect).run())
"""


class Daemons:
    """Front ends of a test, and the processes that they started."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.options = {
            "socket": str(tmp_path / "s"),
            "pids": str(tmp_path / "pids"),
            "log": str(tmp_path / "engine.jsonl"),
            "script": ["hashes"],
            "idle_exit_s": 20,
        }
        self.script = tmp_path / "front_end.py"
        self.script.write_text(textwrap.dedent(FRONT_END))
        self.clients: list[Client] = []

    async def attach(self) -> Client:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(self.script), str(SERVER), json.dumps(self.options)),
            stdin=pipe,
            stdout=pipe,
            env={**os.environ, "SPEC_COMPLETE_STATE_DIR": str(self.tmp_path / "state")},
            limit=1 << 24,
        )
        client = Client(process.stdout, process.stdin)
        client.process = process
        self.clients.append(client)
        return client

    def pids(self) -> list[int]:
        file = Path(self.options["pids"])
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    async def end(self) -> None:
        for client in self.clients:
            client.disconnect()
            if client.process.returncode is None:
                client.process.kill()
            await client.process.wait()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def daemons(tmp_path):
    made = Daemons(tmp_path)
    yield made
    await made.end()


async def test_two_editors_share_one_process(daemons):
    first, second = await daemons.attach(), await daemons.attach()
    await first.initialize()
    await second.initialize("utf-8")
    await first.ready()
    for client, text in ((first, "a = "), (second, "b = ")):
        client.open(text)
        items = await client.complete(0, 4)
        assert items[0]["insertText"] == text + "h" + text_hash(text, 4)
    assert len(daemons.pids()) == 1
    await first.stop()
    assert await asyncio.wait_for(first.process.wait(), 2) == 0
    second.change("1", (0, 4), (0, 4))
    assert (await second.complete(0, 5))[0]["insertText"] == "b = 1h" + text_hash("b = 1", 5)


async def test_a_front_end_is_gone_two_seconds_after_its_editor(daemons):
    client = await daemons.attach()
    editor = await asyncio.create_subprocess_exec("sleep", "60")
    await client.initialize(processId=editor.pid)
    gone = time.monotonic()
    editor.kill()
    await editor.wait()
    await asyncio.wait_for(client.process.wait(), 3)
    assert time.monotonic() - gone < 2.5


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_after_a_crash_in_mid_request_the_next_request_works_with_the_right_text(daemons, encoding):
    daemons.options["token_ms"] = 300
    daemons.options["script"] = ["hashes"]
    client = await daemons.attach()
    await client.initialize(encoding, settings={"prefetch": False})
    await client.ready()
    client.open("x = 'é'\ny = ")
    client.change("日本", (0, 5), (0, 5))
    client.open("closed", "file:///workspace/closed.py")
    client.close("file:///workspace/closed.py")
    _, waiting = client.ask(1, 4, invoked=True)
    await asyncio.sleep(0.2)
    os.kill(daemons.pids()[0], signal.SIGKILL)
    assert (await asyncio.wait_for(waiting, 2))["result"] is None
    client.change("z", (1, 0), (1, 1))  # while nobody is there, or not yet
    await client.until(lambda: len(daemons.pids()) == 2, 20)
    text = "x = '日本é'\nz = "
    deadline = time.monotonic() + 20
    while not (items := await client.complete(1, 4, timeout_s=20)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    assert items[0]["insertText"] == "z = h" + text_hash(text, len(text))
    assert len({reply["id"] for reply in client.replies}) == len(client.replies)


BROKEN = """
import sys
from lsp_server.daemon import DaemonError
from lsp_server.frontend import FrontEnd

def connect(choice):
    raise DaemonError("the disk is full")

sys.exit(FrontEnd(sys.stdin.buffer, sys.stdout.buffer, connect).run())
"""


async def test_a_process_that_cannot_start_is_told_once_and_nothing_hangs(daemons):
    daemons.script.write_text(BROKEN)
    client = await daemons.attach()
    _, initialize = client.request("initialize", {"processId": None, "capabilities": {}})
    client.open("x = ")
    _, future = client.ask(0, 4)
    assert (await asyncio.wait_for(future, 30))["result"] is None
    assert "the disk is full" in (await asyncio.wait_for(initialize, 30))["error"]["message"]
    assert len(client.said("window/logMessage")) == 1
    assert client.process.returncode is None


def test_the_front_end_imports_neither_torch_nor_pygls():
    code = "import sys, lsp_server.frontend, lsp_server.commands.serve; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in modules.stdout.split()}
    assert not loaded & {"torch", "pygls", "lsprotocol", "transformers", "numpy", "asyncio", "tokenizers"}


def test_nothing_is_said_on_stderr_where_there_is_no_runtime_directory(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    code = "from lsp_server.daemon import EngineChoice; print(EngineChoice().socket_path())"
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert run.stdout.strip().endswith(".sock") and run.stderr == ""


def test_the_socket_lies_in_a_directory_of_the_users_own(tmp_path, monkeypatch):
    from cache.paths import runtime_dir
    from lsp_server.daemon import EngineChoice

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = EngineChoice().socket_path()
    assert path.parent == runtime_dir()
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path != EngineChoice(model="other").socket_path()


async def test_a_process_of_older_code_is_retired(tmp_path, monkeypatch):
    """It stops listening, serves the client it has, and ends with it."""
    from lsp_server import daemon

    path = tmp_path / "s"
    options = {"socket": str(path), "script": ["hashes"], "idle_exit_s": 60}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(SERVER), json.dumps(options)),
        env={**os.environ, "SPEC_COMPLETE_STATE_DIR": str(tmp_path / "state")},
    )
    from lsp_testkit.client import connected

    client = await connected(path)
    await client.initialize()
    await client.ready()
    assert await asyncio.to_thread(daemon._connect, path, "another version") is None
    assert not path.exists()
    client.open("x = ")
    assert await client.complete(0, 4) != []
    client.disconnect()
    assert await asyncio.wait_for(process.wait(), 3) == 0


async def test_scripts_are_answered_by_the_shared_process(tmp_path):
    from lsp_testkit.client import connected, spawned

    async with spawned(tmp_path, "socket", script=["says", "said()"]) as client:
        await client.initialize()
        await client.ready()
        script = await connected(tmp_path / "s")
        result = await script.call("specComplete/complete", {"text": "x = ", "offset": 4, "path": URI})
        assert (result["text"], result["engine"], result["metrics"]["trigger"]) == (
            "said()",
            "scripted",
            "command",
        )
        with pytest.raises(RuntimeError, match="-32602"):
            await script.call("specComplete/complete", {"text": "x = "})
        script.disconnect()
