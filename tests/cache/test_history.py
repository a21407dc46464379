"""What was accepted and edited comes back in the next session, bounded, private and whole after a crash."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from cache.history import History, ReplacedText


def encode(text: str) -> list[int]:
    return list(text.encode())


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path, "/root", encode)


def following(history: History, text: str) -> list[str]:
    return [bytes(history.continuation(hit, 6)).decode() for hit in history.query(encode(text))]


def test_what_was_accepted_is_found_at_once_and_in_the_next_session(history: History, tmp_path: Path) -> None:
    history.record("completion", "a.py", "alpha = beta")
    history.record("edit", "a.py", "gamma = delta")
    assert following(history, "alpha = ")[0] == "beta"
    again = History(tmp_path, "/root", encode)
    assert following(again, "alpha = ") == []
    again.load()
    assert following(again, "gamma = ")[0] == "delta"
    assert again.tokens() == [encode("alpha = beta"), encode("gamma = delta")]
    assert [(r.kind, r.path, r.text) for r in again.records()] == [
        ("completion", "a.py", "alpha = beta"),
        ("edit", "a.py", "gamma = delta"),
    ]


def test_workspaces_do_not_share_history(history: History, tmp_path: Path) -> None:
    history.record("completion", "a.py", "alpha = beta")
    other = History(tmp_path, "/other", encode)
    other.load()
    assert other.tokens() == []


def test_turned_off_it_neither_reads_nor_writes(history: History, tmp_path: Path) -> None:
    history.record("completion", "a.py", "alpha = beta")
    before = history.path.read_bytes()
    off = History(tmp_path, "/root", encode, enabled=False)
    off.load()
    off.record("completion", "a.py", "gamma = delta")
    assert off.tokens() == [] and following(off, "alpha = ") == []
    assert history.path.read_bytes() == before


def test_secrets_and_blank_texts_are_not_recorded(tmp_path: Path) -> None:
    history = History(tmp_path, "/root", encode, secret_patterns=["*.notes"])
    history.record("completion", "/w/.env", "KEY=hunter2")
    history.record("completion", "/w/my.notes", "hunter2")
    history.record("completion", "/w/a.py", " \n")
    assert not history.path.exists() and history.tokens() == []


def test_the_file_is_private(history: History) -> None:
    history.record("completion", "a.py", "alpha")
    assert stat.S_IMODE(history.path.stat().st_mode) == 0o600


def test_a_line_cut_by_a_crash_costs_only_itself(history: History, tmp_path: Path) -> None:
    history.record("completion", "a.py", "first text")
    history.record("completion", "a.py", "second text")
    data = history.path.read_bytes()
    for cut in range(len(data) + 1):
        history.path.write_bytes(data[:cut])
        again = History(tmp_path, "/root", encode)
        again.record("completion", "a.py", "third text")
        texts = [record.text for record in again.records()]
        assert texts[-1] == "third text"
        assert texts[:-1] == ["first text", "second text"][: len(texts) - 1]
        assert len(texts) - 1 >= data[:cut].count(b"\n")


@pytest.mark.parametrize(
    "junk", [b"\0\0\n", b"[]\n", b"{}\n", b'{"kind":1}\n', b"\xff\n", b"null\n", b"9" * 5000 + b"\n"]
)
def test_lines_that_are_no_records_are_passed_over(history: History, tmp_path: Path, junk: bytes) -> None:
    history.path.write_bytes(junk)
    history.record("completion", "a.py", "good text")
    again = History(tmp_path, "/root", encode)
    again.load()
    assert again.tokens() == [encode("good text")]


def test_it_stays_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    history = History(tmp_path, "/root", encode, max_bytes=4000)
    for number in range(300):
        history.record("completion", "a.py", f"text number {number}")
        assert history.path.stat().st_size <= 4200
    records = history.records()
    assert [record.text for record in records] == [f"text number {n}" for n in range(300 - len(records), 300)]
    assert len(records) > 10
    assert sum(map(len, history.tokens())) <= 4000


def test_clear_forgets_on_disk_and_in_memory(history: History) -> None:
    history.record("completion", "a.py", "alpha = beta")
    history.clear()
    history.clear()
    assert not history.path.exists() and following(history, "alpha = ") == []
    history.record("completion", "a.py", "gamma = delta")
    assert following(history, "gamma = ") == ["delta"]


def test_a_disk_error_leaves_the_session_its_memory(history: History) -> None:
    history.path.mkdir()
    history.record("completion", "a.py", "alpha = beta")
    assert following(history, "alpha = ") == ["beta"]
    assert history.records() == []


def test_awkward_texts_and_paths_survive(history: History, tmp_path: Path) -> None:
    texts = ["a\r\nb", "\u2028\x00x", "😀" * 3, '"}\n{"kind"']
    for text in texts:
        history.record("edit", "bad\udcff\n.py", text)
    again = History(tmp_path, "/root", encode)
    assert [record.text for record in again.records()] == texts
    assert len(history.path.read_bytes().splitlines()) == len(texts)
    assert all(json.loads(line) for line in history.path.read_text().split("\n")[:-1])


def test_two_sessions_append_to_one_file(tmp_path: Path) -> None:
    for child in range(4):
        if os.fork() == 0:
            mine = History(tmp_path, "/root", encode)
            for number in range(50):
                mine.record("edit", "a.py", f"process {child} text {number}")
            os._exit(0)
    for _ in range(4):
        os.wait()
    assert len(History(tmp_path, "/root", encode).records()) == 200


def text_of(passages: list[list[int]]) -> list[str]:
    return [bytes(tokens).decode() for tokens in passages]


def test_characters_deleted_one_after_another_make_one_passage() -> None:
    replaced = ReplacedText(encode)
    for at, character in reversed(list(enumerate("word"))):
        replaced.add("d", 10 + at, character)
    assert text_of(replaced.passages("d")) == ["word"]
    for character in "next":
        replaced.add("d", 50, character)
    assert text_of(replaced.passages("d")) == ["word", "next"]


def test_the_documents_own_latest_passage_comes_last() -> None:
    replaced = ReplacedText(encode)
    replaced.add("d", 0, "mine, old")
    replaced.add("d", 90, "mine, new")
    replaced.add("e", 0, "other")
    assert text_of(replaced.passages("d")) == ["other", "mine, old", "mine, new"]
    assert text_of(replaced.passages("d", count=1)) == ["mine, new"]


def test_replaced_text_is_bounded_and_cleared() -> None:
    replaced = ReplacedText(encode, max_passages=5)
    for number in range(20):
        replaced.add("d", number * 100, f"text {number}")
    assert text_of(replaced.passages("d", count=99)) == [f"text {n}" for n in range(15, 20)]
    replaced.add("d", 0, "")
    replaced.clear()
    assert replaced.passages("d") == []
