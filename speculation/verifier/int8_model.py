"""The fused forward of Llama-shaped models over int8 weights: one short list of operators per layer.

Only operators that round each element alone (products, sums, quotients) or that depend on the row's own
width (reductions, softmax) are used on rows; so a row's result does not depend on the pass it is in. Norms
are folded: a row's scale does not survive its own normalisation to int8, so it is applied to the product
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from speculation.verifier.architecture import Architecture, rope_frequencies
from speculation.verifier.attention import Plan, attend
from speculation.verifier.int8_linear import BACKENDS, Product, row_scale
from speculation.verifier.weights import WeightFile

_VECTOR = 32  # floats: flat operators leave no scalar tail where a thread's share is a multiple of this


@dataclass(slots=True)
class Linear:
    """A product and its bias."""

    product: Product
    bias: Tensor | None

    def __call__(self, rows: Tensor, rest: Tensor | None = None) -> Tensor:
        """``rows`` times the weight; ``rest`` ``[m, 1]`` is a factor of the rows that they do not carry."""
        scale = row_scale(rows)
        result = self.product(rows / scale)
        result *= scale if rest is None else scale * rest
        if self.bias is not None:
            result += self.bias
        return result


@dataclass(slots=True)
class Layer:
    """One decoder layer."""

    attention_norm: Tensor
    qkv: Linear
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    qk_norm: Tensor | None  # [heads + 2 * kv_heads, head_dim]; ones for the values, which are not normalised


class FusedModel:
    """A Llama-shaped decoder on the CPU."""

    def __init__(self, architecture: Architecture, weights: Path, backend: str) -> None:
        self.architecture = architecture
        self.backend = backend
        self._frequencies = rope_frequencies(architecture)
        self.weight_bytes = weights.stat().st_size
        file = WeightFile(weights)

        def linear(name: str) -> Linear:
            bias = file.read(f"{name}.bias") if f"{name}.bias" in file else None
            return Linear(BACKENDS[backend](file.read(f"{name}.weight"), file.read(f"{name}.scale")), bias)

        def layer(index: int) -> Layer:
            return Layer(
                file.read(f"{index}.attention_norm"),
                linear(f"{index}.qkv"),
                linear(f"{index}.output"),
                file.read(f"{index}.mlp_norm"),
                linear(f"{index}.gate_up"),
                linear(f"{index}.down"),
                self._qk_norm(file.read, index) if architecture.qk_norm else None,
            )

        with ThreadPoolExecutor(2) as pool:
            head = pool.submit(linear, "head")
            self._layers = list(pool.map(layer, range(architecture.layers)))
            self._head = head.result()
        self._norm = file.read("norm")
        self._embedding = file.map("embedding")
        # fused operators round otherwise in the scalar tail of a vector loop, whose place depends on the pass
        self._activation = _silu if _has_tail(architecture.intermediate) else torch.nn.functional.silu
        geometry = architecture.geometry
        turned = (geometry.heads + 2 * geometry.kv_heads) * geometry.head_dim
        self._rotate = _complex_product if _has_tail(turned) else torch.mul

    def forward(self, ids: Tensor, plan: Plan, cache: Tensor) -> Tensor:
        """Hidden states ``[n, hidden]`` of ``ids`` ``[n]``; writes their keys and values into ``cache``.

        ``cache``: ``[layers, slots, kv_width]``; one of fewer layers runs only these, which the self-test
        does.
        """
        rotation = self._rotation(plan.positions)
        written = slice(plan.start, plan.start + plan.count)
        hidden = self._embedding.index_select(0, ids).float()
        for layer, held in zip(self._layers, cache.unbind(0), strict=False):
            self._attention(layer, hidden, rotation, plan, held, written)
            self._mlp(layer, hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[n, vocab]`` of hidden states."""
        return self._head(hidden * self._norm, self._inverse_rms(hidden))

    def _attention(
        self, layer: Layer, hidden: Tensor, rotation: Tensor, plan: Plan, cache: Tensor, written: slice
    ) -> None:
        geometry = self.architecture.geometry
        qkv = layer.qkv(hidden * layer.attention_norm, self._inverse_rms(hidden))
        if layer.qk_norm is not None:
            self._normalise_heads(qkv, layer.qk_norm)
        pairs = torch.view_as_complex(qkv.view(*rotation.shape, 2))
        rotated = torch.view_as_real(self._rotate(pairs, rotation)).view(qkv.shape)
        queries = geometry.heads * geometry.head_dim
        cache[written] = rotated[:, queries:]
        hidden += layer.output(attend(plan, rotated[:, :queries], cache, geometry))

    def _mlp(self, layer: Layer, hidden: Tensor) -> None:
        gate, up = layer.gate_up(hidden * layer.mlp_norm, self._inverse_rms(hidden)).chunk(2, -1)
        inner = self._activation(gate)
        inner *= up
        hidden += layer.down(inner)

    def _inverse_rms(self, hidden: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(hidden, 2, -1, True)
        return norm.square_().div_(hidden.shape[-1]).add_(self.architecture.norm_eps).rsqrt_()

    def _normalise_heads(self, qkv: Tensor, weight: Tensor) -> None:
        geometry = self.architecture.geometry
        heads = qkv.view(len(qkv), -1, geometry.head_dim)[:, : geometry.heads + geometry.kv_heads]
        heads *= self._inverse_rms(heads)
        heads *= weight

    def _rotation(self, positions: Tensor) -> Tensor:
        """Rotation of every head ``[n, heads + 2 * kv_heads, head_dim / 2]``; the values are not turned."""
        geometry = self.architecture.geometry
        angles = positions[:, None].float() * self._frequencies
        turn = torch.polar(torch.ones_like(angles), angles)[:, None]
        turned = turn.expand(-1, geometry.heads + geometry.kv_heads, -1)
        still = torch.ones(len(positions), geometry.kv_heads, turn.shape[-1], dtype=turn.dtype)
        return torch.cat((turned, still), 1)

    def _qk_norm(self, tensor: Callable[[str], Tensor], index: int) -> Tensor:
        geometry = self.architecture.geometry
        q, k = tensor(f"{index}.q_norm"), tensor(f"{index}.k_norm")
        return torch.cat((q.expand(geometry.heads, -1), k.expand(geometry.kv_heads, -1)))


def _has_tail(width: int) -> bool:
    """Whether a vector loop over rows of ``width`` floats, shared among threads, can end in scalar steps."""
    return width % (_VECTOR * torch.get_num_threads()) != 0


def _silu(values: Tensor) -> Tensor:
    return values / (1 + torch.exp(-values))


def _complex_product(left: Tensor, right: Tensor) -> Tensor:
    real = left.real * right.real - left.imag * right.imag
    return torch.complex(real, left.real * right.imag + left.imag * right.real)
