"""What was accepted and edited comes back in the next session, bounded, private and whole after a crash."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from cache.durable import exclusive
from cache.history import History, remove


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


def test_what_another_process_cleared_is_forgotten_at_once(history: History, tmp_path: Path) -> None:
    history.record("completion", "a.py", "alpha = beta")
    history.refresh()
    assert following(history, "alpha = ") == ["beta"]
    assert remove(tmp_path, "/root")
    assert not list(tmp_path.iterdir()) and not remove(tmp_path, "/root")
    history.refresh()
    assert following(history, "alpha = ") == following(history, "a") == []
    history.record("completion", "a.py", "gamma = delta")
    assert following(history, "gamma = ") == ["delta"]
    assert [record.text for record in history.records()] == ["gamma = delta"]


def test_what_was_cleared_stays_forgotten_when_another_process_wrote_since(
    history: History, tmp_path: Path
) -> None:
    history.record("completion", "a.py", "alpha = beta")
    remove(tmp_path, "/root")
    History(tmp_path, "/root", encode).record("completion", "a.py", "gamma = delta")
    history.refresh()
    assert "beta" not in following(history, "alpha = ")
    history.record("completion", "a.py", "third = text")
    assert "beta" not in following(history, "alpha = ")
    assert following(history, "gamma = ")[0] == "delta"
    assert following(history, "third = ")[0] == "text"


def test_clearing_is_noticed_by_writing_too(history: History, tmp_path: Path) -> None:
    history.record("completion", "a.py", "alpha = beta")
    remove(tmp_path, "/root")
    history.record("completion", "a.py", "gamma = delta")
    assert "beta" not in following(history, "alpha = ")
    assert following(history, "gamma = ") == ["delta"]


def test_shortening_loses_nothing_from_memory_and_leaves_no_leftovers(tmp_path: Path) -> None:
    history = History(tmp_path, "/root", encode, max_bytes=4000)
    Path(f"{history.path}.999.tmp").write_text("of a process that was killed")
    for number in range(100):
        history.record("completion", "a.py", f"text number {number}")
        history.refresh()
    assert following(history, "text number 9")[0] == "9"
    assert not list(tmp_path.glob("*.tmp"))


def test_looking_whether_it_was_cleared_costs_little(history: History) -> None:
    history.record("completion", "a.py", "alpha = beta")
    begun = time.thread_time()
    for _ in range(200):
        history.refresh()
    assert (time.thread_time() - begun) / 200 < 0.0002


def test_clearing_waits_for_who_is_shortening_it(history: History, tmp_path: Path) -> None:
    history.record("completion", "a.py", "alpha = beta")
    lock = history.path.with_suffix(".lock")
    removed = []
    with exclusive(lock):
        clearing = threading.Thread(target=lambda: removed.append(remove(tmp_path, "/root")))
        clearing.start()
        time.sleep(0.2)
        assert history.path.exists()
    clearing.join()
    assert removed == [True] and not list(tmp_path.iterdir())


def test_edits_of_this_session_are_found_by_their_last_tokens_until_the_next(
    history: History, tmp_path: Path
) -> None:
    """The open document has the rest; in two sources it would count twice."""
    history.record("edit", "a.py", "gamma = delta")
    assert [hit.length for hit in history.query(encode("gamma = "))] == [2]
    again = History(tmp_path, "/root", encode)
    again.load()
    assert [hit.length for hit in again.query(encode("gamma = "))] == [8]


def test_an_edit_that_says_what_was_just_accepted_is_not_recorded_twice(history: History) -> None:
    history.record("completion", "a.py", "alpha = beta")
    history.record("edit", "a.py", "  alpha = beta\n")
    history.record("edit", "a.py", "if alpha = beta:")
    assert [record.text for record in history.records()] == ["alpha = beta", "if alpha = beta:"]


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
