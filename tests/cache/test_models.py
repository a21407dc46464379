"""Resolving names and paths: what is read, what is refused, and what the refusal says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cache import models, paths
from cache.catalogue import ModelNotAvailable, catalogue, default_model
from cache.sealed import sample

from .model_fixtures import write_model_directory


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.CACHE_DIR_VARIABLE, str(tmp_path / "cache"))


def test_every_catalogue_entry_is_well_formed() -> None:
    for name, entry in catalogue().items():
        assert name == entry.name
        assert entry.format in ("gguf", "safetensors")
        assert entry.hub or entry.mirror
        assert all(len(sha) == 64 and int(sha, 16) for sha in (entry.sha256 or {}).values())
        assert entry.untried or entry.sha256, "an entry that was tried has its hash"
        if entry.mirror:
            assert len(entry.files) == 1 and entry.bytes
            assert entry.sha256 and set(entry.sha256) == set(entry.files)


def test_defaults_follow_the_device_and_may_be_used_commercially() -> None:
    assert default_model("cpu") == "qwen2.5-coder-0.5b-q4"
    assert default_model("cuda:0") == "qwen2.5-coder-1.5b"
    assert default_model("mps") == default_model("cpu")
    assert all(catalogue()[default_model(device)].commercial for device in ("cpu", "cuda"))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ModelNotAvailable, match="smollm2-135m-q4") as caught:
        models.resolve("no-such-model")
    assert caught.value.exit_code == 3


def test_a_known_model_that_is_not_there_says_how_to_get_it() -> None:
    with pytest.raises(ModelNotAvailable, match="spec-complete model pull smollm2-135m-q4"):
        models.resolve("smollm2-135m-q4")


def test_a_local_directory_resolves_to_its_files(tmp_path: Path) -> None:
    directory = write_model_directory(tmp_path / "mine")
    files = models.resolve(str(directory))
    assert (files.name, files.directory, files.dtype) == ("mine", directory, "bfloat16")
    assert files.weights == (directory / "model.safetensors",)
    assert files.config.is_file() and files.tokenizer.is_file()


def test_the_hash_changes_with_the_tokenizer_and_the_weights(tmp_path: Path) -> None:
    directory = write_model_directory(tmp_path / "mine")
    first = models.resolve(str(directory)).hash
    assert models.resolve(str(directory)).hash == first
    (directory / "tokenizer.json").write_text("{}")
    second = models.resolve(str(directory)).hash
    (directory / "model.safetensors").touch()
    assert len({first, second, models.resolve(str(directory)).hash}) == 3


def test_the_hash_of_a_directory_changes_with_weights_of_the_same_size_and_time(tmp_path: Path) -> None:
    directory = write_model_directory(tmp_path / "mine")
    weights = directory / "model.safetensors"
    times = (weights.stat().st_atime_ns, weights.stat().st_mtime_ns)
    first = models.resolve(str(directory)).hash
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    os.utime(weights, ns=times)
    assert models.resolve(str(directory)).hash != first


def test_a_sample_sees_the_beginning_the_end_and_every_megabyte(tmp_path: Path) -> None:
    path = tmp_path / "large"
    data = bytearray(os.urandom(5 * (1 << 20) + 100))
    path.write_bytes(data)
    first = sample(path)
    assert sample(path) == first
    for at in (0, (3 << 20) + 17, len(data) - 1):
        data[at] ^= 1
        path.write_bytes(data)
        assert sample(path) != first, at
        data[at] ^= 1
    for begin in ((1 << 20) + 5000, (4 << 20) + 100):  # a hole of a megabyte, wherever it begins
        path.write_bytes(data[:begin] + bytes(1 << 20) + data[begin + (1 << 20) :])
        assert sample(path) != first, begin
    path.write_bytes(data[:-1])
    assert sample(path) != first


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    directory = write_model_directory(tmp_path / "mine")
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    for path in (directory, directory / "pytorch_model.bin"):
        with pytest.raises(ModelNotAvailable, match="pickled weights"):
            models.resolve(str(path))


@pytest.mark.parametrize("kept", [0, 4, 40, 200])
def test_half_downloaded_weights_are_found_at_once(tmp_path: Path, kept: int) -> None:
    weights = write_model_directory(tmp_path / "mine") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(ModelNotAvailable, match="damaged or half downloaded"):
        models.resolve(str(tmp_path / "mine"))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    directory = write_model_directory(tmp_path / "mine")
    (directory / "model.safetensors.index.json").write_text(
        '{"weight_map": {"w": "model-00002.safetensors"}}'
    )
    with pytest.raises(ModelNotAvailable, match=r"model-00002\.safetensors is missing"):
        models.resolve(str(directory))


def test_other_files_are_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(8))
    (tmp_path / "empty").mkdir()
    for name, words in [
        ("text.gguf", "not a GGUF"),
        ("broken.gguf", "not a whole GGUF"),
        ("empty", "holds no model"),
    ]:
        with pytest.raises(ModelNotAvailable, match=words):
            models.resolve(str(tmp_path / name))
    with pytest.raises(ModelNotAvailable, match="there is no model at"):
        models.resolve(str(tmp_path / "missing"))
