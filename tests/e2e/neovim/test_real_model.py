"""Neovim with the real server and the real 0.5B model: what a user gets."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsp_server.telemetry import summary_line

pytestmark = [pytest.mark.neovim, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(240)]

MODEL = "qwen2.5-coder-0.5b-q4"
SERVER = [str(Path(sys.executable).with_name("spec-complete")), "serve"]
LOADED_S = 180.0  # importing and loading on a busy machine
SETTLED_S = 15  # an answer that was cut at its deadline goes on for at most so long
ANSWER_S = 60.0

CIRCLE = """import math


class Circle:
    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return math.pi * self.radius ** 2

    def circumference(self):
        """
MEAN = """def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)


def variance(values):
    """


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One daemon, one state directory for all editors of this module."""
    shared = tmp_path_factory.mktemp("shared")
    return {
        "XDG_RUNTIME_DIR": str(shared / "run"),
        "XDG_STATE_HOME": str(shared / "state"),
        "SPEC_COMPLETE_MODEL": MODEL,
        "SPEC_COMPLETE_IDLE_EXIT_MINUTES": "0.2",  # nothing is left behind
    }


@pytest.fixture(scope="module", params=["0.12", "0.11"])
def editor(request: Any, tmp_path_factory: Any, runtime: dict[str, str], editor_class: Any) -> Iterator[Any]:
    """One Neovim for the tests of a version; each test opens files of its own."""
    home = tmp_path_factory.mktemp("home")
    neovim = editor_class(request.param, home, {"cmd": SERVER, "log_level": "debug"}, None, runtime)
    neovim.version = request.param
    neovim.open(home / "first.py")
    wait_ready(neovim)
    yield neovim
    neovim.close()


def wait_until(what: Any, timeout_s: float, about: str) -> Any:
    end = time.monotonic() + timeout_s
    while not (value := what()):
        assert time.monotonic() < end, f"waited {timeout_s:.0f} s for {about}"
        time.sleep(0.05)
    return value


def status(neovim: Any) -> dict[str, Any]:
    return dict(neovim.lua("return require('spec-complete.status').last"))


def wait_ready(neovim: Any) -> None:
    wait_until(lambda: status(neovim)["kind"] in ("ready", "error"), LOADED_S, "the model")
    assert status(neovim)["kind"] == "ready", status(neovim)["message"]


def open_at_end(neovim: Any, path: Path, text: str, newline: str = "\n") -> None:
    """A file with this text, the cursor behind it in insert mode."""
    path.write_bytes(text.replace("\n", newline).encode())
    neovim.keys("<Esc>")
    neovim.open(path)
    neovim.keys("G$a" if text and not text.endswith("\n") else "Go")


def settled_ghost(neovim: Any) -> str:
    """The ghost text once the model has said all of it: no answer goes on, and it stays for a while."""
    ghost = neovim.wait_ghost(ANSWER_S)
    since = time.monotonic()
    end = since + SETTLED_S
    while time.monotonic() - since < 1.0:
        if (now := neovim.ghost()) != ghost or (goes_on(neovim) and time.monotonic() < end):
            ghost, since = now, time.monotonic()
        time.sleep(0.05)
    assert ghost
    return str(ghost)


def goes_on(neovim: Any) -> bool:
    """Whether the last answer was cut at its deadline, so that more may come."""
    answers = [r for r in records(neovim) if r["kind"] == "request" and r["characters"] > 0]
    return bool(answers) and answers[-1]["finish_reason"] == "deadline"


def test_ghost_text_appears_and_accepting_it_leaves_exactly_that(editor: Any, tmp_path: Path) -> None:
    open_at_end(editor, tmp_path / "circle.py", CIRCLE)
    editor.type("re")
    ghost = settled_ghost(editor)
    assert ghost.startswith("turn")
    screen = editor.keep_screen(f"real-model-{editor.version}")
    assert screen[11].rstrip() == "        re" + ghost.split("\n")[0]
    editor.keys("<Tab>")
    wait_until(lambda: editor.text() == CIRCLE + "re" + ghost, 2, "the accepted text")


