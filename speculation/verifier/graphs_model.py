"""The model behind the graphs engine: loading, weight-only quantisation, and what its KV cache looks like."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from speculation.verifier.base import VerifierError

Weights = Literal["int8", "int4"]

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}
LAYER_KINDS = {"full_attention", "sliding_attention"}
DATA_DEPENDENT_ROTARY = {"dynamic", "longrope"}  # frequencies that follow the longest position of a pass


@dataclass(frozen=True, slots=True)
class KVShape:
    """Keys and values of a model: the same in every layer."""

    layers: int
    heads: int
    key_dim: int
    value_dim: int
    element_bytes: int

    @property
    def bytes_per_position(self) -> int:
        """Bytes of keys and values of one position in all layers."""
        return self.layers * self.heads * (self.key_dim + self.value_dim) * self.element_bytes


def load_model(directory: str, dtype: str, device: str, weights: Weights | None = None) -> Any:
    """A causal LM from a local directory, in eval mode; runs no code from it and touches no network.

    ``dtype`` is one of `DTYPES`; ``weights`` quantises the linear layers' weights.
    """
    if dtype not in DTYPES:
        raise VerifierError(f"the graphs engine has no {dtype}: use {', '.join(DTYPES)}")
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=DTYPES[dtype], local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    model = model.to(device).eval()
    if weights is not None:
        quantise(model, weights)
    return model


def quantise(model: Any, weights: Weights) -> None:
    """Quantises the weights of the linear layers in place, with torchao (the optional extra ``gpu``).

    int8 has one scale per output channel; int4 has one per 128 inputs and needs bfloat16 on CUDA.
    """
    try:
        from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_
    except ImportError as error:
        raise VerifierError(f"{weights} weights need torchao: pip install 'spec-complete[gpu]'") from error
    if weights == "int4":
        if model.dtype != torch.bfloat16 or model.device.type != "cuda":
            raise VerifierError("int4 weights need bfloat16 on a CUDA device")
        config = Int4WeightOnlyConfig(group_size=128, int4_packing_format="tile_packed_to_4d")
    else:
        config = Int8WeightOnlyConfig()
    head = model.get_output_embeddings()
    quantize_(model, config, lambda module, _: isinstance(module, torch.nn.Linear) and module is not head)


def cache_argument(model: Any) -> str:
    """The name of forward's cache argument, which transformers 5.24 changed."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def widest_context(config: Any) -> int:
    """The positions for which full attention is what the model means: sliding windows end it.

    Raises:
        VerifierError: layers that keep something else than keys and values by position, or rotary frequencies
            that depend on the data.
    """
    config = config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or []) - LAYER_KINDS
    rotary = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if kinds or rotary in DATA_DEPENDENT_ROTARY:
        what = f"{', '.join(sorted(kinds))} layers" if kinds else f"{rotary} rotary embeddings"
        raise VerifierError(f"the graphs engine cannot run a model with {what}; use the eager engine")
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
    context: int = config.max_position_embeddings
    return min(context, window) if window and slides else context


@torch.inference_mode()
def kv_shape(model: Any) -> KVShape:
    """What the model writes for one position, seen by running it once.

    Raises:
        VerifierError: layers that differ from each other.
    """
    cache = DynamicCache(config=model.config)
    ids = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=model.device)
    model(input_ids=ids, attention_mask=mask, use_cache=True, **{cache_argument(model): cache})
    shapes = {(layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in cache.layers}
    if len(shapes) != 1:
        raise VerifierError("the graphs engine needs layers of one shape; use the eager engine")
    heads, key_dim, value_dim = shapes.pop()
    return KVShape(len(cache.layers), heads, key_dim, value_dim, cache.layers[0].keys.element_size())
