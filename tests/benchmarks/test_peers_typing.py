"""Typing with scripted peers: what follows the text, what is right, what is accepted, what llama.vim asks."""

from __future__ import annotations

import pytest

from benchmarks.peers import typing_run
from benchmarks.peers.tasks import Workloads
from benchmarks.peers.typing_llama import LlamaTyping
from benchmarks.peers.typing_ours import edit_between, ghost_of
from benchmarks.peers.typing_session import Ghost, continues, is_right, typed
from benchmarks.peers.typing_tasks import Change, accepts, change_of, changes, gap_ms
from benchmarks.replay_hunks import Hunk
from lsp_server.documents import Place
from speculation.families import markers_for

TEXT = "import a\n\n\ndef total(items):\n    return sum(items)\nend = 1\n"
CHANGE = Change("c", "w", "a.py", TEXT, 3, 5, "old = 2\n")


class Oracle:
    """Shows what is going to be typed up to the line's end, after so many milliseconds."""

    def __init__(self, change, ms=1.0, wrong=False):
        self.typist, self.ms, self.wrong, self.accepts, self.asked = change.typist(), ms, wrong, 0, 0
        self.wanted = change.typist().wanted

    def begin(self, change):
        pass

    def end(self):
        pass

    def accepted(self):
        self.accepts += 1

    def ask(self, place):
        self.asked += 1
        done = "\n".join([*place.lines[3 : place.line], place.before])
        rest = self.wanted[len(done) :].split("\n")[0] if self.wanted.startswith(done) else ""
        return Ghost("nonsense" if self.wrong else rest, 0, self.ms, 0.5, 3)


def test_everything_is_typed_and_each_keystroke_is_a_row():
    peer = Oracle(CHANGE, wrong=True)
    rows = typed(CHANGE, peer, 999, sleep=lambda s: None)
    assert len(rows) == peer.asked and not any(row["right"] for row in rows)
    assert {"key", "open", "over", "enter"} <= {row["key"] for row in rows}
    assert len(typed(CHANGE, Oracle(CHANGE, wrong=True), 7, sleep=lambda s: None)) == 7


def test_right_text_in_time_is_accepted_and_saves_keystrokes():
    plain = typed(CHANGE, Oracle(CHANGE, wrong=True), 999, sleep=lambda s: None)
    peer = Oracle(CHANGE)
    rows = typed(CHANGE, peer, 999, sleep=lambda s: None)
    assert peer.accepts == sum(row["key"] == "accept" for row in rows) > 0
    assert len(rows) < len(plain) and any(row["follows"] for row in rows)


def test_text_that_comes_after_the_next_key_is_not_showing_and_not_accepted():
    late = Oracle(CHANGE, ms=5000.0)
    rows = typed(CHANGE, late, 999, sleep=lambda s: None)
    assert late.accepts == 0
    assert any(row["right"] for row in rows) and not any(row["right_in_time"] for row in rows)


def test_the_typist_waits_what_is_left_of_the_gap():
    waited = []
    rows = typed(CHANGE, Oracle(CHANGE, ms=20.0, wrong=True), 5, sleep=waited.append)
    assert waited == pytest.approx([(row["gap_ms"] - 20.0) / 1000 for row in rows], abs=1e-4)


def test_gaps_and_accepts_depend_on_the_state_alone():
    assert gap_ms(0, "abc") == gap_ms(1, "abc") != gap_ms(0, "abd")
    assert gap_ms(11, "abc") == 900
    assert {accepts(str(n)) for n in range(20)} == {True, False}
    assert accepts("abc") == accepts("abc")


@pytest.mark.parametrize(
    ("before", "after", "ghost", "follows"),
    [
        ("a", "ab", "bc", True),
        ("a", "ab", "b", False),  # nothing of it is left
        ("a", "ab", "xc", False),
        ("ab", "a", "bc", False),  # backspace
        ("a", "a\n    b", "\n    bc", True),
    ],
)
def test_a_keystroke_follows_the_text_that_begins_with_it(before, after, ghost, follows):
    assert continues(before, after, ghost) is follows


@pytest.mark.parametrize(
    ("ghost", "right"),
    [
        ("return a\nx", True),
        ("return a", True),
        ("return", True),
        ("return b", False),
        ("", False),
        ("\n", False),
    ],
)
def test_text_is_right_if_its_first_line_is_what_is_typed(ghost, right):
    assert is_right(ghost, "return a\nreturn b") is right


def test_a_change_begins_with_the_lines_that_it_replaces():
    assert CHANGE.text_before() == "import a\n\n\nold = 2\nend = 1\n"
    assert CHANGE.typist().place.text() == "import a\n\n\n\nend = 1\n"
    hunk = Hunk("p", "a.py", 3, "a\nb\n", "z\n", "old\n", "new one, long\nnew two, long\n")
    made = change_of("w", hunk)
    assert made.typist().wanted == "new one, long\nnew two, long" and made.text_before() == "a\nb\nold\nz\n"