def test_typing_along_keeps_the_ghost_text_without_the_model(editor: Any, tmp_path: Path) -> None:
    open_at_end(editor, tmp_path / "circle.py", CIRCLE)
    editor.type("r")
    ghost = settled_ghost(editor)
    for typed in range(1, 6):
        editor.keys(ghost[typed - 1])
        assert editor.ghost() == ghost[typed:]
    time.sleep(0.5)  # Neovim has asked again by now
    assert wait_until(editor.ghost, 5, "the ghost text").startswith(ghost[5:])
    last = [r for r in records(editor) if r["kind"] == "request" and r["route"] != "dropped"][-1]
    assert last["route"] in ("typed-through", "continued")


def test_accepting_word_by_word_and_line_by_line_gives_the_same_text(editor: Any, tmp_path: Path) -> None:
    open_at_end(editor, tmp_path / "mean.py", MEAN)
    editor.type("m")
    ghost = settled_ghost(editor)
    editor.keys("<M-w>")
    word = re.match(r"\s*(\w+|[^\w\s]+)", ghost)
    assert word
    wait_until(lambda: editor.text() == MEAN + "m" + word[0], 2, "the word")
    editor.keys("<M-l>")
    first_line = ghost.split("\n")[0]
    wait_until(lambda: editor.text() == MEAN + "m" + first_line, 2, "the rest of the line")


def test_a_late_answer_appears_and_grows_without_another_key(editor: Any, tmp_path: Path) -> None:
    filler = "".join(
        f"LIMIT_{i} = {i}\n" for i in range(150)
    )  # a cold prompt: prefill alone passes the deadline
    open_at_end(editor, tmp_path / "cold.py", filler + MEAN)
    seen = len(records(editor))
    editor.type("m")
    assert settled_ghost(editor)
    answered = [r for r in records(editor)[seen:] if r["kind"] == "request" and r["characters"] > 0]
    assert answered[0]["total_ms"] > 300


def test_a_crlf_file_keeps_its_line_ends(editor: Any, tmp_path: Path) -> None:
    path = tmp_path / "dos.py"
    open_at_end(editor, path, MEAN, newline="\r\n")
    editor.type("m")
    ghost = settled_ghost(editor)
    assert "\r" not in ghost
    editor.keys("<Tab>")
    wait_until(lambda: editor.text() == MEAN + "m" + ghost, 2, "the accepted text")
    editor.keys("<Esc>")
    editor.nvim.command("write")
    written = path.read_bytes()
    assert written.count(b"\r\n") == written.count(b"\n") and b"\r\r" not in written


def test_a_file_with_tabs_gets_tabs(editor: Any, tmp_path: Path) -> None:
    text = CIRCLE.replace("    ", "\t").rstrip("\t").rstrip("\n")
    open_at_end(editor, tmp_path / "tabs.py", text)
    editor.nvim.command("setlocal noexpandtab tabstop=4 shiftwidth=4")
    editor.keys("<CR><C-u>\t\tre")
    ghost = settled_ghost(editor)
    editor.keys("<Tab>")
    wait_until(lambda: editor.text() == f"{text}\n\t\tre{ghost}", 2, "the accepted text")
    assert not re.search(r"^\t* ", editor.text(), re.M)


def test_emoji_before_the_cursor(editor: Any, tmp_path: Path) -> None:
    text = 'LABELS = {"😀": "happy", "漢字": "kanji"}\n\nprint(LABELS["😀"], LABELS'
    open_at_end(editor, tmp_path / "emoji.py", text)
    editor.type("[")
    ghost = settled_ghost(editor)
    editor.keys("<Tab>")
    wait_until(lambda: editor.text() == text + "[" + ghost, 2, "the accepted text")


def test_auto_closed_brackets_are_balanced(editor: Any, tmp_path: Path) -> None:
    text = "def add(a, b):\n    return a + b\n\n\ntotal = add"
    open_at_end(editor, tmp_path / "brackets.py", text)
    editor.keys("()<Left>")  # as an auto-pairs plugin leaves it
    settled_ghost(editor)
    editor.keys("<Tab>")
    wait_until(lambda: editor.text() != text + "()", 2, "the accepted text")
    ast.parse(
        "\n".join(editor.text().split("\n")[: text.count("\n") + 1])
    )  # what follows is the model's business
    assert editor.text().startswith(text + "(")


