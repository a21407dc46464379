"""Columns in the three encodings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents import Document
from lsp_server.items import Offer, item
from lsp_server.messages import Position, SelectedCompletion
from lsp_server.positions import ENCODINGS, choose_encoding, length_from_utf16, to_column, to_index
from lsp_server.selection import with_selected

LINES = ["", "plain", "é日本", "a😀b", "e\u0301\u0302x", "👨‍👩‍👧 family", "\ud800x"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(line=st.sampled_from(LINES) | st.text(st.characters(exclude_categories=["Cc"]), max_size=20))
def test_columns_and_indexes_are_inverse(encoding, line):
    for index in range(len(line) + 1):
        assert to_index(line, to_column(line, index, encoding), encoding) == index


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("line", LINES)
def test_a_column_past_the_end_is_the_end(encoding, line):
    for column in (len(line) * 4 + 1, 2**40):
        assert to_index(line, column, encoding) == len(line)


INSIDE = [
    ("utf-16", "a😀b", [0, 1, 1, 2, 3]),
    ("utf-16", "😀😀", [0, 0, 1, 1, 2]),
    ("utf-16", "👨‍👩x", [0, 0, 1, 2, 2, 3, 4]),  # a joiner is a character of its own
    ("utf-8", "a😀b", [0, 1, 1, 1, 1, 2, 3]),
    ("utf-8", "é日", [0, 0, 1, 1, 1, 2]),
]


@pytest.mark.parametrize(("encoding", "line", "indexes"), INSIDE)
def test_a_column_inside_a_character_is_its_start(encoding, line, indexes):
    assert [to_index(line, column, encoding) for column in range(len(indexes))] == indexes


@pytest.mark.parametrize(("encoding", "line", "indexes"), INSIDE)
def test_an_edit_whose_range_begins_or_ends_inside_a_character_takes_it_from_its_start(
    encoding, line, indexes
):
    for start, first in enumerate(indexes):
        for end, last in list(enumerate(indexes))[start:]:
            document = Document("file:///a", "text", 1, f"above\n{line}\nbelow")
            span = {"start": {"line": 1, "character": start}, "end": {"line": 1, "character": end}}
            document.apply({"range": span, "text": "x"}, encoding)
            assert document.text == f"above\n{line[:first]}x{line[last:]}\nbelow"


@pytest.mark.parametrize(("encoding", "line", "indexes"), INSIDE)
def test_a_selected_entry_and_a_cursor_inside_a_character_begin_at_its_start(encoding, line, indexes):
    document = Document("file:///a", "text", 1, line)
    for column, index in enumerate(indexes):
        place = document.place(0, column, encoding)
        assert (place.before, place.after) == (line[:index], line[index:])
        made = item(Offer("1", "new"), place, encoding)
        assert made["range"]["end"]["character"] == to_column(line, index, encoding)
        at = Position(0, column)
        chosen = with_selected(place, SelectedCompletion(at, at, "chosen"), encoding)
        assert chosen.before == line[:index] + "chosen"


def test_an_accepted_length_inside_a_character_does_not_count_it():
    assert [length_from_utf16("a😀b", units) for units in range(6)] == [0, 1, 1, 2, 3, 3]


def test_the_clients_first_known_encoding_is_chosen():
    assert choose_encoding(["utf-7", "utf-32", "utf-8"]) == "utf-32"
    assert choose_encoding(None) == choose_encoding([]) == choose_encoding("utf-8") == "utf-16"