def test_changes_are_of_different_files_and_large_enough():
    long = "x = compute_a_value(1)\n" * 4
    hunks = [("w", Hunk("p", f"{n % 2}.py", n, "a\n", "b\n", "", long)) for n in range(6)]
    small = [("w", Hunk("p", "s.py", 1, "a\n", "b\n", "", "x = 1\n"))]
    assert sorted(change.path for change in changes(hunks + small, 5)) == ["0.py", "1.py"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ab\ncd", "ab\nxcd"),
        ("aa", "aaa"),
        ("a\nb\nc", "a\nc"),
        ("", "x\ny"),
        ("same", "same"),
        ("f()", "f(x)"),
    ],
)
def test_an_edit_turns_one_text_into_the_other(old, new):
    edit = edit_between(old, new)

    def offset(position):
        lines = old.split("\n")
        return sum(len(line) + 1 for line in lines[: position["line"]]) + position["character"]

    start, end = offset(edit["range"]["start"]), offset(edit["range"]["end"])
    assert old[:start] + edit["text"] + old[end:] == new


def test_an_item_shows_what_comes_after_the_cursor():
    place = Place(("  foo()",), 0, 6)
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 7}}
    assert ghost_of({"insertText": "  foo(a, b)", "range": span}, place) == ("a, b)", 1)


class ScriptedWorker:
    def __init__(self, ids):
        self.ids, self.prompts = ids, []

    def ask(self, op, **request):
        self.prompts.append(request["prompt"])
        return {
            "ids": self.ids,
            "new": 5,
            "cpu_s": 0.1,
            "peak_bytes": 9,
            "first_ms": 1.0,
            "line_ms": 2.0,
            "reused": 0,
        }


def test_the_layout_of_the_plugin(tokenizer):
    markers = markers_for(tokenizer)
    peer = LlamaTyping(ScriptedWorker([]), tokenizer, markers)
    ids = peer.prompt(Place(("one", "two = 3", "four"), 1, 5))
    at = [ids.index(marker) for marker in (markers.repository, markers.file, markers.prefix, markers.suffix)]
    assert at == sorted(at) and ids[-1] == markers.middle
    assert (
        tokenizer.decode(ids[at[2] + 1 : at[3]]) == "one\ntwo ="
        and tokenizer.decode(ids[at[3] + 1 : -1]) == " 3\nfour\n"
    )
    blank = peer.prompt(Place(("one", "    ", "four"), 1, 4))
    assert tokenizer.decode(blank[blank.index(markers.suffix) + 1 : -1]) == "\nfour\n"


def test_what_is_typed_through_comes_from_the_plugins_own_cache(tokenizer):
    worker = ScriptedWorker(tokenizer.encode("sum(items)\n"))
    peer = LlamaTyping(worker, tokenizer, markers_for(tokenizer))
    peer.begin(CHANGE)
    assert peer.ask(Place(("return ", "end"), 0, 7)).text == "sum(items)"
    followed = peer.ask(Place(("return s", "end"), 0, 8))
    assert (followed.text, followed.evaluated) == ("um(items)", 0) and len(worker.prompts) == 1
    peer.ask(Place(("return x", "end"), 0, 8))
    assert len(worker.prompts) == 2


def test_a_blank_line_is_asked_from_its_start_and_shown_from_the_cursor(tokenizer):
    worker = ScriptedWorker(tokenizer.encode("    return 1"))
    peer = LlamaTyping(worker, tokenizer, markers_for(tokenizer))
    assert peer.ask(Place(("def f():", "    ", "end"), 1, 4)).text == "return 1"
    assert peer.ask(Place(("def f():", "    r", "end"), 1, 5)).text == "eturn 1" and len(worker.prompts) == 1


def row(state, ms, follows=False, **more):
    base = {"state": state, "ms": ms, "follows": follows, "shown": True, "right_in_time": True, "taken": 0}
    return {**base, "cpu_s": 1.0, "evaluated": 2, **more}


def test_the_ratio_is_over_states_in_which_both_had_to_think():
    ours = [row("a", 100.0), row("b", 1.0, follows=True), row("c", 50.0), row("d", 70.0)]
    theirs = [row("a", 400.0), row("b", 9.0), row("c", 200.0, shown=False), row("e", 1.0)]
    assert typing_run.shared_others(ours, theirs) == [(100.0, 400.0)]
    made = typing_run.figures([{"results": {"ours": {"rows": ours}, "llama": {"rows": theirs}}, "task": "c"}])
    assert made["others_ratio"]["value"] == 0.25 and made["others_ratio"]["n"] == 1
    assert made["ours"]["follows_ms"]["value"] == 1.0 and made["ours"]["others"] == 3


def test_an_accepted_text_saves_its_characters_but_for_the_key():
    made = typing_run.peer_figures([[row("a", 1.0, taken=11), row("b", 1.0)]])
    assert made["saved_characters"] == 10 and made["saved_share"] == round(10 / 12, 4)
    assert typing_run.ratio_of_medians([[]]) is None


def test_texts_are_compared_in_the_middle_of_the_typing(tokenizer):
    makers = Workloads(tokenizer, markers_for(tokenizer), ())
    made = typing_run.states(CHANGE, makers)
    assert [task.name for task in made] == ["c after 13", "c after 31"]
    assert tokenizer.decode(made[0].prefix) == "import a\n\n\ndef total(ite"
    assert tokenizer.decode(made[0].suffix) == ")\nend = 1\n"
