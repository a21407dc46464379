"""VS Code with the real server and the real 0.5B model: what a user gets."""

from __future__ import annotations

import ast
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lsp_server.telemetry import summary_line

pytestmark = [pytest.mark.vscode, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(300)]

LOADED_S = 180.0  # importing and loading on a busy machine

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


def wait_until(what: Any, timeout_s: float, about: str) -> Any:
    end = time.monotonic() + timeout_s
    while not (value := what()):
        assert time.monotonic() < end, f"waited {timeout_s:.0f} s for {about}"
        time.sleep(0.1)
    return value


def wait_ready(window: Any) -> None:
    wait_until(lambda: "Ready" in window.status() or "wrong" in window.status(), LOADED_S, "the model")
    assert "Ready" in window.status()


def test_ghost_text_appears_and_tab_leaves_exactly_that(window: Any) -> None:
    window.write("circle.py", CIRCLE)
    window.open("circle.py")
    window.type("re")
    ghost = window.settled_ghost()
    assert ghost.startswith("turn")
    window.picture("ghost-text")
    window.press("Tab")
    window.expect_saved("circle.py", CIRCLE + "re" + ghost)


def test_typing_along_keeps_the_ghost_text(window: Any) -> None:
    window.write("along.py", CIRCLE)
    window.open("along.py")
    window.type("r")
    ghost = window.settled_ghost()
    for typed in range(1, 4):
        window.type(ghost[typed - 1])
        wait_until(lambda typed=typed: window.ghost().startswith(ghost[typed:]), 5, f"{ghost[typed:]!r}")
    window.press("Tab")
    window.expect_saved("along.py", CIRCLE + "r" + ghost)


def test_next_word_then_next_line_are_accepted(window: Any) -> None:
    window.write("mean.py", MEAN)
    window.open("mean.py")
    window.type("m")
    ghost = window.settled_ghost()
    window.press("Control+ArrowRight")
    word = re.match(r"\w+", ghost)
    assert word
    wait_until(lambda: window.ghost() and len(window.ghost()) < len(ghost), 5, "the word to be taken")
    assert ghost.endswith(window.ghost())
    window.expect_saved("mean.py", MEAN + "m" + ghost[: len(ghost) - len(window.ghost())])
    window.press("Control+Alt+ArrowRight")
    first_line = ghost.split("\n")[0]
    wait_until(lambda: saved(window, "mean.py").startswith(MEAN + "m" + first_line), 8, "the line")


def saved(window: Any, name: str) -> str:
    window.press("Control+S")
    time.sleep(0.3)
    return str((window.folder / name).read_text(encoding="utf-8"))


def test_a_late_answer_appears_without_another_key(window: Any) -> None:
    filler = "".join(f"LIMIT_{i} = {i}\n" for i in range(150))  # prefill alone passes the deadline
    window.write("cold.py", filler + MEAN)
    window.open("cold.py")
    known = {record.get("id") for record in window.server.records()}
    window.type("m")
    assert window.settled_ghost()
    answers = [r for r in window.server.records() if r["kind"] == "request" and r["id"] not in known]
    assert max(record["total_ms"] for record in answers) > 300


def test_a_crlf_file_keeps_its_line_ends(window: Any) -> None:
    window.write("dos.py", MEAN, newline="\r\n")
    window.open("dos.py")
    window.type("m")
    ghost = window.settled_ghost()
    window.press("Tab")
    window.expect_saved("dos.py", (MEAN + "m" + ghost).replace("\n", "\r\n"))


def test_a_file_with_tabs_gets_tabs(window: Any) -> None:
    text = CIRCLE.replace("    ", "\t")
    window.write("tabs.py", text)
    window.open("tabs.py")
    window.type("re")
    window.settled_ghost()
    window.press("Tab")
    content = wait_until(lambda: (now := saved(window, "tabs.py")) != text + "re" and now, 8, "the text")
    assert content.startswith(text + "return")
    assert not re.search(r"^\t* ", content, re.M)


def test_emoji_before_the_cursor(window: Any) -> None:
    text = 'LABELS = {"😀": "happy", "漢字": "kanji"}\n\nboth = LABELS["😀"], LABELS'
    window.write("emoji.py", text)
    window.open("emoji.py")
    window.type("[")  # closed by the editor
    window.settled_ghost()
    window.press("Tab")
    content = wait_until(lambda: (now := saved(window, "emoji.py")) != text + "[]" and now, 8, "the text")
    assert content.startswith(text + "[")
    ast.parse("\n".join(content.split("\n")[: text.count("\n") + 1]))


def test_brackets_that_the_editor_closes_are_balanced(window: Any) -> None:
    text = "def add(a, b):\n    return a + b\n\n\ntotal = add"
    window.write("brackets.py", text)
    window.open("brackets.py")
    window.type("(")  # closed by the editor
    window.settled_ghost()
    window.picture("brackets")
    window.press("Tab")
    content = wait_until(lambda: (now := saved(window, "brackets.py")) != text + "()" and now, 8, "the text")
    ast.parse("\n".join(content.split("\n")[: text.count("\n") + 1]))  # what follows is the model's business


def test_the_latency_line_has_the_numbers_of_the_servers_log(window: Any) -> None:
    server = {r["id"]: r for r in window.server.records() if r["kind"] == "request"}
    lines = re.findall(r"^\S+ \S+ \[info\] (.*) \[(\S+)\]$", window.server.log(), re.M)
    assert len(lines) >= 3
    for line, identifier in lines:
        assert line == summary_line(server[identifier])


