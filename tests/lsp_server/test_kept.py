"""How much of an accepted text is still there: by what the user did to it."""

from __future__ import annotations

import pytest

from lsp_server.kept import kept_share

BEFORE = ["import os", "", "def area(w, h):"]
AFTER = ["", "print(area(2, 3))"]
ACCEPTED = "    total = w * h\n    return total"


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ([*BEFORE, "    total = w * h", "    return total", *AFTER], 1.0),
        ([*AFTER, *BEFORE, "\ttotal = w * h", "\treturn total"], 1.0),  # moved, indented otherwise
        ([*BEFORE, "    return total", *AFTER], 12 / 25),  # a line was deleted
        ([*BEFORE, "    total = w * h * 2", "    return total", *AFTER], 1.0),  # continued
        ([*BEFORE, "    total = w + h", "    return total", *AFTER], 24 / 25),  # one character replaced
        ([*BEFORE, *AFTER], 0.0),  # undone
        ([], 0.0),
    ],
)
def test_what_is_still_there_counts(lines, share):
    assert kept_share(ACCEPTED, lines) == pytest.approx(share)


def test_text_accepted_behind_typed_text_is_found_in_its_line():
    assert kept_share("turn total", ["    return total"]) == 1.0


def test_each_line_counts_for_one_line_of_the_text_only():
    assert kept_share("a = 1\na = 1", ["a = 1"]) == 0.5


def test_text_without_characters_is_nothing_to_keep():
    assert kept_share("\n  \n", ["x"]) == 0.0
