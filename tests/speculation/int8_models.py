"""Small random models for the int8 engine's tests: they stress head sizes, head groups and vector tails."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from speculation.verifier.int8 import Int8Verifier

VOCAB = 97
SHAPES: dict[str, dict[str, object]] = {
    "llama, grouped heads": {
        "model_type": "llama",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    "llama, one key-value head": {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 1},
    "llama, odd sizes": {
        "model_type": "llama",
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 24,
        "hidden_size": 45,
        "intermediate_size": 75,
    },
    "llama, tied, biased": {
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama, stretched rope": {
        "model_type": "llama",
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "llama, linear rope": {
        "model_type": "llama",
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    },
    "qwen2": {
        "model_type": "qwen2",
        "hidden_size": 112,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "qwen3": {"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24},
}
COMMON = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}


def write_model(directory: Path, shape: str) -> Path:
    """A random model of a shape in ``SHAPES``, as config.json and model.safetensors."""
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {**COMMON, **SHAPES[shape]}
    config = AutoConfig.for_model(**fields)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(0, 0.1).add_(1.0 if "norm" in name else 0.0)
    directory.mkdir(parents=True, exist_ok=True)
    tied = {"lm_head.weight"} if fields["tie_word_embeddings"] else set()
    tensors = {name: t.detach().clone() for name, t in model.state_dict().items() if name not in tied}
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    (directory / "config.json").write_text(json.dumps({**config.to_dict(), **fields}, default=str))
    return directory


def load(directory: Path, shape: str, backend: str | None = None) -> Int8Verifier:
    """The int8 engine over a model of a shape, written on first use."""
    path = directory / "".join(c if c.isalnum() else "-" for c in shape)
    if not path.exists():
        write_model(path, shape)
    return Int8Verifier.load(path, shape, "key", path / "int8", backend)
