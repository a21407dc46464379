"""What the user wrote is recorded piece by piece, when it is finished, and only that."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.documents import Document
from lsp_server.settled_edits import MOST_LINES, MOST_PIECES, QUIET_S, SettledEdits

TEXT = "\n".join(f"line {number}" for number in range(60))


class Editor:
    """One document, edited as an editor does."""

    def __init__(self, text=TEXT):
        self.now_s = 0.0
        self.recorded = []
        self.document = Document("file:///w/a.py", "python", 1, text)
        self.edits = SettledEdits(lambda path, root, text: self.recorded.append(text), lambda: self.now_s)

    def replace(self, start, end, text):
        """Lines and columns as the protocol has them."""
        before = self.document.snapshot()
        span = {
            side: {"line": line, "character": character}
            for side, (line, character) in {"start": start, "end": end}.items()
        }
        edit = self.document.apply({"range": span, "text": text}, "utf-16")
        self.edits.edit("me", "/w/a.py", "/w", before, edit)

    def type(self, line, column, text):
        for character in text:
            self.replace((line, column), (line, column), character)
            line, column = (line + 1, 0) if character == "\n" else (line, column + 1)

    def rest(self):
        self.now_s += QUIET_S
        self.edits.settle_quiet()


@pytest.fixture
def editor():
    return Editor()


def test_a_block_typed_key_by_key_is_one_record_once_it_rests(editor):
    editor.type(5, 6, " plus\n    more\nand")
    editor.edits.settle_quiet()
    assert editor.recorded == []
    editor.rest()
    assert editor.recorded == ["line 5 plus\n    more\nand"]
    editor.rest()
    assert len(editor.recorded) == 1


def test_while_it_is_being_written_it_does_not_rest(editor):
    for _ in range(5):
        editor.type(5, 6, "x")
        editor.now_s += QUIET_S * 0.9
        editor.edits.settle_quiet()
    assert editor.recorded == []
    assert 0 < editor.edits.quiet_in_s() < QUIET_S
    editor.rest()
    assert editor.recorded == ["line 5xxxxx"]
    assert editor.edits.quiet_in_s() is None


def test_places_far_apart_are_records_of_their_own_wherever_lines_move(editor):
    editor.type(40, 7, " below")
    editor.type(5, 6, "\nabove\n")
    editor.type(42, 13, "!")
    editor.replace((20, 0), (22, 0), "")
    editor.type(40, 14, "?")
    editor.rest()
    assert sorted(editor.recorded) == ["line 40 below!?", "line 5\nabove\n"]


def test_several_cursors_are_not_recorded_key_by_key(editor):
    for column in range(5):
        for line in range(0, 60, 6):
            editor.replace((line, column), (line, column), "x")
    editor.rest()
    assert len(editor.recorded) == 10
    assert all(text.startswith("xxxxx") for text in editor.recorded)


def test_what_was_undone_or_only_deleted_is_not_recorded(editor):
    editor.type(5, 0, "typo")
    editor.replace((5, 0), (5, 4), "")
    editor.replace((10, 0), (12, 0), "")
    editor.replace((30, 0), (30, 7), "")
    editor.rest()
    assert editor.recorded == []


def test_pastes_and_formatters_are_not_what_the_user_wrote(editor):
    editor.type(5, 6, " mine")
    editor.replace((0, 0), (59, 7), "\n".join(f"other {number:060d}" for number in range(100)))
    editor.rest()
    assert editor.recorded == ["line 5 mine"]


def test_closing_and_ending_do_not_wait(editor):
    editor.type(5, 6, " closed")
    editor.edits.settle("me", "/w/a.py")
    assert editor.recorded == ["line 5 closed"]
    editor.type(50, 7, " ended")
    editor.edits.settle_all()
    assert editor.recorded == ["line 5 closed", "line 50 ended"]


def test_what_is_kept_is_bounded():
    editor = Editor("\n".join(f"line {number}" for number in range(3000)))
    for line in range(0, 1500, 3):
        editor.replace((line, 0), (line, 0), "x")
    assert len(editor.edits) <= MOST_PIECES
    for line in range(2000, 2900):
        editor.replace((line, 0), (line, 0), "y")
    assert all(text.count("\n") <= MOST_LINES + 1 for text in editor.recorded)
    assert editor.recorded
    editor.replace((0, 0), (2990, 0), "z")
    editor.rest()
    assert all(text.count("\n") <= MOST_LINES + 1 for text in editor.recorded)


def test_two_clients_with_one_file_do_not_mix():
    editor = Editor()
    other = Document("file:///w/a.py", "python", 1, "one\ntwo")
    editor.type(5, 6, " mine")
    before = other.snapshot()
    at = {"line": 1, "character": 3}
    edit = other.apply({"range": {"start": at, "end": at}, "text": " theirs"}, "utf-16")
    editor.edits.edit("you", "/w/a.py", "/w", before, edit)
    editor.rest()
    assert sorted(editor.recorded) == ["line 5 mine", "two theirs"]


PLACES = st.tuples(st.integers(0, 14), st.integers(0, 7))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(PLACES, PLACES, st.sampled_from(["", "x", "\n", "a\nb\n\nc"])), max_size=12))
def test_a_piece_is_always_what_stands_in_the_document(changes):
    editor = Editor("\n".join(f"line {number}" for number in range(12)))
    for one, other, text in changes:
        editor.replace(*sorted((one, other)), text)
        lines = list(editor.document.snapshot())
        ends = []
        for pieces in editor.edits._pieces.values():
            for piece in pieces:
                assert piece.lines == lines[piece.first : piece.end]
                ends.append((piece.first, piece.end))
        ends.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))
