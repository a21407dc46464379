"""Replaced linear layers: an architecture that the fused forward lacks keeps its outputs, and says what it
is."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from speculation.verifier import choice
from speculation.verifier.base import VerifierError
from speculation.verifier.eager import EagerVerifier
from speculation.verifier.int8 import Int8Verifier
from speculation.verifier.int8_modules import load_replaced
from tests.speculation.int8_models import VOCAB, write_model

TEXT = [(13 * i + 5) % VOCAB for i in range(40)]


@pytest.fixture(scope="module")
def neox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("neox")
    config = GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(config)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config.to_dict(), default=str))
    return directory


def test_outputs_stay_close_to_the_float_model(neox: Path) -> None:
    logits = []
    for verifier in (EagerVerifier.load(str(neox), "neox"), load_replaced(str(neox), "neox")):
        slot = verifier.open_slot()
        verifier.prefill(slot, TEXT[:30])
        logits.append(verifier.verify(slot, TEXT[30:]))
    assert torch.nn.functional.cosine_similarity(*logits, dim=-1).min() > 0.999
    assert not torch.equal(*logits)


def test_it_declares_what_it_is(neox: Path) -> None:
    capabilities = load_replaced(str(neox), "neox").capabilities
    assert (capabilities.engine, capabilities.dtype, capabilities.row_invariant) == ("int8", "int8", False)


def files(directory: Path) -> SimpleNamespace:
    return SimpleNamespace(directory=directory, name="small", hash="h" * 64)


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPEC_COMPLETE_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_cpu_gets_int8_for_every_architecture(neox: Path, cache_dir: Path) -> None:
    llama = write_model(cache_dir / "llama", "llama, grouped heads")
    assert isinstance(choice.choose("cpu", "auto", "auto", files(llama)), Int8Verifier)  # type: ignore[arg-type]
    replaced = choice.choose("cpu", "auto", "auto", files(neox))  # type: ignore[arg-type]
    assert isinstance(replaced, EagerVerifier)
    assert replaced.capabilities.engine == "int8"


def test_a_number_format_means_eager_on_a_cpu(neox: Path) -> None:
    verifier = choice.choose("cpu", "auto", "bfloat16", files(neox))  # type: ignore[arg-type]
    assert (verifier.capabilities.engine, verifier.capabilities.dtype) == ("eager", "bfloat16")


def test_int8_off_the_cpu_is_refused(neox: Path) -> None:
    with pytest.raises(VerifierError, match="runs on the CPU"):
        choice.choose("cuda", "int8", "auto", files(neox))  # type: ignore[arg-type]


def test_the_description_reports_invariance_as_it_is(cache_dir: Path) -> None:
    llama = write_model(cache_dir / "llama", "llama, grouped heads")
    found = choice.describe(choice.choose("cpu", "auto", "auto", files(llama)))  # type: ignore[arg-type]
    same = {"prefill in pieces": True, "pass sizes": True, "trees": True}
    assert found["row-invariant"] == {"declared": True, **same}
    assert found["KV bytes per token"] == 2 * 2 * 2 * 16 * 4
    assert found["weights read GB/s"] > 0
    assert found["copy GB/s"] > 0
