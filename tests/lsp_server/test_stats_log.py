"""How `stats` reads files: in which order, through pipes, packed, in blocks, and damaged."""

from __future__ import annotations

import gzip
import json
import os
import threading
import tracemalloc

import pytest

from lsp_server import stats_log
from lsp_server.stats import summarise
from lsp_server.stats_log import ReadCounts, StatsError, log_files, read
from tests.lsp_server import latency_log as log


def test_a_file_without_line_ends_is_skipped_in_bounded_memory(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * (6 * 2**20) + b"\n" + json.dumps(log.DRAFTED).encode() + b"\n")
    tracemalloc.start()
    counts = ReadCounts()
    assert [len(records) for records in read([path], counts)] == [1]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * 2**20
    assert counts.foreign == 1


def test_lines_across_block_borders_are_whole(tmp_path, monkeypatch):
    path = log.whole(tmp_path / "log")
    expected = summarise([path])
    for size in (1, 7, 100, 999):
        monkeypatch.setattr(stats_log, "BLOCK_BYTES", size)
        assert summarise([path]) == expected


def test_the_order_in_which_logs_are_named_does_not_matter(tmp_path):
    older = log.write(tmp_path / "x.jsonl.1", log.COSTS, *log.REQUESTS)
    newer = log.write(tmp_path / "x.jsonl", *log.OUTCOMES)
    empty = log.write(tmp_path / "y.jsonl")
    expected = summarise([older, newer, empty])
    assert expected["log"]["outcomes_without_request"] == 1
    assert summarise([newer, empty, older]) == expected


def test_first_and_last_are_the_extremes_of_a_clock_that_was_set_back(tmp_path):
    times = [f"2026-03-0{day}T09:00:00.000Z" for day in (2, 4, 1, 3)]
    counts = summarise([log.write(tmp_path / "log", *(log.PLAIN | {"at": at} for at in times))])["log"]
    assert (counts["first"][:10], counts["last"][:10]) == ("2026-03-01", "2026-03-04")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
@pytest.mark.parametrize("packed", [False, True])
def test_a_log_through_a_pipe_is_read_whole(tmp_path, packed):
    path = log.whole(tmp_path / "log")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = gzip.compress(path.read_bytes()) if packed else path.read_bytes()
    threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True).start()
    assert summarise([pipe]) == summarise([path])


def test_a_gzipped_log_is_read_like_any_other(tmp_path):
    path = log.whole(tmp_path / "log")
    packed = tmp_path / "log.1.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert summarise([packed]) == summarise([path])


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: data[:30] + b"?" * (len(data) - 30)]
)
def test_a_damaged_gzipped_log_is_one_clear_error(tmp_path, damage):
    packed = tmp_path / "log.1.gz"
    packed.write_bytes(damage(gzip.compress(log.whole(tmp_path / "log").read_bytes())))
    with pytest.raises(StatsError, match=r"cannot read .*log\.1\.gz: \w"):
        summarise([packed])


def test_rotated_logs_are_read_oldest_first(tmp_path):
    current = tmp_path / "telemetry.jsonl"
    for name in ("telemetry.jsonl", "telemetry.jsonl.1", "telemetry.jsonl.2"):
        (tmp_path / name).touch()
    assert [path.name for path in log_files(current)] == [
        "telemetry.jsonl.2", "telemetry.jsonl.1", "telemetry.jsonl",
    ]  # fmt: skip
