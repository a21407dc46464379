"""Where a completion ends, and what is trimmed."""

from __future__ import annotations

import pytest

from speculation.stop import StopRules, Surroundings

END = 999


def feed(pieces, mode="block", before="", below="", max_tokens=100):
    stop = StopRules(mode, {END}, max_tokens, Surroundings(before, below))
    for number, piece in enumerate(pieces):
        token = END if piece is END else number
        if not stop.commit(token, b"" if piece is END else piece.encode()):
            break
    return stop


@pytest.mark.parametrize(
    ("pieces", "mode", "before", "below", "text", "reason"),
    [
        (["x", " = 1", END, "more"], "none", "", "", "x = 1", "end"),
        (["x = 1\ny", " = 2"], "line", "", "", "x = 1", "line"),
        (["\n", "x"], "line", "y", "", "", "line"),
        (["a\n", "    b\n", "\n", "c"], "block", "    ", "", "a\n    b", "block"),
        (["a\n    b\n", "c\n"], "block", "    ", "", "a\n    b", "block"),
        (["return 1\n", "def g():\n", "x"], "block", "    ", "", "return 1", "block"),
        (["x):\n", "    y\n", "z\n"], "block", "if (", "", "x):\n    y", "block"),
        (["{\n", "  y\n", "}\n", "z\n", "w\n"], "block", "if (x) ", "", "{\n  y\n}", "block"),
        (["a\n", "b\n", "next(1)\n", "q"], "block", "", "next(1)", "a\nb", "suffix"),
        (["next(1)\n", "q"], "block", "", "next(1)", "", "suffix"),
        (["a\n", "next(12)\n", END], "block", "", "next(1)", "a\nnext(12)\n", "end"),
        (["a\n\tb\n", "c\n"], "block", "\t", "", "a\n\tb", "block"),
        (["a", "b", "c", "d"], "none", "", "", "abc", "length"),
    ],
)  # fmt: skip
def test_a_completion_ends_where_its_mode_says(pieces, mode, before, below, text, reason):
    stop = feed(pieces, mode, before, below, max_tokens=3 if reason == "length" else 100)
    assert (stop.text, stop.reason) == (text, reason)


def test_tokens_past_the_end_are_counted_as_trimmed():
    stop = feed(["a", "b\nc"], "line")
    assert stop.committed == 2 and stop.kept_tokens() == 2
    stop = feed(["a", "\n"], "line")
    assert stop.committed == 2 and stop.kept_tokens() == 1


def test_half_a_character_is_not_shown():
    stop = StopRules("none", (), 10)
    stop.commit(1, "né".encode()[:2])
    assert stop.text == "n"
    stop.commit(2, "né".encode()[2:])
    assert stop.text == "né"
