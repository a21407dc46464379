"""What the command prints, on streams of any encoding and on ones that are full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lsp_server import latency_log as log

FULL = Path("/dev/full")
CODE = "import sys; from lsp_server.cli import main; sys.exit(main())"


def run(tmp_path, *arguments: str, encoding: str = "utf-8", stdout=subprocess.PIPE):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "SPEC_COMPLETE_CONFIG_DIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        env=environment, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437"])
def test_the_summary_is_readable_in_an_encoding_without_our_characters(tmp_path, encoding):
    path = log.write(tmp_path / "log", log.COSTS, log.DRAFTED | {"language": "日本"}, log.PLAIN)
    done = run(tmp_path, "stats", str(path), "--by", "language", encoding=encoding)
    shown = done.stdout.decode(encoding)
    assert done.returncode == 0 and not done.stderr
    assert "Latency in ms" in shown and "?" * 2 in shown  # a language that can't be shown
    assert "?" not in shown.replace("??", "")  # and nothing else that can't


def test_json_loses_nothing_in_any_encoding(tmp_path):
    path = log.write(tmp_path / "log", log.DRAFTED | {"language": "日本"})
    done = run(tmp_path, "stats", str(path), "--by", "language", "--json", encoding="ascii")
    assert json.loads(done.stdout)["groups"][0]["key"] == "日本"


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
@pytest.mark.parametrize(
    "arguments", [["stats", "LOG"], ["stats", "LOG", "--json"], ["settings"], ["model", "list"]]
)
def test_a_full_disk_is_one_clear_line(tmp_path, arguments):
    path = str(log.whole(tmp_path / "log"))
    with FULL.open("wb") as full:
        done = run(tmp_path, *(path if word == "LOG" else word for word in arguments), stdout=full)
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("spec-complete:")]
    assert (done.returncode, lines) == (2, ["spec-complete: No space left on device"])
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr
