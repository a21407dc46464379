"""Row-normalised int8 matrix products on the CPU, and what stands in where their operators are missing.

Each input row is divided by its largest magnitude and rounded to int8; weights are int8 per output channel.
Integer accumulation is exact, so a row's result does not depend on the other rows of the product. CPUs
without VNNI add pairs of products in 16 bits, where 255 * (w1 + w2) can saturate: there the weights are
scaled so that no pair can (`pair_bound`), which costs far less than a seventh bit: measured output error
0.0113 against 0.0107 unbounded and 0.031 saturating on the default model's gate projection.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # normalised rows [m, k] -> [m, n]; the weight's scale is applied

_PAIR_LIMIT = 128.0  # 255 * 128 < 2 ** 15
_LEVELS = 127.0


def quantize(weight: Tensor, pair_bound: bool) -> tuple[Tensor, Tensor]:
    """int8 weights ``[n, k]`` and float32 scales ``[n]`` of a float weight ``[n, k]``."""
    weight = weight.float()
    scale = weight.abs().amax(1) / _LEVELS
    if pair_bound and weight.shape[1] > 1:
        even, odd = weight[:, 0 : weight.shape[1] // 2 * 2 : 2], weight[:, 1::2]
        # rounding moves a pair's sum by at most 1
        scale = torch.maximum(scale, (even + odd).abs().amax(1) / (_PAIR_LIMIT - 1))
    scale = scale.clamp_min(1e-12)
    return (weight / scale[:, None]).round_().clamp_(-_LEVELS, _LEVELS).to(torch.int8), scale


def row_scale(rows: Tensor) -> Tensor:
    """The largest magnitude of each row ``[m, 1]``.

    A row of zeros has 0: divided by it, it becomes something finite as an integer, and 0 again when scaled back.
    """
    return rows.abs().amax(-1, keepdim=True)


def packed_product(weight: Tensor, scale: Tensor) -> Product:
    """torch's quantised linear layer; the fastest at every row count on x86."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        zero = torch.zeros(len(scale), dtype=torch.long)
        quantised = torch._make_per_channel_quantized_tensor(weight, scale.double(), zero, 0)
        packed = torch.ops.quantized.linear_prepack(quantised, None)
    operator = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default

    def product(rows: Tensor) -> Tensor:
        return operator(rows, 1 / _LEVELS, 128, packed)

    return product


def onednn_product(weight: Tensor, scale: Tensor) -> Product:
    """oneDNN's quantised linear layer, which does not go through torch's quantised tensors."""
    packed = torch.ops.onednn.qlinear_prepack(weight, None)
    zero = torch.zeros(len(scale), dtype=torch.long)
    operator = torch.ops.onednn.qlinear_pointwise

    def product(rows: Tensor) -> Tensor:
        quantised = (rows * _LEVELS).round_().add_(128.0).to(torch.uint8)
        return operator(
            quantised, 1 / _LEVELS, 128, packed, scale, zero, None, 1.0, 0, torch.float32, "none", [], ""
        )

    return product


def float_product(weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Product:
    """The dequantised weight in a float type: correct everywhere, slow. Few rows are padded: kernels differ
    there."""
    dense = (weight.float() * scale[:, None]).to(dtype)
    least = 4

    def product(rows: Tensor) -> Tensor:
        count = len(rows)
        if count < least:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, least - count))
        rows = torch.nan_to_num(rows)
        return torch.nn.functional.linear(rows.to(dtype), dense)[:count].float()

    return product


def twice_rounded(product: Product) -> Product:
    """A product whose rows are rounded to twice as many bits: what int8 leaves of them is a row of its own.

    Costs a product of twice as many rows: little where reading the weights is what takes the time.
    """

    def both(rows: Tensor) -> Tensor:
        count = len(rows)
        levels = (rows * _LEVELS).round_().div_(_LEVELS)
        rest = (rows - levels).mul_(2 * _LEVELS)  # at most half a level: stretched to all of them
        result = product(torch.cat((levels, rest)))
        return result[:count].add_(result[count:].mul_(1 / (2 * _LEVELS)))

    return both


BACKENDS: dict[str, Callable[[Tensor, Tensor], Product]] = {
    "packed": packed_product,
    "onednn": onednn_product,
    "bfloat16": lambda weight, scale: float_product(weight, scale, torch.bfloat16),
    "float32": lambda weight, scale: float_product(weight, scale, torch.float32),
}


INTEGER_BACKENDS = ("packed", "onednn")


def working_backend() -> str:
    """The first backend whose operators exist here and agree with exact integer arithmetic on a small
    product."""
    return next((name for name in BACKENDS if _agrees(name)), "float32")


def _agrees(name: str) -> bool:
    generator = torch.Generator().manual_seed(0)
    weight, scale = quantize(torch.randn(48, 64, generator=generator), pair_bound=True)
    rows = torch.randn(9, 64, generator=generator)
    rows = rows / row_scale(rows)
    exact = (rows * _LEVELS).round() @ weight.float().T * (scale / _LEVELS)
    tolerance = 0.05 if name == "bfloat16" else 1e-4
    try:
        result = BACKENDS[name](weight, scale)(rows)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return bool((result - exact).abs().max() <= tolerance * exact.abs().max())


def has_wide_accumulation() -> bool:
    """Whether int8 products accumulate in 32 bits here (VNNI and its kin), so that pairs cannot saturate."""
    probe = torch.full((1, 64), 127, dtype=torch.int8)
    try:
        result = packed_product(probe, torch.ones(1))(torch.ones(8, 64))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return bool((result - 127.0 * 64).abs().max() < 1)