def test_the_latency_line_has_the_numbers_of_the_servers_log(
    editor: Any, tmp_path: Path, runtime: dict[str, str]
) -> None:
    open_at_end(editor, tmp_path / "circle.py", CIRCLE)
    editor.type("se")
    settled_ghost(editor)
    logs = list(Path(runtime["XDG_STATE_HOME"]).rglob("telemetry.jsonl"))
    server = {}
    for line in logs[0].read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] == "request":
            server[record["id"]] = record
    lines = re.findall(r"^\S+ \S+ info  (.*) \[(\S+)\]$", editor.log(), re.M)
    assert lines
    for line, identifier in lines:
        assert line == summary_line(server[identifier])


def records(neovim: Any) -> list[dict[str, Any]]:
    """The latency records in the plugin's log."""
    return [json.loads(line) for line in re.findall(r" debug (\{.*\})$", neovim.log(), re.M)]


def test_the_front_end_killed_in_mid_typing_comes_back(editor: Any, tmp_path: Path) -> None:
    open_at_end(editor, tmp_path / "circle.py", CIRCLE)
    editor.type("r")
    for child in children(editor.lua("return vim.uv.os_getpid()")):
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: status(editor)["kind"] != "ready", 10, "the end of the server to be noticed")
    wait_until(editor.attached, 60, "the server to be started again")
    wait_ready(editor)
    finish_the_return(editor)


def test_the_shared_process_killed_in_mid_typing_comes_back(
    editor: Any, tmp_path: Path, runtime: dict[str, str]
) -> None:
    open_at_end(editor, tmp_path / "circle.py", CIRCLE)
    editor.type("r")
    for owner in owners_of_the_model(runtime):
        os.kill(owner, signal.SIGKILL)
    wait_until(lambda: owners_of_the_model(runtime), LOADED_S, "a new process")
    wait_ready(editor)
    finish_the_return(editor)


def finish_the_return(editor: Any) -> None:
    """Types on in `CIRCLE` and accepts; what stood there before is known to the server."""
    editor.type("e")
    end = time.monotonic() + LOADED_S
    while not editor.ghost():  # the model may still be loading: as users do, go on
        assert time.monotonic() < end, "no ghost text"
        editor.type("t")
        editor.keys("<BS>")
        time.sleep(1)
    ghost = settled_ghost(editor)
    assert ghost.startswith("turn")
    editor.keys("<Tab>")
    wait_until(lambda: editor.text() == CIRCLE + "re" + ghost, 2, "the accepted text")


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text(encoding="utf-8").split()]


def test_a_missing_model_says_what_to_do(tmp_path: Path, editor_class: Any) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SPEC_COMPLETE_MODEL": MODEL}
    neovim = editor_class("0.12", tmp_path / "home", {"cmd": SERVER}, None, environment)
    try:
        neovim.open(tmp_path / "a.py")
        wait_until(lambda: status(neovim)["kind"] == "error", LOADED_S, "the fault")
        assert f"spec-complete model pull {MODEL}" in status(neovim)["message"]
        assert "spec ✗" in neovim.screen()[-2]
        neovim.nvim.command("checkhealth spec-complete")
        assert f"spec-complete model pull {MODEL}" in neovim.text()
    finally:
        neovim.close()


def test_two_editors_share_one_model(editor: Any, editor_class: Any, tmp_path: Path, runtime: Any) -> None:
    other = editor_class("0.11", tmp_path / "other", {"cmd": SERVER}, None, runtime)
    try:
        other.open(tmp_path / "b.py")
        wait_ready(other)
        open_at_end(other, tmp_path / "mean.py", MEAN)
        open_at_end(editor, tmp_path / "circle.py", CIRCLE)
        other.type("m")
        editor.type("re")
        assert settled_ghost(other) and settled_ghost(editor).startswith("turn")
        assert len(owners_of_the_model(runtime)) == 1
    finally:
        other.close()


def owners_of_the_model(runtime: dict[str, str]) -> list[int]:
    """The processes of these editors that have torch loaded."""
    mark = f"XDG_RUNTIME_DIR={runtime['XDG_RUNTIME_DIR']}\0".encode()
    owners = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            ours = mark in (maps.parent / "environ").read_bytes()
            if ours and "libtorch_cpu" in maps.read_text(encoding="utf-8", errors="replace"):
                owners.append(int(maps.parent.name))
        except OSError:
            continue
    return owners
