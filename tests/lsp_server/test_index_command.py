"""`spec-complete index`: builds, shows and clears, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cache import index_failures
from cache.durable import exclusive
from cache.frozen_index import Manifest
from cache.history import History
from lsp_server.commands import doctor
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


@pytest.fixture
def kept(tmp_path: Path, workspace: Path, model: Path) -> tuple[Path, History]:
    """An index directory and a history with all that crashes may leave beside it."""
    assert run(tmp_path, workspace, "--model", model).returncode == 0
    (index,) = (tmp_path / "cache" / "index").iterdir()
    history = History(tmp_path / "state" / "history", str(workspace), lambda text: list(text.encode()))
    history.path.parent.mkdir(parents=True)
    for root in (str(workspace), "/another"):
        kept = History(history.path.parent, root, lambda text: list(text.encode()))
        kept.record("completion", "a.py", "alpha")
        for leftover in (kept.path.with_suffix(".lock"), Path(f"{kept.path}.1234.tmp")):
            leftover.write_text("alpha")
    return index, history


def clears_all(tmp_path: Path, workspace: Path, history: History) -> None:
    """What another workspace has stays."""
    cleared = run(tmp_path, workspace, "--clear")
    assert cleared.returncode == 0, cleared.stderr
    assert "removed" in cleared.stdout and "history" in cleared.stdout
    assert not list((tmp_path / "cache" / "index").iterdir())
    left = {path.name for path in history.path.parent.iterdir()}
    assert len(left) == 3 and not any(name.startswith(history.path.stem) for name in left)


def test_the_index_and_history_of_a_deleted_workspace_are_cleared(
    tmp_path: Path, workspace: Path, kept: tuple[Path, History]
) -> None:
    shutil.rmtree(workspace)
    clears_all(tmp_path, workspace, kept[1])
    again = run(tmp_path, workspace, "--clear")
    assert again.returncode == 2 and "is not a directory" in again.stderr


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"root": 5, "segments": {}, "outdated": {}}', None])
def test_an_index_with_a_damaged_manifest_is_cleared(
    tmp_path: Path, workspace: Path, kept: tuple[Path, History], content: bytes | None
) -> None:
    (kept[0] / "manifest.json").unlink()
    if content is not None:
        (kept[0] / "manifest.json").write_bytes(content)
    clears_all(tmp_path, workspace, kept[1])


def test_while_the_index_is_being_built_the_history_is_cleared_and_that_is_said(
    tmp_path: Path, workspace: Path, kept: tuple[Path, History]
) -> None:
    index, history = kept
    with exclusive(index / "lock"):
        cleared = run(tmp_path, workspace, "--clear")
    assert cleared.returncode == 2
    assert not history.path.exists() and index.exists()
    assert cleared.stdout.strip() == f"{workspace}: removed the history"
    assert "is being built" in cleared.stderr and "Traceback" not in cleared.stderr
    assert f"spec-complete index --clear '{workspace}'" in cleared.stderr
    assert run(tmp_path, workspace, "--clear").returncode == 0
    assert not index.exists()


def test_a_failed_build_is_shown_until_one_succeeds(
    tmp_path: Path, workspace: Path, model: Path, kept: tuple[Path, History], monkeypatch: pytest.MonkeyPatch
) -> None:
    index_failures.note(kept[0], str(workspace), "OSError: no space left")
    assert "OSError: no space left" in run(tmp_path, workspace, "--stats").stdout
    monkeypatch.setenv("SPEC_COMPLETE_CACHE_DIR", str(tmp_path / "cache"))
    report = doctor.Report()
    doctor._indexes(report)
    assert report.problems == [
        {
            "problem": f"building the index of {workspace} failed: OSError: no space left",
            "remedy": f"spec-complete index '{workspace}'",
        }
    ]
    run(tmp_path, workspace, "--model", model)
    assert "the last build failed" not in run(tmp_path, workspace, "--stats").stdout


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