def test_pausing_and_resuming(window: Any) -> None:
    window.write("paused.py", CIRCLE)
    window.open("paused.py")
    window.command("Spec Complete: Pause or Resume")
    wait_until(lambda: "Paused" in window.status(), 10, "the status bar to say so")
    window.type("r")
    time.sleep(2)
    assert window.ghost() == ""
    window.command("Spec Complete: Pause or Resume")
    wait_until(lambda: "Ready" in window.status(), 10, "the status bar to say so")
    window.type("e")
    assert window.settled_ghost().startswith("turn")


def test_the_menu_opens_from_the_status_bar(window: Any) -> None:
    window.page.locator(".statusbar-item[id*='specComplete'] a").first.click()
    rows = window.page.locator(".quick-input-list .monaco-list-row")
    rows.first.wait_for(state="visible")
    labels = " ".join(rows.all_inner_texts())
    window.picture("menu")
    for entry in ("Pause", "Latency Report", "Open Log", "Restart Server"):
        assert entry in labels
    window.press("Escape")


def test_a_file_with_secrets_is_inactive_with_a_reason(window: Any) -> None:
    window.write(".env", "TOKEN=abc\nOTHER=")
    window.open(".env")
    window.type("a")
    wait_until(lambda: "secrets" in window.status(), 20, "the reason in the status bar")
    assert window.ghost() == ""
    window.picture("inactive")


def test_the_report_shows_the_figures(window: Any) -> None:
    window.command("Spec Complete: Show Latency Report")
    report = window.page.frame_locator("iframe.webview.ready").last.frame_locator("#active-frame")
    report.get_by_text("typed-through").first.wait_for(state="attached", timeout=60_000)
    window.page.wait_for_timeout(500)
    window.picture("report")
    window.press("Control+F4")


def test_two_windows_share_one_model(window: Any, browser: Any, window_class: Any) -> None:
    other = window_class(window.server, browser, window.server.home / "other")
    try:
        wait_ready(other)
        other.write("mean.py", MEAN)
        other.open("mean.py")
        window.write("shared.py", CIRCLE)
        window.open("shared.py")
        other.type("m")
        window.type("re")
        assert window.settled_ghost().startswith("turn") and other.settled_ghost()
        assert len(processes(window.server, "libtorch_cpu")) == 1
    finally:
        other.close()


def processes(server: Any, mapped: str) -> list[int]:
    """The processes of this test's editors that have a library mapped."""
    mark = f"XDG_RUNTIME_DIR={server.environment['XDG_RUNTIME_DIR']}\0".encode()
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            ours = mark in (maps.parent / "environ").read_bytes()
            if ours and mapped in maps.read_text(encoding="utf-8", errors="replace"):
                found.append(int(maps.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("victim", ["front end", "shared process"])
def test_a_server_killed_in_mid_typing_comes_back(window: Any, victim: str) -> None:
    name = f"killed-{victim.replace(' ', '-')}.py"
    window.write(name, CIRCLE)
    window.open(name)
    window.type("r")
    shared = processes(window.server, "libtorch_cpu")
    front = [pid for pid in commands(window.server, "spec-complete\0serve") if pid not in shared]
    for pid in shared if victim == "shared process" else front:
        os.kill(pid, signal.SIGKILL)
    window.type("e")
    end = time.monotonic() + LOADED_S
    while not window.ghost():  # the model may still be loading: as users do, type on
        assert time.monotonic() < end, "no ghost text"
        window.type("t")
        window.press("Backspace")
        time.sleep(1)
    ghost = window.settled_ghost()
    window.press("Tab")
    window.expect_saved(name, CIRCLE + "re" + ghost)


LINGERING = """#!/bin/sh
exec 3<&0
{program} "$@" <&3 3<&- &
exec 0<&- 3<&-
wait
sleep 2
"""


def test_a_dead_server_that_is_written_to_comes_back_without_a_pop_up(
    tmp_path: Path, browser: Any, server_class: Any, window_class: Any
) -> None:
    """Its end is noticed two seconds late; what is typed until then cannot be delivered."""
    lingering = tmp_path / "lingering"
    lingering.write_text(LINGERING.format(program=Path(sys.executable).with_name("spec-complete")))
    lingering.chmod(0o755)
    environment = {"SPEC_COMPLETE_MODEL": "smollm2-135m-q4"}
    settings = {"specComplete.server.command": [str(lingering)]}
    running = server_class(tmp_path / "home", environment, settings)
    try:
        window = window_class(running, browser, tmp_path / "project")
        wait_ready(window)
        window.write("circle.py", CIRCLE)
        window.open("circle.py")
        for pid in commands(running, "spec-complete\0serve"):
            os.kill(pid, signal.SIGKILL)
        window.type("retur", delay_ms=100)
        wait_until(lambda: running.log().count("ready: ") > 1, LOADED_S, "the server's return")
        wait_ready(window)
        assert window.notifications() == ""
        window.type("n")
        assert window.wait_ghost()
    finally:
        running.close()


def commands(server: Any, part: str) -> list[int]:
    """The processes of this test's editors with this in their command line."""
    mark = f"XDG_RUNTIME_DIR={server.environment['XDG_RUNTIME_DIR']}\0".encode()
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            ours = mark in (file.parent / "environ").read_bytes()
            if ours and part in file.read_text(encoding="utf-8", errors="replace"):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found
