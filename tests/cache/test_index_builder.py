"""What a build looks at: all of a workspace where that is needed, and no more where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cache import index_scan
from cache.index_builder import IndexBuilder
from tests.cache.test_frozen_index import Bench, encode


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def made_anew(bench: Bench) -> IndexBuilder:
    """As the next process has it: it remembers nothing but what is on disk."""
    bench.builder = IndexBuilder(bench.directory, bench.workspace, encode)
    return bench.builder


@pytest.mark.parametrize("part", ["tokens", "manifest.json"])
def test_after_damage_or_loss_a_build_of_one_file_looks_at_everything(bench: Bench, part: str) -> None:
    bench.write("a.py", "alpha = 1")
    path = bench.write("b.py", "beta = 1")
    bench.build()
    for found in bench.directory.rglob(part):
        found.unlink()
    made_anew(bench)
    bench.index = type(bench.index)(bench.directory)
    bench.build([str(path)])
    assert bench.found("alpha = ") == [("a.py", "1")]
    assert bench.found("beta = ") == [("b.py", "1")]


def test_a_directory_that_appears_or_moves_is_looked_into(bench: Bench) -> None:
    bench.write("kept.py", "kept = 1")
    bench.build()
    bench.write("old/deep/a.py", "alpha = 1")
    bench.build([str(bench.root / "old")])
    assert bench.found("alpha = ") == [("old/deep/a.py", "1")]
    (bench.root / "old").rename(bench.root / "new")
    bench.build([str(bench.root / "old"), str(bench.root / "new")])
    assert bench.found("alpha = ") == [("new/deep/a.py", "1")]


@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".git/info/exclude"])
def test_a_changed_ignore_file_decides_about_files_that_did_not_change(bench: Bench, name: str) -> None:
    bench.write(".git/info/exclude", "")
    bench.write("a.py", "alpha = 1")
    bench.build()
    rules = bench.write(name, "a.py\n")
    bench.build([str(rules)])
    assert bench.found("alpha = ") == []
    rules.unlink()
    bench.build([str(rules)])
    assert bench.found("alpha = ") == [("a.py", "1")]


def test_what_happens_in_directories_that_are_not_indexed_costs_no_scan(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.py", "alpha = 1")
    bench.write("node_modules/dep/.gitignore", "x")
    bench.write(".git/objects/ab/cd", "x")
    bench.build()
    monkeypatch.setattr(bench.workspace, "walk", lambda: pytest.fail("a scan"))
    for path in ("node_modules/dep", "node_modules/dep/.gitignore", ".git/objects/ab", "a.py", "gone"):
        bench.build([str(bench.root / path)])


def test_many_changes_at_once_are_one_scan(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(bench.write(f"f{n}.py", f"value_{n} = {n}")) for n in range(index_scan.MANY_PATHS + 1)]
    bench.build()
    monkeypatch.setattr(bench.workspace, "entry", lambda path: pytest.fail("looked at one by one"))
    bench.build(paths)


def test_files_that_were_only_touched_are_read_once(bench: Bench) -> None:
    for name in ("a.py", "b.py"):
        os.utime(bench.write(name, f"text of {name}"), (1000, 1000))
    bench.build()
    os.utime(bench.root / "a.py", (2000, 2000))
    for expected in (1, 0, 0):
        made_anew(bench)
        bench.build()
        assert bench.stats.read == expected
    bench.write("a.py", "text of c.py")
    os.utime(bench.root / "a.py", (2000, 2000))  # what was verified was another content, of the same size
    assert bench.workspace.read("a.py")[0].mtime_ns == 2000 * 10**9
    bench.write("a.py", "other text")
    made_anew(bench)
    bench.build()
    assert bench.found("other ") == [("a.py", "text")]


def test_a_file_touched_a_moment_ago_is_looked_at_again(bench: Bench) -> None:
    path = bench.write("a.py", "alpha = 1")
    os.utime(path, (1000, 1000))
    bench.build()
    path.touch()
    status = path.stat()
    bench.build()
    path.write_text("alpha = 2")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    bench.build()
    assert bench.found("alpha = ") == [("a.py", "2")]


@pytest.mark.parametrize("name", ["seen.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"a.py": 1}', b"\xff", b'{"a.py": ["x", "y"]}'])
def test_a_damaged_list_of_touched_files_costs_nothing_but_reading(
    bench: Bench, name: str, content: bytes
) -> None:
    os.utime(bench.write("a.py", "alpha = 1"), (1000, 1000))
    bench.build()
    os.utime(bench.root / "a.py", (2000, 2000))
    bench.build()
    assert (bench.directory / name).is_file()
    (bench.directory / name).write_bytes(content)
    made_anew(bench)
    bench.build()
    assert bench.stats.read == 1
    assert bench.found("alpha = ") == [("a.py", "1")]


@pytest.mark.parametrize("partial", [False, True])
def test_the_limit_holds_whatever_was_looked_at_and_the_newest_stay(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, partial: bool
) -> None:
    monkeypatch.setattr(index_scan, "MAX_TEXT_BYTES", 300)
    bench.write("first.py", "first = 1")
    bench.build()
    for number in range(10):
        path = bench.write(f"f{number}.py", f"value_{number} = " + "x" * 90)
        os.utime(path, (1000 + number, 1000 + number))
        bench.build([str(path)] if partial else None)
        assert bench.stats.text_bytes <= 300
    kept = [number for number in range(10) if bench.found(f"value_{number} = ")]
    assert kept == [8, 9]
    old = bench.write("old.py", "older = " + "x" * 90)
    os.utime(old, (1, 1))
    bench.build([str(old)] if partial else None)
    assert bench.found("older = ") == []
    assert bench.stats.skipped["over the limit"]
