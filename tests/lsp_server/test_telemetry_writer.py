"""The writer: private, bounded, and harmless whatever happens to the file."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lsp_server import telemetry_writer
from lsp_server.telemetry_writer import TelemetryWriter, log_path, rotated_paths

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="file modes and full disks of POSIX")


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbered(path: Path) -> list[int]:
    files = [*reversed(rotated_paths(path)), path]
    return [line["n"] for file in files if file.exists() for line in lines_of(file) if "n" in line]


def test_records_arrive_in_order_one_line_each(tmp_path):
    writer = TelemetryWriter(tmp_path / "log.jsonl")
    for n in range(100):
        writer.write({"n": n})
    writer.close()
    assert numbered(tmp_path / "log.jsonl") == list(range(100))
    assert writer.lost == 0


def test_a_record_is_on_disk_soon_without_closing(tmp_path):
    path = tmp_path / "log.jsonl"
    writer = TelemetryWriter(path)
    writer.write({"n": 1})
    deadline = time.monotonic() + 5
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    writer.close()


def test_the_log_and_its_folder_are_private_even_if_the_log_was_not(tmp_path):
    path = tmp_path / "state" / "log.jsonl"
    writer = TelemetryWriter(path)
    writer.write({"n": 1})
    writer.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    writer = TelemetryWriter(path)
    writer.write({"n": 2})
    writer.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_log_stays_within_its_bound_and_keeps_the_newest(tmp_path):
    path = tmp_path / "log.jsonl"
    for n in range(0, 600, 10):  # several writers in turn, as after restarts
        writer = TelemetryWriter(path, max_bytes=500, keep_files=3)
        for k in range(10):
            writer.write({"n": n + k})
        writer.close()
    files = [file for file in [path, *rotated_paths(path)] if file.exists()]
    assert len(files) == 4
    assert all(file.stat().st_size <= 500 for file in files)
    kept = numbered(path)
    assert kept == list(range(600 - len(kept), 600))
    assert len(kept) > 100


def test_one_burst_that_is_larger_than_a_file_is_spread_over_several(tmp_path):
    path = tmp_path / "log.jsonl"
    writer = TelemetryWriter(path, max_bytes=1000, keep_files=4)
    for n in range(200):
        writer.write({"n": n})
    writer.close()
    kept = numbered(path)
    assert kept == list(range(200 - len(kept), 200)) and len(kept) >= 200


def test_a_line_larger_than_the_bound_is_lost_and_said_so(tmp_path):
    writer = TelemetryWriter(tmp_path / "log.jsonl", max_bytes=200)
    writer.write({"text": "x" * 500})
    writer.write({"n": 1})
    writer.close()
    assert writer.lost == 1
    assert lines_of(tmp_path / "log.jsonl") == [{"v": 1, "kind": "lost", "count": 1}, {"n": 1}]


def test_two_processes_that_rotate_the_same_log_lose_nothing_and_cut_no_line(tmp_path):
    path = tmp_path / "log.jsonl"
    program = (
        "import sys, time; from pathlib import Path\n"
        "from lsp_server.telemetry_writer import TelemetryWriter\n"
        "w = TelemetryWriter(Path(sys.argv[1]), max_bytes=4000, keep_files=50)\n"
        "for n in range(300): w.write({'who': sys.argv[2], 'n': n}); n % 20 or time.sleep(0.1)\n"
        "w.close(); assert w.lost == 0\n"
    )
    root = str(Path(__file__).parents[2])
    run = [subprocess.Popen([sys.executable, "-c", program, str(path), who], cwd=root) for who in "ab"]
    assert [process.wait(60) for process in run] == [0, 0]
    files = [path, *rotated_paths(path, 50)]
    lines = [line for file in files if file.exists() for line in lines_of(file)]
    assert sorted((line["who"], line["n"]) for line in lines) == [(w, n) for w in "ab" for n in range(300)]
    assert all(file.stat().st_size <= 4000 for file in files if file.exists())


def test_a_log_that_another_process_rotates_first_is_not_rotated_twice(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n":0}\n' * 50)

    @contextlib.contextmanager
    def while_waiting_for_the_lock(_descriptor):
        path.replace(rotated_paths(path)[0])
        path.write_bytes(b'{"n":1}\n')
        yield

    monkeypatch.setattr(telemetry_writer, "_locked", while_waiting_for_the_lock)
    writer = TelemetryWriter(path, max_bytes=400)
    writer.write({"n": 2})
    writer.close()
    assert numbered(path) == [0] * 50 + [1, 2]
    assert len(lines_of(path)) == 2 and not rotated_paths(path)[1].exists()


@pytest.fixture
def no_retry_delay(monkeypatch):
    monkeypatch.setattr(telemetry_writer, "RETRY_DELAY_S", 0.0)
    monkeypatch.setattr(telemetry_writer, "FLUSH_DELAY_S", 0.01)


def written_at_last(writer: TelemetryWriter, path: Path, record: dict) -> None:
    """Writes until it arrives: the log must recover by itself."""
    deadline = time.monotonic() + 10
    while not (path.is_file() and any(record == line for line in safe_lines(path))):
        assert time.monotonic() < deadline, "never recovered"
        writer.write(record)
        time.sleep(0.05)


def safe_lines(path: Path) -> list[dict]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def test_a_full_disk_costs_records_but_nothing_else_and_the_log_recovers(
    tmp_path, monkeypatch, no_retry_delay
):
    path = tmp_path / "log.jsonl"
    full = threading.Event()
    real_write = os.write

    def write(descriptor: int, data: bytes) -> int:
        if full.is_set() and threading.current_thread().name == "telemetry":
            if len(data) <= 8:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real_write(descriptor, data[:8])  # a part fits, as on a real disk
        return real_write(descriptor, data)

    monkeypatch.setattr(telemetry_writer.os, "write", write)
    writer = TelemetryWriter(path)
    writer.write({"n": 1})
    time.sleep(0.1)
    full.set()
    for n in range(5):
        writer.write({"full": n})
    time.sleep(0.2)
    assert writer.lost == 5
    full.clear()
    written_at_last(writer, path, {"n": 2})
    writer.close()
    lines = path.read_bytes().splitlines()
    assert len(lines) - len(safe_lines(path)) >= 1  # the torn line stands alone, it spoils no other
    assert {"v": 1, "kind": "lost", "count": 5} in safe_lines(path)


def test_a_real_full_device_never_raises():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    program = (
        "from pathlib import Path; from lsp_server.telemetry_writer import TelemetryWriter\n"
        "w = TelemetryWriter(Path('/dev/full'))\n"
        "for n in range(10): w.write({'n': n})\n"
        "w.close(); print(w.lost)\n"
    )
    before = Path("/dev/full").stat().st_mode
    made = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert Path("/dev/full").stat().st_mode == before
    assert (made.stdout.strip(), made.stderr) == ("10", "")


@pytest.mark.parametrize("kind", ["a folder", "below a file"])
def test_a_log_that_cannot_be_opened_never_raises(tmp_path, kind):
    (tmp_path / "file").touch()
    path = tmp_path if kind == "a folder" else tmp_path / "file" / "log.jsonl"
    writer = TelemetryWriter(path)
    for n in range(3):
        writer.write({"n": n})
    writer.close()
    assert writer.lost == 3


def test_a_log_folder_that_was_removed_is_made_again(tmp_path, no_retry_delay):
    path = tmp_path / "state" / "log.jsonl"
    writer = TelemetryWriter(path)
    written_at_last(writer, path, {"n": 1})
    path.unlink()
    path.parent.rmdir()
    written_at_last(writer, path, {"n": 2})
    writer.close()


def test_a_line_that_a_kill_cut_short_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n":0}\n{"n":')
    writer = TelemetryWriter(path)
    writer.write({"n": 1})
    writer.close()
    assert path.read_bytes() == b'{"n":0}\n{"n":\n{"n":1}\n'


def test_what_is_no_json_is_lost_alone(tmp_path):
    writer = TelemetryWriter(tmp_path / "log.jsonl")
    for record in ({"n": 1}, {"n": object()}, {"n": float("nan")}, {"n": 2}):
        writer.write(record)
    writer.close()
    assert numbered(tmp_path / "log.jsonl") == [1, 2] and writer.lost == 2


def test_a_stuck_disk_fills_a_bounded_queue_and_does_not_hold_up_the_exit(tmp_path, monkeypatch):
    fifo = tmp_path / "log.jsonl"
    os.mkfifo(fifo)
    monkeypatch.setattr(telemetry_writer, "QUEUE_LIMIT", 50)
    monkeypatch.setattr(telemetry_writer.os, "write", lambda *_: threading.Event().wait(60) or 0)
    writer = TelemetryWriter(fifo)
    writer.write({"n": 0})
    time.sleep(0.5)
    for n in range(200):
        writer.write({"n": n})
    assert writer.lost == 150
    started = time.monotonic()
    writer.close(timeout_s=0.2)
    assert time.monotonic() - started < 2


def test_without_a_path_nothing_is_written_and_no_thread_runs():
    before = threading.active_count()
    writer = TelemetryWriter(None)
    writer.write({"n": 1})
    assert threading.active_count() == before
    writer.close()


def test_a_sink_gets_every_record_and_its_failures_stay_its_own(tmp_path):
    seen = []

    def failing(record):
        seen.append(record)
        raise RuntimeError("exporter broken")

    writer = TelemetryWriter(tmp_path / "log.jsonl", sinks=[failing])
    only_sink = TelemetryWriter(None, sinks=[seen.append])
    writer.write({"n": 1})
    writer.close()
    only_sink.write({"n": 2})
    only_sink.close()
    assert seen == [{"n": 1}, {"n": 2}]
    assert numbered(tmp_path / "log.jsonl") == [1]


def test_a_record_that_is_not_for_the_log_still_reaches_the_sinks(tmp_path):
    seen = []
    writer = TelemetryWriter(tmp_path / "log.jsonl", sinks=[seen.append])
    for n in range(4):
        writer.write({"n": n}, keep=n % 2 == 0)
    writer.close()
    assert [record["n"] for record in seen] == [0, 1, 2, 3]
    assert numbered(tmp_path / "log.jsonl") == [0, 2]
    without_sinks = TelemetryWriter(tmp_path / "other.jsonl")
    without_sinks.write({"n": 1}, keep=False)
    without_sinks.close()
    assert not (tmp_path / "other.jsonl").exists() and without_sinks.lost == 0


def test_a_state_directory_that_cannot_be_made_means_no_log(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", str(tmp_path / "file" / "state"))
    assert log_path() is None
    monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", str(tmp_path / "state"))
    assert log_path() == tmp_path / "state" / "log" / "telemetry.jsonl"


def test_records_written_just_before_the_process_ends_are_kept(tmp_path):
    program = (
        "import sys; from pathlib import Path; from lsp_server.telemetry_writer import TelemetryWriter\n"
        "w = TelemetryWriter(Path(sys.argv[1]))\n"
        "for n in range(10): w.write({'n': n})\n"
    )
    path = tmp_path / "log.jsonl"
    subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=Path(__file__).parents[2], check=True, timeout=30
    )
    assert numbered(path) == list(range(10))
