"""What the weights of a transformers model weigh, and how much of them a pass reads."""

from __future__ import annotations

from typing import Any

import torch


def weight_bytes(model: Any) -> int:
    """Bytes of all parameters; a tied head counts once."""
    return sum(_storage_bytes(p) for p in model.parameters())


def bytes_read(model: Any) -> int:
    """Bytes of weights that every pass reads: all but an embedding table of which it takes a few rows."""
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    return weight_bytes(model) - (0 if embedding is head else _storage_bytes(embedding))


def _storage_bytes(parameter: torch.Tensor) -> int:
    """Bytes of a parameter, or of the parts that a quantised one consists of."""
    flatten = getattr(parameter, "__tensor_flatten__", None)
    if flatten is None:
        return parameter.numel() * parameter.element_size()
    return sum(_storage_bytes(getattr(parameter, name)) for name in flatten()[0])
