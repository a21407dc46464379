"""Attention for passes of few positions over a long cache, registered with transformers as one of its own.

Grouped-query attention is packed: the query heads that share a key/value head become rows of one matrix, so
that K and V are read once and never copied. At batch size 1 there are as few as two key/value heads, too few
blocks to fill a GPU; P·V is therefore split along the keys and summed, as in Flash-Decoding (Dao et al.
2023).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from speculation.verifier.base import VerifierError

NAME = "spec_complete_slots"
SPLIT_KEYS = 128  # keys per partial sum of P·V; key buckets are multiples of it
SPLIT_ROWS = 64  # passes above this many positions (prefill) have rows enough to fill a GPU by themselves
UNSUPPORTED = ("softcap", "s_aux", "position_bias")  # what some architectures ask of their attention


def install(model: Any) -> None:
    """Makes a transformers model use this attention.

    Raises:
        VerifierError: the architecture has an attention of its own that cannot be replaced.
    """
    AttentionInterface.register(NAME, slot_attention)
    if model._supports_attention_backend:
        model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise VerifierError(
            f"the attention of {type(model).__name__} cannot be replaced; use the eager engine"
        )


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query ``[1, heads, n, dim]``, key and value ``[1, groups, W, dim]``.

    ``attention_mask`` ``[1, 1, n, W]``, True where a position is seen. Returns ``[1, n, heads, dim]``.
    """
    unsupported = [name for name in UNSUPPORTED if options.get(name) is not None]
    if unsupported:
        what = ", ".join(unsupported)
        raise VerifierError(f"the graphs engine has no attention with {what}; use the eager engine")
    heads, n, dim = query.shape[1:]
    groups = key.shape[1]
    packed = query.reshape(groups, heads // groups * n, dim)
    scale = dim**-0.5 if scaling is None else scaling
    mask = attention_mask[0, 0]
    if n > SPLIT_ROWS or key.shape[2] % SPLIT_KEYS:
        rows = mask.repeat(heads // groups, 1)
        out = scaled_dot_product_attention(packed[None], key, value, attn_mask=rows, scale=scale)
    else:
        out = split(packed, key[0], value[0], mask, scale)
    return out.view(1, heads, n, -1).transpose(1, 2), None


def split(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention in pieces: query ``[groups, heads a group * n, dim]``, mask ``[n, W]``, W in `SPLIT_KEYS`."""
    groups, rows, _ = query.shape
    n, width = mask.shape
    wide: dict[str, Any] = {}
    if _has_wide_products(query.device.type, query.dtype):
        wide = {"out_dtype": torch.float32}
    else:  # unscaled scores may exceed what float16 holds
        query, scale = query * scale, 1.0
    scores = torch.bmm(query, key.transpose(1, 2), **wide).view(groups, rows // n, n, width)
    hidden = torch.full((), -torch.inf, dtype=scores.dtype, device=scores.device)
    weights = torch.where(mask, scores * scale if wide else scores, hidden)
    weights = weights.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    parts = weights.view(groups, rows, width // SPLIT_KEYS, SPLIT_KEYS).transpose(1, 2)
    values = value.unflatten(1, (width // SPLIT_KEYS, SPLIT_KEYS))
    sums = [torch.bmm(parts[group], values[group], **wide).sum(0) for group in range(groups)]
    return torch.stack(sums).to(query.dtype)


@lru_cache(maxsize=8)
def _has_wide_products(device: str, dtype: torch.dtype) -> bool:
    """Whether 16-bit products can give float32 here: 8 bits are too few for attention scores."""
    if dtype not in (torch.float16, torch.bfloat16):
        return False
    probe = torch.zeros(1, 8, 8, dtype=dtype, device=device)
    try:
        torch.bmm(probe, probe, out_dtype=torch.float32)
    except (RuntimeError, TypeError):  # this device or this torch has no such product
        return False
    return True
