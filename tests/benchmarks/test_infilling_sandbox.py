"""What the sandbox lets pass, and that nothing a program does reaches beyond it."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from benchmarks import infilling_sandbox
from benchmarks.infilling_sandbox import run


def test_a_program_that_ends_passes_and_one_that_fails_does_not() -> None:
    assert run("import math, re, hashlib, collections\nassert math.sqrt(4) == 2\nprint('noise')") == "passed"
    assert run("assert 1 == 2") == "failed"
    assert run("def f(:") == "failed"


@pytest.mark.parametrize(
    "leave",
    ["import os; os._exit(0)", "import sys; sys.exit(0)", "raise SystemExit", "quit()"],
)
def test_leaving_early_is_no_pass(leave: str) -> None:
    assert run(f"{leave}\nassert False") == "failed"


def test_saying_something_is_no_pass() -> None:
    assert run("import os; os.write(1, b'passed'); os._exit(0)") == "failed"


def test_an_endless_loop_is_ended_by_its_processor_time() -> None:
    began = time.monotonic()
    assert run("while True: pass", RLIMIT_CPU=1) == "timeout"
    assert time.monotonic() - began < 8


def test_waiting_for_ever_is_ended_by_the_clock() -> None:
    assert run("import time; time.sleep(60)", wall_s=1) == "timeout"


def test_a_program_that_wants_all_memory_gets_none_of_it() -> None:
    assert run("x = [0]\nwhile True: x = x + x", wall_s=20) == "failed"
    assert run("x = bytearray(1 << 31)") == "failed"


def test_output_without_end_is_cut() -> None:
    assert run("import os\nwhile True: os.write(1, b'x' * 65536)") == "failed"


@pytest.mark.parametrize(
    "change",
    [
        "open({path!r}, 'w').write('gone')",
        "open({path!r}, 'r+').write('gone')",
        "import os; os.open({path!r}, os.O_WRONLY | os.O_TRUNC)",
        "import os; os.remove({path!r})",
        "import os; os.rename({path!r}, 'here')",
        "import os; os.truncate({path!r}, 0)",
        "import os; os.symlink({path!r}, 'link'); open('link', 'w')",
        "import pathlib; pathlib.Path({path!r}).write_text('gone')",
        "import pathlib; pathlib.Path({path!r}).unlink()",
        "import shutil; shutil.rmtree({folder!r})",
        "import os; os.system('rm ' + {path!r})",
        "import subprocess; subprocess.run(['rm', {path!r}])",
        "import os; os.execv('/bin/rm', ['rm', {path!r}])",
        "import ctypes; ctypes.CDLL(None).unlink({path!r}.encode())",
    ],
)
def test_files_outside_stay_as_they_are(tmp_path: Path, change: str) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    assert run(change.format(path=str(kept), folder=str(tmp_path))) == "failed"
    assert kept.read_text() == "kept"


def test_a_program_may_write_where_it_stands_and_leaves_nothing() -> None:
    assert run("open('note', 'w').write('x'); assert open('note').read() == 'x'") == "passed"
    assert run("import os; assert not os.listdir('.')") == "passed"


def test_a_file_does_not_grow_past_its_limit() -> None:
    assert run("f = open('big', 'wb')\nfor _ in range(99): f.write(bytes(1 << 16)); f.flush()") == "failed"


@pytest.mark.parametrize("start", ["import os; os.fork()", "import os; os.kill(os.getppid(), 9)"])
def test_other_processes_are_out_of_reach(start: str) -> None:
    assert run(start) == "failed"


def test_the_network_is_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(f"import socket; socket.create_connection(('127.0.0.1', {port}))") == "failed"
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_environment_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_WORD", "x")
    assert run("import os; assert 'SECRET_WORD' not in os.environ") == "passed"


def test_packages_are_not_there() -> None:
    assert run("import pytest") == "failed"


def test_it_works_where_no_network_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infilling_sandbox, "_without_network", tuple)
    assert run("x = 1") == "passed"
    assert run("import socket; socket.socket()") == "failed"
