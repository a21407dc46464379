"""Columns in the three encodings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.positions import ENCODINGS, choose_encoding, to_column, to_index

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


def test_a_column_inside_a_character_is_its_start():
    assert to_index("a😀b", 2, "utf-16") == 1
    assert [to_index("a😀b", column, "utf-8") for column in (2, 3, 4, 5)] == [1, 1, 1, 2]


def test_the_clients_first_known_encoding_is_chosen():
    assert choose_encoding(["utf-7", "utf-32", "utf-8"]) == "utf-32"
    assert choose_encoding(None) == choose_encoding([]) == choose_encoding("utf-8") == "utf-16"
