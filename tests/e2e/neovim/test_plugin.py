"""The plugin against a scripted server: every movement of the ghost text, without a model's time or mood."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.neovim]

LATE_S = 1.0  # longer than Neovim's own delay of 200 ms


def answers(script: Any, *entries: tuple[str, Any, dict[str, Any]] | tuple[str, Any]) -> None:
    listed = [{"before": e[0], "insert": e[1], **(e[2] if len(e) > 2 else {})} for e in entries]
    script.write(answers=listed)


def test_ghost_text_appears_where_the_cursor_is(neovim: Any, script: Any, version: str) -> None:
    answers(script, ("x = ", "compute(1)\ny = 2"))
    neovim.type("x = ")
    assert neovim.wait_ghost() == "compute(1)\ny = 2"
    rows = neovim.keep_screen(f"ghost-{version}")
    assert rows[:2] == ["x = compute(1)", "y = 2"]


def test_typing_along_keeps_the_ghost_text(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(1)"))
    neovim.type("x = ")
    neovim.wait_ghost()
    neovim.type("comp", pause_s=0)
    assert neovim.ghost() == "ute(1)"
    assert neovim.screen()[0] == "x = compute(1)"


def test_typing_something_else_removes_it_at_once(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(1)"))
    neovim.type("x = ")
    neovim.wait_ghost()
    neovim.type("z", pause_s=0)
    neovim.wait_no_ghost(0.15)
    neovim.keys("<Tab>")
    time.sleep(0.1)
    assert neovim.text() == "x = z   "  # nothing was there to accept


def test_accept_leaves_the_text_and_the_cursor_at_its_end(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(1)\ny = 2"))
    neovim.type("x = ")
    neovim.wait_ghost()
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    assert neovim.text() == "x = compute(1)\ny = 2"
    assert neovim.cursor() == (2, 5)
    commands = script.received("workspace/executeCommand")
    assert [message["params"]["command"] for message in commands] == ["fake.accepted"]


def test_accepting_after_typing_along_inserts_only_the_rest(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(1)"))
    neovim.type("x = ")
    neovim.wait_ghost()
    neovim.type("com", pause_s=0)
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    assert neovim.text() == "x = compute(1)"


def test_accepting_is_one_undo_step(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(1)\ny = 2"))
    neovim.type("x = ")
    neovim.wait_ghost()
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    neovim.keys("<Esc>u")
    assert neovim.text() == "x = "


def test_words_are_accepted_one_by_one_without_waiting(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(one, two)"))
    neovim.type("x = ")
    neovim.wait_ghost()
    for expected in (
        "x = compute",
        "x = compute(",
        "x = compute(one",
        "x = compute(one,",
        "x = compute(one, two",
    ):
        neovim.keys("<M-w>")
        wait = time.monotonic() + 0.15  # well before Neovim asks again
        while neovim.text() != expected and time.monotonic() < wait:
            pass
        assert neovim.text() == expected
    assert neovim.ghost() == ")"


def test_a_partial_accept_is_told_with_its_length_in_utf16(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "'😀' + rest"))
    neovim.type("x = ")
    neovim.wait_ghost()
    for _ in range(2):
        neovim.keys("<M-w>")
        time.sleep(0.05)
    told = script.received("textDocument/didPartiallyAcceptCompletion")
    assert [message["params"]["acceptedLength"] for message in told] == [5, 7]


def test_lines_are_accepted_one_by_one(neovim: Any, script: Any) -> None:
    answers(script, ("def f():", "\n    a = 1\n    b = 2\n    return a"))
    neovim.type("def f():")
    neovim.wait_ghost()
    texts = []
    for _ in range(3):
        neovim.keys("<M-l>")
        time.sleep(0.1)
        texts.append(neovim.text())
    assert texts == [
        "def f():\n    a = 1",
        "def f():\n    a = 1\n    b = 2",
        "def f():\n    a = 1\n    b = 2\n    return a",
    ]


def test_what_is_left_after_a_line_is_shown_under_the_cursor(neovim: Any, script: Any) -> None:
    answers(script, ("def f():", "\n    a = 1\n    return a"))
    neovim.type("def f():")
    neovim.wait_ghost()
    neovim.keys("<M-l>")
    time.sleep(0.1)
    assert neovim.ghost() == "\n    return a"
    assert neovim.screen()[:3] == ["def f():", "    a = 1", "    return a"]


@pytest.mark.parametrize(
    ("before", "after", "insert", "replace", "expected"),
    [
        ("foo(", ")", "x, y)", 1, "foo(x, y)"),
        ("f(g(", "))", "x))", 2, "f(g(x))"),
        ('s = "', '"', 'text"', 1, 's = "text"'),
        ("d = {'a': ", "}", "1}", 1, "d = {'a': 1}"),
    ],
)
def test_auto_closed_brackets_are_balanced_after_accepting(
    neovim: Any, script: Any, before: str, after: str, insert: str, replace: int, expected: str
) -> None:
    answers(script, (before, insert, {"replace": replace}))

    neovim.lua("vim.api.nvim_paste(..., false, -1)", before[:-1] + after)
    neovim.keys("<Left>" * len(after))
    neovim.type(before[-1])
    neovim.wait_ghost()
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    assert neovim.text() == expected


def test_a_word_accepted_before_an_auto_closed_bracket_keeps_it(neovim: Any, script: Any) -> None:
    answers(script, ("foo(", "x, y)", {"replace": 1}))
    neovim.keys("foo)<Left>(")
    neovim.wait_ghost()
    neovim.keys("<M-w>")
    time.sleep(0.1)
    assert neovim.text() == "foo(x)"
    neovim.keys("<Tab>")
    time.sleep(0.1)
    assert neovim.text() == "foo(x, y)"


def test_text_after_the_cursor_that_stays_is_not_covered(neovim: Any, script: Any) -> None:
    answers(script, ("foo(", "first, "))
    neovim.keys("foo(second)<Esc>0fsi<C-h>(")
    assert neovim.wait_ghost() == "first, "
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    assert neovim.text() == "foo(first, second)"


def test_emoji_and_cjk_before_the_cursor(neovim: Any, script: Any) -> None:
    answers(script, ("名 = '😀' + ", "str(漢字)"))
    neovim.type("名 = '😀' + ")
    assert neovim.wait_ghost() == "str(漢字)"
    neovim.type("str(漢", pause_s=0)
    assert neovim.ghost() == "字)"
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    assert neovim.text() == "名 = '😀' + str(漢字)"


def test_a_crlf_file_stays_one(neovim: Any, script: Any, tmp_path: Path) -> None:
    path = tmp_path / "dos.py"
    path.write_bytes(b"a = 1\r\nx = \r\n")
    neovim.keys("<Esc>")
    neovim.open(path)
    assert neovim.nvim.eval("&fileformat") == "dos"
    answers(script, ("x = ", "one\ntwo"))
    neovim.keys("jA")
    neovim.wait_ghost()
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    neovim.keys("<Esc>")
    neovim.nvim.command("write")
    assert path.read_bytes() == b"a = 1\r\nx = one\r\ntwo\r\n"


def test_a_late_answer_to_an_older_text_is_not_shown(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(1)", {"delay_ms": 700}))
    neovim.type("x = ")
    time.sleep(0.4)  # asked, not answered
    neovim.type("zz", pause_s=0)
    time.sleep(LATE_S)
    assert neovim.ghost() == ""


def test_a_late_answer_that_the_typing_agrees_with_is_shown(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "compute(1)", {"delay_ms": 40}))
    neovim.type("x = ")
    wait_until_asked(script)
    neovim.type("c", pause_s=0)
    assert neovim.wait_ghost(2) == "ompute(1)"


def wait_until_asked(script: Any, times: int = 1) -> None:
    end = time.monotonic() + 5
    while len(script.received("textDocument/inlineCompletion")) < times:
        assert time.monotonic() < end, "no request was sent"
        time.sleep(0.02)


def test_older_requests_are_cancelled(neovim: Any, script: Any) -> None:
    answers(script, ("x", "abc", {"delay_ms": 2000}), ("xy", "z", {"delay_ms": 0}))
    neovim.type("x")
    wait_until_asked(script)
    neovim.type("y")
    wait_until_asked(script, 2)
    time.sleep(0.1)
    first = script.received("textDocument/inlineCompletion")[0]["id"]
    assert [message["params"]["id"] for message in script.received("$/cancelRequest")] == [first]


def test_more_available_asks_again_without_a_key(neovim: Any, script: Any, tmp_path: Path) -> None:
    answers(script, ("x = ", ""))
    neovim.type("x = ")
    wait_until_asked(script)
    time.sleep(0.1)
    answers(script, ("x = ", "late(1)"))
    uri = (tmp_path / "sample.py").as_uri()
    neovim.lua(
        "require('spec-complete').handlers['specComplete/moreAvailable'](nil, { uri = ... })",
        uri,
    )
    assert neovim.wait_ghost(2) == "late(1)"


def test_only_the_buffer_under_the_cursor_is_asked_for(neovim: Any, script: Any, tmp_path: Path) -> None:
    neovim.keys("<Esc>")
    neovim.open(tmp_path / "other.py")
    answers(script, ("x = ", "1"))
    neovim.keys("i")
    neovim.type("x = ")
    neovim.wait_ghost()
    asked = {
        message["params"]["textDocument"]["uri"].rpartition("/")[2]
        for message in script.received("textDocument/inlineCompletion")
    }
    assert asked == {"other.py"}


def test_asking_by_hand_is_an_explicit_request(neovim: Any, script: Any) -> None:
    answers(script, ("", ""))
    neovim.type("x")
    wait_until_asked(script)
    time.sleep(0.4)
    neovim.keys("<M-t>")
    wait_until_asked(script, 2)
    kinds = [m["params"]["context"]["triggerKind"] for m in script.received("textDocument/inlineCompletion")]
    assert kinds[-1] == 1 and set(kinds[:-1]) == {2}


def test_several_answers_can_be_cycled_and_the_shown_one_is_accepted(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", ["first", "second"]))
    neovim.type("x = ")
    assert neovim.wait_ghost() == "first"
    neovim.keys("<M-n>")
    assert neovim.ghost().startswith("second")
    neovim.keys("<Tab>")
    neovim.wait_no_ghost()
    assert neovim.text() == "x = second"


def test_dismiss_removes_it(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "one"))
    neovim.type("x = ")
    neovim.wait_ghost()
    neovim.keys("<M-x>")
    neovim.wait_no_ghost(0.15)


def test_leaving_insert_mode_removes_it(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "one"))
    neovim.type("x = ")
    neovim.wait_ghost()
    neovim.keys("<Esc>")
    neovim.wait_no_ghost(0.15)


def test_what_was_shown_is_told_once(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "one"))
    neovim.type("x = ")
    neovim.wait_ghost()
    time.sleep(0.1)
    shown = script.received("textDocument/didShowCompletion")
    assert [message["params"]["item"]["insertText"] for message in shown] == ["x = one"]


def test_disable_and_enable(neovim: Any, script: Any) -> None:
    answers(script, ("x = ", "one"))
    neovim.nvim.command("SpecComplete disable")
    neovim.type("x = ")
    time.sleep(LATE_S)
    assert neovim.ghost() == "" and not script.received("textDocument/inlineCompletion")
    assert "spec –" in neovim.screen()[-2]
    neovim.nvim.command("SpecComplete enable")
    neovim.keys("<BS> ")
    assert neovim.wait_ghost() == "one"


def test_a_crash_in_mid_typing_is_recovered_from(neovim: Any, script: Any) -> None:
    script.write(answers=[{"before": "x = ", "insert": "one"}], exit_on="!")
    neovim.type("!")
    wait_until_asked(script)
    end = time.monotonic() + 10
    while len(script.received("initialize")) < 2:
        assert time.monotonic() < end, "the server was not started again"
        time.sleep(0.05)
    end = time.monotonic() + 5
    while not neovim.attached():
        assert time.monotonic() < end
        time.sleep(0.05)
    neovim.keys("<CR>")
    neovim.type("x = ")
    assert neovim.wait_ghost() == "one"
    assert "the server ended with code 1" in neovim.log()


def test_a_missing_server_says_what_to_do_once(start: Callable[..., Any], tmp_path: Path) -> None:
    neovim = start(cmd=["spec-complete-that-is-not-there", "serve"])
    neovim.nvim.command(f"edit {tmp_path / 'a.py'}")
    neovim.nvim.command(f"edit {tmp_path / 'b.py'}")
    time.sleep(0.3)
    messages = neovim.nvim.command_output("messages")
    assert messages.count("pip install spec-complete") == 1
    assert "spec ✗" in neovim.screen()[-2]


def test_a_fault_is_told_once_and_stays_in_the_statusline(
    start: Callable[..., Any], script: Any, tmp_path: Path
) -> None:
    fault = {"method": "specComplete/status", "params": {"kind": "error", "message": "no model: run X"}}
    script.write(answers=[], notify=[fault, fault, fault])
    neovim = start(cmd=script.command)
    neovim.open(tmp_path / "sample.py")
    time.sleep(0.3)
    assert neovim.nvim.command_output("messages").count("no model: run X") == 1
    assert "spec ✗" in neovim.screen()[-2]


def test_the_latency_line_reads_like_the_servers_own(neovim: Any, script: Any) -> None:
    from lsp_server.telemetry import summary_line

    answers(script, ("x = ", "one"))
    neovim.type("x = ")
    neovim.wait_ghost()
    record = {"route": "generated", "reason": "", "total_ms": 123.4, "forwards": 4, "ttft_ms": 45.6}
    record |= {"committed": 10, "accepted": 6, "drafted": 8, "reused_tokens": 100, "new_tokens": 3}
    time.sleep(0.2)
    assert summary_line(record) in neovim.log()


def test_the_health_check_finds_a_missing_server(start: Callable[..., Any]) -> None:
    neovim = start(cmd=["spec-complete-that-is-not-there"], no_such_option=1)
    neovim.nvim.command("checkhealth spec-complete")
    report = neovim.text()
    assert '"spec-complete-that-is-not-there" was not found' in report
    assert "no_such_option" in report


def test_the_help_file_has_a_tag_for_every_command_and_mapping(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    neovim = start(cmd=["true"])
    tags = tmp_path / "doc"
    tags.mkdir()
    source = Path(__file__).parents[3] / "editor-plugins/neovim/doc/spec-complete.txt"
    (tags / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    neovim.nvim.command(f"helptags {tags}")
    names = {line.split("\t")[0] for line in (tags / "tags").read_text(encoding="utf-8").splitlines()}
    mappings = {m["lhs"] for m in neovim.nvim.api.get_keymap("i") if "(spec-complete-" in m["lhs"]}
    assert {":SpecComplete", "vim.g.spec_complete", "spec-complete"} | mappings <= names
