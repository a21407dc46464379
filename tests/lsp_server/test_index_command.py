"""`spec-complete index`: builds, shows and clears, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cache.frozen_index import Manifest
from cache.history import History
from tests.conftest import tokenizer_definition


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work [red]space[/red]"  # markup would vanish from what is shown
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("def alpha(beta):\n    return beta\n")
    (root / ".env").write_text("KEY=hunter2\n")
    (root / ".gitignore").write_text("*.gen.py\n")
    (root / "b.gen.py").write_text("x = 1\n")
    return root


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model directory with a tokenizer and the smallest weights that count as whole."""
    import json

    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "tokenizer.json").write_text(tokenizer_definition())
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "torch_dtype": "float32"}))
    (directory / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return directory


def run(tmp_path: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "SPEC_COMPLETE_CACHE_DIR": str(tmp_path / "cache"),
        "SPEC_COMPLETE_STATE_DIR": str(tmp_path / "state"),
        "COLUMNS": "160",
    }
    return subprocess.run(
        [sys.executable, "-m", "lsp_server", "index", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def row(output: str, label: str) -> str:
    return next(line.removeprefix(label).strip() for line in output.splitlines() if line.startswith(label))


def test_it_builds_shows_and_clears(tmp_path: Path, workspace: Path, model: Path) -> None:
    built = run(tmp_path, workspace, "--model", model)
    assert built.returncode == 0, built.stderr
    assert row(built.stdout, "workspace") == str(workspace)
    assert row(built.stdout, "files") == "2"
    assert row(built.stdout, "skipped: secret").startswith("1 ")
    assert row(built.stdout, "skipped: ignored").startswith("1 ")
    assert row(built.stdout, "build time").endswith(" s")
    assert "hunter2" not in built.stdout + built.stderr

    shown = run(tmp_path, workspace, "--stats")
    assert shown.returncode == 0 and shown.stderr == ""
    assert shown.stdout == built.stdout

    (index,) = (tmp_path / "cache" / "index").iterdir()
    assert Manifest.read(index).root == str(workspace)
    history = History(tmp_path / "state" / "history", str(workspace), lambda text: list(text.encode()))
    history.path.parent.mkdir(parents=True)
    history.record("completion", "a.py", "alpha")

    cleared = run(tmp_path, workspace, "--clear")
    assert cleared.returncode == 0, cleared.stderr
    assert not index.exists() and not history.path.exists()
    assert "has no index" in run(tmp_path, workspace, "--stats").stdout


def test_a_second_build_reads_only_what_changed(tmp_path: Path, workspace: Path, model: Path) -> None:
    for path in (workspace / "src" / "a.py", workspace / ".gitignore"):
        os.utime(path, (1000, 1000))
    assert row(run(tmp_path, workspace, "--model", model).stdout, "read now") == "2 files"
    (workspace / "c.py").write_text("gamma = 1\n")
    assert row(run(tmp_path, workspace, "--model", model).stdout, "read now") == "1 files"


def test_what_is_no_directory_is_a_clear_error(tmp_path: Path, workspace: Path) -> None:
    for wrong in (workspace / "nowhere", workspace / "src" / "a.py"):
        for action in ("--stats", "--clear"):
            done = run(tmp_path, wrong, action)
            assert done.returncode == 2
            assert done.stderr.strip() == f"spec-complete: {wrong} is not a directory"


def test_an_unknown_model_is_a_clear_error(tmp_path: Path, workspace: Path) -> None:
    done = run(tmp_path, workspace, "--model", "no-such-model")
    assert done.returncode == 3
    assert "no-such-model" in done.stderr and "Traceback" not in done.stderr
