"""What the fused forward needs to know of a model, read from its config.json; other models are refused with
a reason."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from speculation.verifier.attention import Geometry

_ACTIVATIONS = ("silu", "swish")


class UnsupportedModelError(Exception):
    """The fused forward does not know this architecture; another engine does."""


@dataclass(frozen=True, slots=True)
class Family:
    """How the models of one type differ from plain Llama."""

    qkv_bias: bool = False  # whatever the config says; else its `attention_bias` decides
    qk_norm: bool = False


FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm=True),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A Llama-shaped decoder."""

    model_type: str
    layers: int
    hidden: int
    intermediate: int
    vocab: int
    max_context: int
    norm_eps: float
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    geometry: Geometry
    rope_theta: float
    rope: dict[str, Any]  # rope parameters as the config gives them


def read_architecture(directory: Path) -> Architecture:
    """The architecture of the model in ``directory``.

    Raises:
        UnsupportedModelError: a model type, activation, attention or rope variant that the fused forward
        lacks.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    kind = config.get("model_type", "")
    family = FAMILIES.get(kind)
    if family is None:
        raise UnsupportedModelError(f"model type {kind!r} is not one of {', '.join(FAMILIES)}")
    if config.get("hidden_act", "silu") not in _ACTIVATIONS:
        raise UnsupportedModelError(f"activation {config['hidden_act']!r} is not silu")
    windowed = kind == "mistral" or config.get("use_sliding_window", False)
    if windowed and config.get("sliding_window"):
        raise UnsupportedModelError("sliding-window attention cannot be rolled back")
    if config.get("quantization_config"):
        raise UnsupportedModelError("the weights are quantised already")
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    if rope["rope_type"] not in ("default", "linear", "llama3"):
        raise UnsupportedModelError(f"rope type {rope['rope_type']!r} is not default, linear or llama3")
    if float(config.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1.0) != 1.0:
        raise UnsupportedModelError("partial rotary embeddings")
    heads = config["num_attention_heads"]
    geometry = Geometry(
        heads,
        config.get("num_key_value_heads") or heads,
        config.get("head_dim") or config["hidden_size"] // heads,
    )
    if geometry.head_dim % 8:
        raise UnsupportedModelError(f"a head size of {geometry.head_dim}, which is not a multiple of 8")
    attention_bias = bool(config.get("attention_bias", False))
    return Architecture(
        model_type=kind,
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        vocab=config["vocab_size"],
        max_context=config["max_position_embeddings"],
        norm_eps=config.get("rms_norm_eps", 1e-6),
        tied=config.get("tie_word_embeddings", False),
        qkv_bias=family.qkv_bias or attention_bias,
        output_bias=attention_bias and not family.qkv_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=family.qk_norm,
        geometry=geometry,
        rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        rope=rope,
    )


def rope_frequencies(architecture: Architecture) -> Tensor:
    """Rotation per position and pair of dimensions, radians, float32 ``[head_dim / 2]``."""
    dim = architecture.geometry.head_dim
    inverse = 1.0 / architecture.rope_theta ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim)
    rope = architecture.rope
    if rope["rope_type"] == "linear":
        return inverse / rope["factor"]
    if rope["rope_type"] == "llama3":
        return _llama3(inverse, rope)
    return inverse


def _llama3(inverse: Tensor, rope: dict[str, Any]) -> Tensor:
    """Llama 3.1's scaling: long wavelengths are stretched, short ones kept, a smooth blend between."""
    original = rope["original_max_position_embeddings"]
    low, high = original / rope["low_freq_factor"], original / rope["high_freq_factor"]
    wavelength = 2 * math.pi / inverse
    scaled = torch.where(wavelength > low, inverse / rope["factor"], inverse)
    smooth = (original / wavelength - rope["low_freq_factor"]) / (
        rope["high_freq_factor"] - rope["low_freq_factor"]
    )
    blended = (1 - smooth) * scaled / rope["factor"] + smooth * scaled
    between = (wavelength <= low) & (wavelength >= high)
    return torch.where(between, blended, scaled)
