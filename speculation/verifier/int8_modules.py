"""The int8 engine for architectures that the fused forward does not know: transformers' forward with every
linear layer replaced. Attention stays transformers' own, so this is declared as not row-invariant."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from speculation.verifier.eager import EagerVerifier
from speculation.verifier.int8_linear import (
    BACKENDS,
    INTEGER_BACKENDS,
    has_wide_accumulation,
    quantize,
    row_scale,
    working_backend,
)


class Int8Linear(nn.Module):
    """Stands in for `nn.Linear`."""

    def __init__(self, linear: nn.Linear, backend: str, pair_bound: bool) -> None:
        super().__init__()
        weight, scale = quantize(linear.weight.detach(), pair_bound)
        self.weight_bytes = weight.numel() + scale.numel() * 4
        self._product = BACKENDS[backend](weight, scale)
        self._width = len(scale)
        self._bias = None if linear.bias is None else linear.bias.detach().float()

    def forward(self, rows: Tensor) -> Tensor:
        """``rows`` ``[..., k]`` to ``[..., n]``, in the rows' own type."""
        flat = rows.reshape(-1, rows.shape[-1]).float()
        scale = row_scale(flat)
        result = self._product(flat / scale) * scale
        if self._bias is not None:
            result += self._bias
        return result.view(*rows.shape[:-1], self._width).to(rows.dtype)


def load_replaced(directory: str, name: str, backend: str | None = None) -> EagerVerifier:
    """The reference engine over a model whose linear layers are int8."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
    ).eval()
    verifier = EagerVerifier(model, name)
    backend = backend or working_backend()
    packed = replace_linears(model, backend)
    kept = sum(p.numel() * p.element_size() for p in model.parameters())
    verifier.capabilities = replace(
        verifier.capabilities,
        engine="int8",
        dtype="int8" if backend in INTEGER_BACKENDS else backend,
        weight_bytes=packed + kept,
        unread_bytes=model.get_input_embeddings().weight.nbytes,
    )
    return verifier


def replace_linears(model: nn.Module, backend: str) -> int:
    """Replaces every linear layer of ``model`` in place; the bytes of their int8 weights."""
    pair_bound = backend in INTEGER_BACKENDS and not has_wide_accumulation()
    total = 0
    for module in list(model.modules()):
        for child_name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                with torch.no_grad():
                    int8 = Int8Linear(child, backend, pair_bound)
                setattr(module, child_name, int8)
                total += int8.weight_bytes
    return total
