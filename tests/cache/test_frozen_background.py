"""The index follows the workspace in the background, whatever happens to the process that builds it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cache.background_indexer import BackgroundIndexer
from cache.frozen_index import FrozenIndex
from cache.index_failures import failed_builds
from cache.workspace import Workspace


def encode(text: str) -> list[int]:
    return list(text.encode())


def load_encode() -> Callable[[str], list[int]]:
    return encode


def load_slow() -> Callable[[str], list[int]]:
    time.sleep(60)
    return encode


def load_broken() -> Callable[[str], list[int]]:
    raise RuntimeError("no tokenizer")


def load_noisy() -> Callable[[str], list[int]]:
    print("this would break the editor's protocol", flush=True)
    return encode


def until(condition: Callable[[], object], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Running:
    def __init__(self, base: Path, load: Callable[[], Callable[[str], list[int]]] = load_encode) -> None:
        self.root = base / "root"
        self.root.mkdir(exist_ok=True)
        self.index = FrozenIndex(base / "index")
        workspace = Workspace(self.root)
        self.indexer = BackgroundIndexer(self.index, workspace, load, settle_s=0.1, retry_s=0.1)

    def found(self, text: str) -> list[str]:
        context = encode(text)
        return [hit.document for hit in self.index.query(context) if hit.length >= len(context)]


def test_new_files_are_found_after_start_and_after_a_change(tmp_path: Path) -> None:
    running = Running(tmp_path)
    (running.root / "a.py").write_text("alpha = 1")
    running.indexer.start()
    try:
        assert until(lambda: running.found("alpha = ") == ["a.py"])
        (running.root / "b.py").write_text("beta = 1")
        running.indexer.changed([str(running.root / "b.py")])
        assert until(lambda: running.found("beta = ") == ["b.py"])
        assert running.indexer.error == ""
    finally:
        running.indexer.stop()


def test_stopping_ends_the_child_at_once(tmp_path: Path) -> None:
    running = Running(tmp_path, load_slow)
    running.indexer.start()
    assert until(lambda: multiprocessing.active_children())
    begun = time.monotonic()
    running.indexer.stop()
    assert time.monotonic() - begun < 5
    assert not multiprocessing.active_children()


def test_a_killed_or_failing_child_is_reported_and_the_next_change_builds(tmp_path: Path) -> None:
    running = Running(tmp_path, load_slow)
    running.indexer._retry_s = 2.0
    running.indexer.start()
    try:
        assert until(lambda: multiprocessing.active_children())
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
        assert until(running.indexer.built.is_set)
        assert "failed" in running.indexer.error
        running.indexer._load_encode = load_encode
        (running.root / "a.py").write_text("alpha = 1")
        running.indexer.changed([str(running.root / "a.py")])
        assert until(lambda: running.found("alpha = ") == ["a.py"])
        assert running.indexer.error == ""
    finally:
        running.indexer.stop()


def test_a_child_that_cannot_be_started_is_tried_again_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(tmp_path)
    (running.root / "a.py").write_text("alpha = 1")
    build, tries = running.indexer._build, 0

    def refused(paths: object) -> int | None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise OSError("no more processes")
        return build(None)

    monkeypatch.setattr(running.indexer, "_build", refused)
    running.indexer.start()
    try:
        assert until(lambda: tries == 2)
        assert "no more processes" in running.indexer.error
        assert any("no more processes" in what for what in failed_builds(tmp_path).values())
        assert until(lambda: running.found("alpha = ") == ["a.py"])
        assert until(lambda: running.indexer.error == "" and not failed_builds(tmp_path))
    finally:
        running.indexer.stop()
    assert [record.levelname for record in caplog.records if "no more processes" in record.message] == [
        "WARNING"
    ]


def test_the_pause_before_another_try_grows_and_stopping_does_not_wait_for_it(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.indexer._retry_s = 5.0
    pauses = [running.indexer._pause_s(failures) for failures in range(1, 20)]
    assert pauses[:3] == [5.0, 10.0, 20.0]
    assert pauses == sorted(pauses) and max(pauses) <= 3600
    running.indexer._load_encode = load_broken
    running.indexer.start()
    assert until(running.indexer.built.is_set)
    begun = time.monotonic()
    running.indexer.stop()
    assert time.monotonic() - begun < 3


def test_why_a_build_failed_is_told_and_kept_for_whoever_asks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    running = Running(tmp_path, load_broken)
    running.indexer.start()
    try:
        assert until(running.indexer.built.is_set)
        assert "failed" in running.indexer.error
    finally:
        running.indexer.stop()
    assert failed_builds(tmp_path) == {str(running.root): "RuntimeError: no tokenizer"}


def test_the_child_writes_nothing_to_standard_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    running = Running(tmp_path, load_noisy)
    running.indexer.start()
    try:
        assert until(running.indexer.built.is_set)
    finally:
        running.indexer.stop()
    captured = capfd.readouterr()
    assert captured.out == "" and "protocol" in captured.err


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    """The editor is killed while its index is being built: nothing goes on working behind its back."""
    script = (
        "import sys, time, pathlib\n"
        f"sys.path[:0] = {[p for p in sys.path if p]!r}\n"
        "from tests.cache.test_frozen_background import Running, load_slow\n"
        "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    running = Running(pathlib.Path(sys.argv[1]), load_slow)\n"
        "    running.indexer.start()\n"
        "    while not multiprocessing.active_children(): time.sleep(0.05)\n"
        "    print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    path = tmp_path / "editor.py"
    path.write_text(script)
    editor = subprocess.Popen(
        [sys.executable, str(path), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert editor.stdout is not None
    child = int(editor.stdout.readline())
    editor.kill()
    editor.wait()

    def gone() -> bool:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    assert until(gone, 20)
