"""Converting a GGUF file made in the test: the tensors are its own, nothing is stored twice or left over."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cache import convert, models, paths
from cache.catalogue import ModelNotAvailable
from cache.sealed import is_sealed_and_whole, seal

VOCABULARY = ["<|endoftext|>", *map(chr, range(97, 123)), "ab"]
WIDTH, HIDDEN, HEADS = 32, 64, 2


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.CACHE_DIR_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A one-layer Qwen2 with random float32 weights and tied embeddings."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([3, *[1] * (len(VOCABULARY) - 1)])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    random = np.random.default_rng(0)
    for name, shape in [
        ("token_embd.weight", (len(VOCABULARY), WIDTH)),
        ("output_norm.weight", (WIDTH,)),
        ("blk.0.attn_norm.weight", (WIDTH,)),
        ("blk.0.ffn_norm.weight", (WIDTH,)),
        *[(f"blk.0.attn_{part}.weight", (WIDTH, WIDTH)) for part in ("q", "k", "v", "output")],
        *[(f"blk.0.attn_{part}.bias", (WIDTH,)) for part in ("q", "k", "v")],
        ("blk.0.ffn_gate.weight", (HIDDEN, WIDTH)),
        ("blk.0.ffn_up.weight", (HIDDEN, WIDTH)),
        ("blk.0.ffn_down.weight", (WIDTH, HIDDEN)),
    ]:
        writer.add_tensor(name, random.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_is_converted_once_and_whole(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = models.resolve(str(tiny))
    tensors = load_file(files.weights[0])
    source = {tensor.name: tensor.data for tensor in gguf.GGUFReader(str(tiny)).tensors}
    np.testing.assert_array_equal(tensors["model.embed_tokens.weight"], source["token_embd.weight"])
    np.testing.assert_array_equal(
        tensors["model.layers.0.mlp.down_proj.weight"], source["blk.0.ffn_down.weight"]
    )
    assert "lm_head.weight" not in tensors, "tied embeddings are stored once"
    config = json.loads(files.config.read_text())
    assert config["tie_word_embeddings"] and "quantization_config" not in config and files.dtype == "float32"
    meta = convert.read_meta(files.directory)
    assert meta is not None and meta["source_sha256"] == convert.file_sha256(tiny)
    monkeypatch.setattr(convert, "_write", lambda *arguments: pytest.fail("converted again"))
    assert models.resolve(str(tiny)) == files


def test_a_damaged_conversion_is_made_again(tiny: Path) -> None:
    files = models.resolve(str(tiny))
    whole = files.weights[0].read_bytes()
    for damage in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        files.weights[0].write_bytes(damage)
        assert not convert.is_converted(files.directory)
        assert models.resolve(str(tiny)).weights[0].read_bytes() == whole


def test_weights_are_never_made_of_a_damaged_conversion(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample may miss a bit; what is kept for good is made only of a file that was read as a whole."""
    files = models.resolve(str(tiny))
    convert.require_whole(files.directory)
    whole = files.weights[0].read_bytes()
    files.weights[0].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelNotAvailable, match="is damaged"):
        convert.require_whole(files.directory)
    assert models.resolve(str(tiny)).weights[0].read_bytes() == whole, "the same command mends it"


def test_verify_looks_at_the_weights_that_engines_made(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = models.made_weights(paths.models_dir())
    made.mkdir()
    sums = seal((("w", (64,), memoryview(bytes(64))),))
    path = made / f"{'a' * 24}-pairs-v9.safetensors"
    save_file({"w": np.zeros(64, np.int8)}, path, sums)
    assert is_sealed_and_whole(path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert not is_sealed_and_whole(path)


def test_a_conversion_that_fails_leaves_nothing(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(gguf_path: Path, directory: Path, *rest: str) -> None:
        (directory / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "_write", full)
    with pytest.raises(ModelNotAvailable, match="no disk space"):
        models.resolve(str(tiny))
    assert [
        path.name for path in (paths.models_dir() / "converted").iterdir() if path.suffix != ".lock"
    ] == []


def test_a_truncated_gguf_is_refused_with_what_to_do(tiny: Path) -> None:
    tiny.write_bytes(tiny.read_bytes()[:-2000])
    with pytest.raises(ModelNotAvailable, match="not a whole GGUF file"):
        models.resolve(str(tiny))
