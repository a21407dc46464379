"""The mirror against a plain string edited the way the protocol says."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache.hot_index import HotIndex
from lsp_server.documents import ChangeError, Document, Place, split_lines

ENDS = re.compile(r"\r\n|\n|\r")
PIECES = st.lists(
    st.sampled_from(
        ["a", "bc", "\n", "\r\n", "\r", "\f", "\v", "\x85", "\u2028", "é", "日本", "😀", "e\u0301", " "]
    ),
    max_size=12,
).map("".join)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


def units(text: str, encoding: str) -> int:
    return {"utf-8": len(text.encode()), "utf-16": len(text.encode("utf-16-le")) // 2, "utf-32": len(text)}[
        encoding
    ]


def position_of(text: str, offset: int, encoding: str) -> dict:
    """The protocol position of an offset that is not inside a line end."""
    line, start = 0, 0
    for match in ENDS.finditer(text):
        if match.end() > offset:
            break
        line, start = line + 1, match.end()
    return {"line": line, "character": units(text[start:offset], encoding)}


def editable_offsets(text: str) -> list[int]:
    return [at for at in range(len(text) + 1) if text[at - 1 : at + 1] != "\r\n"]


@settings(max_examples=400, deadline=None)
@given(PIECES, st.lists(st.tuples(PIECES, st.integers(0, 99), st.integers(0, 99)), max_size=8), ENCODINGS)
def test_the_mirror_equals_the_editors_text_after_any_edits(text, edits, encoding):
    document = Document("file:///a", "python", 1, text)
    for new, one, other in edits:
        offsets = editable_offsets(text)
        start, end = sorted((offsets[one % len(offsets)], offsets[other % len(offsets)]))
        span = {"start": position_of(text, start, encoding), "end": position_of(text, end, encoding)}
        document.apply({"range": span, "text": new}, encoding)
        text = text[:start] + new + text[end:]
        assert document.text == text
        assert list(document.snapshot()) == ENDS.split(text)
        assert document.size == len(text)


def as_bytes(text: str) -> list[int]:
    return list(text.encode())


LINE_END_PIECES = st.lists(st.sampled_from(["\r", "\n", "\r\n", "a", "", "bc"]), max_size=4).map("".join)


@settings(max_examples=600, deadline=None)
@given(
    LINE_END_PIECES,
    st.lists(st.tuples(LINE_END_PIECES, st.integers(0, 99), st.integers(0, 99)), max_size=8),
)
def test_edits_say_what_happened_to_the_text_with_plain_line_ends(text, edits):
    document = Document("file:///a", "python", 1, text)
    index = HotIndex(as_bytes)
    index.open("a", "\n".join(document.snapshot()))
    for new, one, other in edits:
        offsets = editable_offsets(text)
        start, end = sorted((offsets[one % len(offsets)], offsets[other % len(offsets)]))
        span = {"start": position_of(text, start, "utf-16"), "end": position_of(text, end, "utf-16")}
        before = document.snapshot()
        edit = document.apply({"range": span, "text": new}, "utf-16")
        text = text[:start] + new + text[end:]
        plain = "\n".join(before)
        at, last = edit.offsets(before)
        assert plain[at:last] == edit.removed(before)
        assert plain[:at] + edit.text + plain[last:] == "\n".join(document.snapshot())
        assert index.edit("a", at, last, edit.text)
        assert index.text("a") == ENDS.sub("\n", text)


def test_only_the_protocols_line_ends_split_lines():
    lines, ends = split_lines("a\fb\x0bc\x85d\u2028e\r\nf\rg\n")
    assert lines == ["a\fb\x0bc\x85d\u2028e", "f", "g", ""]
    assert ends == ["\r\n", "\r", "\n", ""]


@pytest.mark.parametrize(
    ("line", "character", "expected"),
    [(0, 99, (0, 3)), (99, 0, (1, 5)), (1, 2**40, (1, 5)), (0, 0, (0, 0)), (2**40, 2**40, (1, 5))],
)
def test_a_position_past_the_end_is_the_end(line, character, expected):
    place = Document("file:///a", "", 1, "abc\nde fg").place(line, character, "utf-16")
    assert (place.line, place.column) == expected


@pytest.mark.parametrize(
    "change", [{}, {"text": 3}, {"text": "x", "range": {"start": {}}}, None, {"range": {}}]
)
def test_a_malformed_change_is_refused(change):
    with pytest.raises(ChangeError):
        Document("file:///a", "", 1, "abc").apply(change, "utf-16")


@pytest.mark.parametrize("wrong", [0.0, 1.5, True, "0", None])
@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("axis", ["line", "character"])
def test_a_position_that_is_no_whole_number_is_refused_and_changes_nothing(wrong, side, axis):
    document = Document("file:///a", "", 1, "abc\ndef")
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 1}}
    span[side][axis] = wrong
    with pytest.raises(ChangeError):
        document.apply({"range": span, "text": "x"}, "utf-16")
    assert document.text == "abc\ndef"


def test_a_snapshot_does_not_follow_later_edits():
    document = Document("file:///a", "", 1, "one\ntwo")
    place = document.place(1, 3, "utf-16")
    document.apply({"range": None, "text": "other"}, "utf-16")
    assert place.text() == "one\ntwo"
    assert place.offset() == 7


def test_text_and_offset_use_newlines_whatever_the_file_uses():
    place = Document("file:///a", "", 1, "one\r\ntwo\rthree").place(2, 2, "utf-16")
    assert place.text()[: place.offset()] == "one\ntwo\nth"


def test_lone_surrogates_do_not_reach_the_tokenizer():
    assert Place(("a\ud800b",), 0, 0).text() == "a�b"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("ab", [(1, 1, "\ud83d"), (2, 2, "\ude00")]),
        ("ab", [(1, 1, "\ude00"), (1, 1, "\ud83d")]),
        ("ab", [(1, 1, "\ud83dxx"), (2, 4, "\ude00")]),
        ("ab", [(1, 1, "\ud83dx\ude00"), (2, 3, "")]),
    ],
)
def test_halves_of_an_emoji_become_the_emoji(text, changes):
    document = Document("file:///a", "", 1, text)
    for start, end, new in changes:
        span = {"start": {"line": 0, "character": start}, "end": {"line": 0, "character": end}}
        before = document.snapshot()
        edit = document.apply({"range": span, "text": new}, "utf-16")
    assert (document.text, document.size) == ("a😀b", 3)
    at, last = edit.offsets(before)
    assert before[0][:at] + edit.text + before[0][last:] == "a😀b"
    span = {"start": {"line": 0, "character": 3}, "end": {"line": 0, "character": 4}}
    document.apply({"range": span, "text": "c"}, "utf-16")
    assert document.text == "a😀c"


def test_inserting_moves_the_cursor_and_keeps_what_follows():
    place = Place(("foo()", "end"), 0, 4).with_inserted("a,\n  b)", 1)
    assert (list(place.lines), place.line, place.column) == (["foo(a,", "  b)", "end"], 1, 4)


@pytest.mark.parametrize(("lines", "limit_ms"), [(10_000, 1.0), (50_000, 5.0)])
def test_a_keystroke_costs_little_in_a_long_document(lines, limit_ms):
    document = Document("file:///a", "", 1, "a line of some usual length, about 46 chars\n" * lines)
    times = []
    for _ in range(15):
        started = time.perf_counter()
        at = {"line": lines // 2, "character": 3}
        document.apply({"range": {"start": at, "end": at}, "text": "x"}, "utf-16")
        document.place(lines // 2, 4, "utf-16")
        times.append((time.perf_counter() - started) * 1000)
    assert min(times) < limit_ms
