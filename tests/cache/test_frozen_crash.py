"""Killed at any step of building, an index is usable at once and whole after the next build."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from cache.frozen_index import FrozenIndex, Manifest
from cache.index_builder import IndexBuilder
from cache.workspace import Workspace

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")  # whatever changes files
FILES = 4


def encode(text: str) -> list[int]:
    return list(text.encode())


def builder(base: Path, segment_tokens: int = 120) -> IndexBuilder:
    return IndexBuilder(base / "index", Workspace(base / "root"), encode, segment_tokens)


def write_version(base: Path, version: int) -> None:
    for number in range(FILES):
        if version == 0 or number % 2:
            (base / "root" / f"f{number}.py").write_text(f"value_{number} = version {version}; " * 3)


def versions(base: Path) -> list[set[str]]:
    """For each file, the versions that the index tells of."""
    index = FrozenIndex(base / "index")
    index.refresh()
    assert not index.damaged
    out = []
    for number in range(FILES):
        context = encode(f"value_{number} = version ")
        hits = [hit for hit in index.query(context, max_hits=100) if hit.length >= len(context)]
        out.append({bytes(index.continuation(hit, 1)).decode() for hit in hits})
    return out


def build_and_die(base: Path, step: int) -> bool:
    """Builds in a child that kills itself at its n-th change of a file; whether it died."""
    child = os.fork()
    if child == 0:
        left = step
        directory = str(base / "index")

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in EVENTS and arguments and str(arguments[0]).startswith(directory):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            builder(base).run()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_killed_at_every_step_the_index_is_usable_and_the_next_build_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # what a killed process wrote is not lost
    first = tmp_path / "first"
    (first / "root").mkdir(parents=True)
    write_version(first, 0)
    builder(first).run()
    step, died = 0, True
    while died:
        step += 1
        base = tmp_path / str(step)
        shutil.copytree(first, base)
        write_version(base, 1)
        died = build_and_die(base, step)
        for number, found in enumerate(versions(base)):
            assert found in ([{"0"}, {"1"}] if number % 2 else [{"0"}]), (step, number)
        builder(base).run()
        assert versions(base) == [{"1"} if number % 2 else {"0"} for number in range(FILES)], step
        left = {path.name for path in (base / "index").iterdir() if path.is_dir()}
        assert left == set(Manifest.read(base / "index").segments)
        shutil.rmtree(base)
    assert step > 20


def test_killed_at_random_moments_the_next_builds_complete_the_index(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    rng = random.Random(7)
    for number in range(200):
        body = "".join(rng.choice("abcdefgh \n") for _ in range(2000))
        (tmp_path / "root" / f"f{number}.py").write_text(f"value_{number:03d} = {number:03d}\n{body}")
    counts = []
    for _ in range(12):
        child = os.fork()
        if child == 0:
            try:
                builder(tmp_path, 20_000).run()
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        index = FrozenIndex(tmp_path / "index")
        index.refresh()
        assert not index.damaged
        counts.append(sum(len(segment.files) for segment in index.segments))
    assert counts == sorted(counts), "finished segments were lost"
    builder(tmp_path, 20_000).run()
    index = FrozenIndex(tmp_path / "index")
    index.refresh()
    for number in range(200):
        hit = index.query(encode(f"value_{number:03d} = "), max_hits=1)[0]
        assert bytes(index.continuation(hit, 3)).decode() == f"{number:03d}"
