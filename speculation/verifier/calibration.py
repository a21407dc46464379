"""Moves outliers of the activations into the weights before both are rounded, where that lowers the measured error.

A column of a product's input can be divided by any factor that its weight's column is multiplied by; the division is
folded into what makes the input (a norm, the up projection, the values), so it costs nothing at run time (SmoothQuant,
Xiao et al. 2023). Each product tries a few powers of its input's root mean square on a piece of text, in float32,
layer by layer as the weights are read, and keeps the one whose rounded result is nearest.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from speculation.verifier.architecture import Architecture, rope_frequencies
from speculation.verifier.int8_linear import quantize, row_scale

POWERS = (0.0, 0.25, 0.5, 0.75)
_ROWS = 192  # tokens of text
_OUTPUTS = 4096  # of a product that are compared, at most
_FLOOR = 0.1  # of the median; columns that are nearly silent are not blown up


def calibration_ids(directory: Path, vocab: int) -> Tensor:
    """Ids of `calibration.txt`, a piece of source that never changes, by the model's tokenizer.

    Ids of every n-th token where there is none.
    """
    definition = directory / "tokenizer.json"
    if not definition.exists():
        return torch.arange(_ROWS) * 7919 % vocab
    from tokenizers import Tokenizer

    text = Path(__file__).with_name("calibration.txt").read_text(encoding="utf-8")
    ids = Tokenizer.from_file(str(definition)).encode(text, add_special_tokens=False).ids[:_ROWS]
    return torch.tensor(ids)


def best_factors(rows: Tensor, weight: Tensor, pair_bound: bool, group: int = 1) -> Tensor:
    """The factors ``[k / group]`` to divide the columns of ``rows`` ``[m, k]`` by. Runs of ``group`` heads share them:
    ``rows`` is then ``[m, kv_heads, group, head_dim]``."""
    flat = rows.flatten(1)
    shared = rows if group > 1 else flat
    mean = shared.square().mean((0, 2) if group > 1 else 0).sqrt()
    mean = mean.clamp_min(_FLOOR * mean.median() + 1e-9)
    step = -(-len(weight) // _OUTPUTS)
    weight = weight[::step]
    exact = flat @ weight.T
    best, least = torch.ones_like(mean), float("inf")
    for power in POWERS:
        factors = mean**power
        columns = _columns(factors, rows, group)
        rounded, scale = quantize(weight * columns, pair_bound)
        divided = flat / columns
        largest = row_scale(divided).clamp_min(1e-20)
        levels = (divided / largest * 127).round()
        error = (levels @ rounded.float().T * (scale / 127) * largest - exact).square().sum().item()
        if error < least:
            best, least = factors, error
    return best.flatten()


def _columns(factors: Tensor, rows: Tensor, group: int) -> Tensor:
    return factors[:, None].expand(rows.shape[1:]).flatten() if group > 1 else factors


class FloatLayers:
    """The plain float32 forward over a piece of text, a layer at a time; q and k rows are interleaved."""

    def __init__(self, architecture: Architecture, hidden: Tensor) -> None:
        self._architecture = architecture
        self.hidden = hidden
        angles = torch.arange(len(hidden))[:, None] * rope_frequencies(architecture)
        self._rotation = torch.polar(torch.ones_like(angles), angles)[:, None]

    def norm(self, weight: Tensor) -> Tensor:
        """The normalised hidden states."""
        return torch.nn.functional.rms_norm(self.hidden, weight.shape, weight, self._architecture.norm_eps)

    def attend(self, qkv: Tensor, q_norm: Tensor | None, k_norm: Tensor | None) -> Tensor:
        """Attention over scaled queries, keys and values ``[m, …]``: ``[m, kv_heads, group, head_dim]``."""
        geometry = self._architecture.geometry
        heads = qkv.view(len(qkv), -1, geometry.head_dim)
        q, k, v = heads.split((geometry.heads, geometry.kv_heads, geometry.kv_heads), 1)
        if q_norm is not None and k_norm is not None:
            eps = self._architecture.norm_eps
            q = torch.nn.functional.rms_norm(q, q_norm.shape, q_norm, eps)
            k = torch.nn.functional.rms_norm(k, k_norm.shape, k_norm, eps)
        q, k = self._turn(q), self._turn(k)
        mixed = torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(0, 1)[None] for x in (q, k, v)), is_causal=True, scale=1.0, enable_gqa=True
        )
        return mixed[0].transpose(0, 1).reshape(len(qkv), geometry.kv_heads, geometry.group, -1)

    def _turn(self, heads: Tensor) -> Tensor:
        pairs = torch.view_as_complex(heads.reshape(*heads.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * self._rotation).flatten(-2)
