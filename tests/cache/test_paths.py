"""The directories of the product: overridable, private, and apart from each other."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cache import paths


def test_directories_follow_the_environment_and_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.CACHE_DIR_VARIABLE, str(tmp_path / "a" / "cache"))
    monkeypatch.setenv(paths.STATE_DIR_VARIABLE, str(tmp_path / "b" / "state"))
    made = [paths.models_dir(), paths.index_dir(), paths.log_dir(), paths.history_dir()]
    assert made == [
        tmp_path / "a/cache/models",
        tmp_path / "a/cache/index",
        tmp_path / "b/state/log",
        tmp_path / "b/state/history",
    ]
    for directory in [*made, tmp_path / "a", tmp_path / "a/cache", tmp_path / "b"]:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_xdg_directories_are_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (paths.CACHE_DIR_VARIABLE, paths.STATE_DIR_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert paths.cache_dir() == tmp_path / "c" / "spec-complete"
    assert paths.state_dir() == tmp_path / "s" / "spec-complete"


def test_a_runtime_directory_too_long_for_a_socket_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 80)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runtime = paths.runtime_dir()
    assert runtime.parent == tmp_path
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
