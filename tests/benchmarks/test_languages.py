"""Upgrades of other languages: where they come from, what of an archive is a source, and what must hash to what."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks import packages
from benchmarks.languages import language_tasks, languages
from benchmarks.packages import DownloadError, Release, archive, pins, sources
from benchmarks.replay import arguments, packages_of
from benchmarks.replay_hunks import RELEASES

OLD = "local a = 1\nlocal b = 2\n"
NEW = "local a = 1\nlocal something_longer = a + 1\nlocal b = 2\n"


def tarball(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archived:
        for name, text in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text.encode())
            archived.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty benchmark cache, with no client that could fetch anything."""
    monkeypatch.setattr(packages, "benchmark_cache", lambda: tmp_path)
    monkeypatch.setattr(packages, "_fetch", lambda command, folder: "there is no network")
    return tmp_path


def test_a_release_says_which_index_it_is_of() -> None:
    release = Release.parse("npm:@scope/pack==1.0.0:2.0.0")
    assert release == Release("@scope/pack", "1.0.0", "2.0.0", "npm")
    assert str(release) == "npm:@scope/pack==1.0.0:2.0.0"
    assert str(Release.parse("flask==3.0.0:3.1.0")) == "flask==3.0.0:3.1.0"


def test_an_unknown_index_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="pypi, npm"):
        Release.parse("crates:serde==1:2")


def test_every_language_has_pinned_packages() -> None:
    assert {"typescript", "javascript", "lua", "c"} <= set(languages())
    for release in [*RELEASES, *(r for language in languages().values() for r in language.releases)]:
        for version in (release.old, release.new):
            stem = f"{release.name.lstrip('@').replace('/', '-')}-{version}"
            assert any(name.startswith((f"{stem}.tgz", f"{stem}-py3")) for name in pins()), stem


def test_what_tools_made_is_no_source(tmp_path: Path) -> None:
    written = {"src/a.ts": "a", "src/b.js": "b", "dist/commands/c.lua": "c", "d.h": "d"}
    made = {"src/a.d.ts": "1", "dist/a.js": "2", "build/m/a.cjs": "3", "x.min.js": "4", "a.js.map": "5"}
    assert sources(tarball(tmp_path / "p.tgz", {**written, **made})) == written


def test_a_file_that_a_tarball_holds_twice_is_read_once(tmp_path: Path) -> None:
    path = tarball(tmp_path / "p.tgz", {"dist/esm/a.lua": "x = 1", "dist/cjs/a.lua": "x = 1"})
    assert sources(path) == {"dist/cjs/a.lua": "x = 1"}


def test_python_wheels_keep_their_copies(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as archived:
        for name in ("a/__init__.py", "b/__init__.py"):
            archived.writestr(name, "")
    assert list(sources(tmp_path / "p.whl")) == ["a/__init__.py", "b/__init__.py"]


def test_a_language_is_cut_into_the_same_hunks_as_python(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, text in (("1", OLD), ("2", NEW)):
        files = {"a.lua": text, "index.js": text.replace("local", "let")}
        tarball(cache / "tarballs" / f"scope-pack-{version}" / f"scope-pack-{version}.tgz", files)
    table = languages()
    only = (Release.parse("npm:@scope/pack==1:2"),)
    lua = type(table["lua"])("lua", table["lua"].suffixes, only)
    monkeypatch.setattr("benchmarks.languages.languages", lambda: {"lua": lua})
    workload = language_tasks("lua", lambda text: list(text.encode()))
    (task,) = workload.tasks
    assert task.name == "@scope/pack/a.lua:2"
    assert bytes(task.target).decode() == "local something_longer = a + 1\n"
    assert workload.workspaces == {"@scope/pack==1": {"a.lua": OLD}}


def test_an_archive_that_is_not_the_pinned_one_is_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tarball(cache / "tarballs" / "pack-1" / "pack-1.tgz", {"a.lua": OLD})
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(packages, "pins", lambda: {"pack-1.tgz": right})
    assert archive("npm", "pack", "1") == path
    monkeypatch.setattr(packages, "pins", lambda: {"pack-1.tgz": "0" * 64})
    with pytest.raises(DownloadError, match=right):
        archive("npm", "pack", "1")
    assert not path.exists()


def test_a_package_that_cannot_be_fetched_is_named(cache: Path) -> None:
    with pytest.raises(DownloadError, match="@scope/pack==1: there is no network"):
        archive("npm", "@scope/pack", "1")


def test_a_client_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "benchmark_cache", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DownloadError, match="npm is not installed"):
        archive("npm", "pack", "1")


def test_the_replay_takes_a_language_or_packages_of_any_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["replay", "--language", "lua"])
    told = packages_of(arguments()).split(",")
    assert [Release.parse(text) for text in told] == list(languages()["lua"].releases)
    monkeypatch.setattr("sys.argv", ["replay", "--packages", "npm:a==1:2,b==3:4"])
    assert packages_of(arguments()) == "npm:a==1:2,b==3:4"
    monkeypatch.setattr("sys.argv", ["replay", "--packages", "npm:a==1:2", "--language", "lua"])
    with pytest.raises(SystemExit):
        arguments()
