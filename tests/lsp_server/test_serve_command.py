"""Where `spec-complete serve` listens, and which process an editor is joined to."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from lsp_server import daemon
from lsp_server.cli import main
from lsp_server.commands import serve
from lsp_server.daemon import DaemonError, EngineChoice
from lsp_server.framing import frame, read_message_from

ELSEWHERE = ["0.0.0.0:0", ":::0", "[::]:0", "10.1.2.3:4000", "255.255.255.255:1"]
MALFORMED = ["4000x", "localhost", ":", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:٣", "no host:1"]


@pytest.mark.parametrize("address", ELSEWHERE)
def test_no_other_machine_can_connect(address, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--tcp", address])
    assert ended.value.code == 2
    assert "is not this machine alone" in capsys.readouterr().err


@pytest.mark.parametrize("address", MALFORMED)
def test_what_is_no_address_is_refused(address, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--tcp", address])
    assert ended.value.code == 2
    assert "--tcp" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("127.8.9.1:4000", ("127.8.9.1", 4000)),
        (":4000", ("127.0.0.1", 4000)),
        ("4000", ("127.0.0.1", 4000)),
        ("[::1]:4000", ("::1", 4000)),
        ("localhost:4000", ("localhost", 4000)),
    ],
)
def test_this_machine_can_connect(text, address):
    assert serve._loopback(text) == address


def test_where_no_private_directory_can_be_had_each_editor_has_a_process_of_its_own(monkeypatch, capsys):
    def refuses():
        raise PermissionError("/tmp/x belongs to another user: remove it")

    monkeypatch.setattr(daemon, "runtime_dir", refuses)
    monkeypatch.setattr("lsp_server.process.serve", lambda arguments: 7)
    assert main(["serve"]) == 7
    assert "/tmp/x belongs to another user: remove it" in capsys.readouterr().err
    with pytest.raises(DaemonError, match="belongs to another user"):
        daemon.running(EngineChoice())


@pytest.fixture
def directories(monkeypatch, tmp_path):
    """An environment without any of our variables."""
    for name in [name for name in os.environ if name.startswith(("SPEC_COMPLETE_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name in daemon.LIBRARY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/elsewhere")
    monkeypatch.setattr(daemon, "runtime_dir", lambda: tmp_path)
    return tmp_path


PROCESS_VARIABLES = [
    *("SPEC_COMPLETE_CACHE_DIR", "SPEC_COMPLETE_STATE_DIR"),
    *("XDG_CACHE_HOME", "XDG_STATE_HOME", "HOME"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    *("SPEC_COMPLETE_MODEL", "SPEC_COMPLETE_TELEMETRY_LOG", "SPEC_COMPLETE_IDLE_EXIT_MINUTES"),
    *("SPEC_COMPLETE_PROMETHEUS_PORT", "SPEC_COMPLETE_OTLP_ENDPOINT"),
]


@pytest.mark.parametrize("name", PROCESS_VARIABLES)
def test_windows_with_another_environment_have_another_process(directories, monkeypatch, name):
    before = EngineChoice().socket_path()
    monkeypatch.setenv(name, str(directories / "other"))
    assert EngineChoice().socket_path() != before


@pytest.mark.parametrize("name", ["SPEC_COMPLETE_SETTINGS", "XDG_CONFIG_HOME"])
def test_windows_with_another_settings_file_have_another_process_once_it_is_there(
    directories, monkeypatch, name
):
    before = EngineChoice().socket_path()
    file = directories / "spec-complete/settings.json"
    monkeypatch.setenv(name, str(directories if name == "XDG_CONFIG_HOME" else file))
    assert EngineChoice().socket_path() == before
    file.parent.mkdir()
    file.write_text("{}", encoding="utf-8")
    assert EngineChoice().socket_path() != before


@pytest.mark.parametrize("name", ["SPEC_COMPLETE_TEMPERATURE", "SPEC_COMPLETE_MAX_TOKENS", "TERM", "EDITOR"])
def test_windows_share_a_process_whatever_else_is_set(directories, monkeypatch, name):
    before = EngineChoice().socket_path()
    monkeypatch.setenv(name, "7")
    assert EngineChoice().socket_path() == before


def test_what_is_set_to_what_holds_anyway_makes_no_other_process(directories, monkeypatch):
    before = EngineChoice().socket_path()
    monkeypatch.setenv("XDG_CACHE_HOME", str(directories / ".cache"))
    assert EngineChoice().socket_path() == before


def test_relative_paths_are_those_of_whoever_asks(directories, monkeypatch):
    paths = set()
    for name in ("one", "two"):
        (directories / name).mkdir()
        monkeypatch.chdir(directories / name)
        monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", "state")
        choice = EngineChoice(model="./model")
        told = choice.environment()
        assert told["SPEC_COMPLETE_STATE_DIR"] == str(directories / name / "state")
        assert told["SPEC_COMPLETE_MODEL"] == str(directories / name / "model")
        paths.add(choice.socket_path())
    assert len(paths) == 2


def test_a_client_says_which_variables_are_set_where_it_runs(directories, monkeypatch):
    monkeypatch.setenv("SPEC_COMPLETE_TEMPERATURE", "0.7")
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rwb") as stream:
        asking = threading.Thread(target=daemon._hello, args=(ours, "1"))
        asking.start()
        hello = read_message_from(stream)
        stream.write(frame({"jsonrpc": "2.0", "id": hello["id"], "result": {"version": "1"}}))
        stream.flush()
        asking.join(5)
    assert hello["params"] == {"version": "1", "environment": {"SPEC_COMPLETE_TEMPERATURE": "0.7"}}


def test_a_platform_without_file_locks_can_serve_all_the_same():
    code = "import sys; sys.modules['fcntl'] = None; import lsp_server.daemon, lsp_server.frontend"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


def test_a_process_that_is_given_up_does_not_come_after_all(directories, monkeypatch):
    started = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(daemon, "_start", lambda path, choice: started)
    monkeypatch.setattr(daemon, "START_TIMEOUT_S", 0.05)
    try:
        with pytest.raises(DaemonError, match="did not start"):
            daemon.join(EngineChoice())
        assert started.wait(5) != 0
    finally:
        started.kill()
