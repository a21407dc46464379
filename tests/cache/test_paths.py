"""The directories of the product: overridable, private, and apart from each other."""

from __future__ import annotations

import os
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


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that is used where there is no runtime directory; `tmp_path` stands for the shared one."""
    monkeypatch.setattr("platformdirs.user_runtime_dir", lambda *_, **__: str(tmp_path / ("x" * 80)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"spec-complete-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_runtime_directory_that_others_can_write_is_refused(runtime: Path, mode: int) -> None:
    runtime.mkdir()
    runtime.chmod(mode)
    with pytest.raises(PermissionError, match="can be written by others: remove it, or set XDG_RUNTIME_DIR"):
        paths.runtime_dir()


def test_a_link_in_place_of_the_runtime_directory_is_refused(runtime: Path) -> None:
    (runtime.parent / "mine").mkdir(mode=0o700)
    runtime.symlink_to(runtime.parent / "mine")
    with pytest.raises(PermissionError, match="link"):
        paths.runtime_dir()


def test_a_file_in_place_of_the_runtime_directory_is_refused(runtime: Path) -> None:
    runtime.write_text("")
    with pytest.raises(OSError):
        paths.runtime_dir()


def test_a_runtime_directory_of_another_user_is_refused(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.getuid()
    theirs = runtime.with_name(f"spec-complete-{me + 1}")
    theirs.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.raises(PermissionError, match="another user"):
        paths.runtime_dir()


@pytest.mark.parametrize(
    ("mode", "is_refused"), [(0o777, True), (0o770, True), (0o1777, False), (0o755, False)]
)
def test_a_runtime_directory_that_others_can_replace_is_refused(
    runtime: Path, mode: int, is_refused: bool
) -> None:
    runtime.mkdir(mode=0o700)
    runtime.parent.chmod(mode)
    if is_refused:
        with pytest.raises(PermissionError, match="that others can change"):
            paths.runtime_dir()
    else:
        assert paths.runtime_dir() == runtime


def test_an_untrusted_directory_in_the_users_runtime_directory_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "mine").mkdir(mode=0o700)
    monkeypatch.setattr("platformdirs.user_runtime_dir", lambda *_, **__: str(tmp_path / "run/spec-complete"))
    assert paths.runtime_dir() == tmp_path / "run/spec-complete"
    (tmp_path / "run/spec-complete").rmdir()
    (tmp_path / "run/spec-complete").symlink_to(tmp_path / "mine")
    assert paths.runtime_dir().parent == tmp_path
