"""What still fits after typing: answers and anchors."""

import time

import pytest

from lsp_server.anchor import MOST_LINES, Anchor
from lsp_server.documents import Place
from lsp_server.reuse import LINES_BELOW, Answer, Answers, typed_since


def at(marked: str) -> Place:
    before, _, after = marked.rpartition("|")
    lines = before.split("\n")
    return Place(tuple((before + after).split("\n")), len(lines) - 1, len(lines[-1]))


@pytest.mark.parametrize(
    ("base", "now", "typed"),
    [
        ("x = |", "x = |", ""),
        ("x = |", "x = ab|", "ab"),
        ("x = |\nend", "x = a\n  b|\nend", "a\n  b"),
        ("a\nx = |", "a\nx = 日本|", "日本"),
        ("x = |", "x = foo(|)", "foo("),
        ("x = |", 'x = "a|"', '"a'),
        ("if a {|", "if a {\n    |\n}", "\n    "),
        ("f(|)", "f(g(|))", "g("),
        ("x = |", "y = a|", None),
        ("a\nx = |", "b\nx = 1|", None),
        ("x = |\nend", "x = 1|\nEND", None),
        ("x = ab|", "x = a|", None),
        ("a\n|", "|a\n", None),
        ("x = |", "x = 1|rest", None),
        ("x = |foo", "x = a|f", None),
        ("x = |\nend", "x = a|\nen", None),
        ("x = |\nend\nmore", "x = a|\nend", None),
        ("x = |\nend", "x = a|\nend\nmore", None),
        ("x = |", "x = a|)\n}\n", "a"),
    ],
)
def test_what_was_typed_since(base, now, typed):
    assert typed_since(at(base), at(now)) == typed


def test_lines_below_that_are_out_of_sight_may_go_on():
    below = "".join(f"\nline {number}" for number in range(LINES_BELOW + 50))
    base = at("if a {|" + below)
    assert typed_since(base, at("if a {\n    b|\n}" + below)) == "\n    b"
    assert typed_since(base, at("if a {\n    b|\n}" + below.replace("line 7\n", "\n"))) is None
    assert typed_since(base, at("if a {\n    b|\n}" + below.replace("\nline 7\n", "\n"))) is None


def test_much_white_space_below_is_compared_quickly():
    spaces = (" " * 2000 + "\n") * (LINES_BELOW - 10)
    began = time.thread_time()
    assert typed_since(at("x = |\n" + spaces + "y"), at("x = 1|\n" + spaces + "z")) is None
    assert time.thread_time() - began < 0.5


def test_the_remainder_is_what_was_not_typed_yet_and_replaces_what_the_editor_closed():
    answers = Answers()
    answers.add(Answer("1", at("x = |"), "foo(a)"))
    found = answers.find(at("x = foo(|)"))
    assert (found.text, found.replaced) == ("a)", 1)
    assert answers.find(at("x = foo(a)|")) is None
    assert answers.find(at("x = fx|")) is None
    assert answers.find(at("x = |")).text == "foo(a)"


def test_the_newest_answer_comes_first():
    answers = Answers()
    answers.add(Answer("old", at("x = |"), "one two"))
    answers.add(Answer("new", at("x = |"), "one three"))
    assert answers.find(at("x = one |")).answer.id == "new"
    assert answers.find(at("x = one tw|")).answer.id == "old"


def test_the_anchor_stays_while_the_user_types_on_and_so_do_prefix_and_suffix():
    anchor = Anchor()
    first = anchor.at(at("a\nb = |\nend"))
    assert first[0] == 1 and first[1].prefix == "a\n" and first[1].suffix == "\nend"
    for typed in ("a\nb = f|\nend", "a\nb = f(|)\nend", "a\nb = f(\n    |\n)\nend", "a\nb|\nend"):
        assert anchor.at(at(typed)) == first


@pytest.mark.parametrize(
    "now",
    [
        "changed\nb = 1|\nend",
        "a\nb = 1|\nother end",
        "|a\nb = \nend",
        "a\nb = 1" + "\n" * (MOST_LINES + 1) + "|\nend",
    ],
)
def test_the_anchor_moves_when_anything_else_changed(now):
    anchor = Anchor()
    anchor.at(at("a\nb = |\nend"))
    place = at(now)
    line, frozen = anchor.at(place)
    assert line == place.line
    assert frozen.prefix == "".join(row + "\n" for row in place.lines[:line])
