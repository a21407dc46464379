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
from speculation.verifier.attention import Attention, Plan, plan_pass, width_of
from speculation.verifier.int8_linear import BACKENDS, INTEGER_BACKENDS, Product, row_scale, twice_rounded
from speculation.verifier.weights import TWICE_ROUNDED, WeightFile

_PAD = 8  # floats behind a hidden state; the first holds the norm's epsilon
_VECTOR = 32  # floats: flat operators leave no scalar tail where a thread's share is a multiple of this


@dataclass(slots=True)
class Linear:
    """A product and its bias."""

    product: Product
    bias: Tensor | None


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
        twice = TWICE_ROUNDED in file and backend in INTEGER_BACKENDS
        root = (
            architecture.hidden**0.5
        )  # rows are divided by the norm of their sum of squares, not of their mean

        def linear(name: str) -> Linear:
            bias = file.read(f"{name}.bias") if f"{name}.bias" in file else None
            product = BACKENDS[backend](file.read(f"{name}.weight"), file.read(f"{name}.scale"))
            return Linear(twice_rounded(product) if twice else product, bias)

        def layer(index: int) -> Layer:
            return Layer(
                file.read(f"{index}.attention_norm") * root,
                linear(f"{index}.qkv"),
                linear(f"{index}.output"),
                file.read(f"{index}.mlp_norm") * root,
                linear(f"{index}.gate_up"),
                linear(f"{index}.down"),
                self._qk_norm(file.read, index) if architecture.qk_norm else None,
            )

        with ThreadPoolExecutor(2) as pool:
            head = pool.submit(linear, "head")
            embedding = pool.submit(file.map, "embedding")
            self._layers = list(pool.map(layer, range(architecture.layers)))
            self._head, self._embedding = head.result(), embedding.result()
        self.embedding_bytes = self._embedding.nbytes
        self._norm = file.read("norm") * root
        # fused operators round otherwise in the scalar tail of a vector loop, whose place depends on the pass
        self._activation = _activation(architecture.intermediate)
        geometry = architecture.geometry
        turned = (geometry.heads + 2 * geometry.kv_heads) * geometry.head_dim
        self._rotate = _complex_product if _has_tail(turned) else torch.mul
        self._fused_sums = not (_has_tail(architecture.hidden) or _has_tail(turned))

    def forward(self, ids: Tensor, plan: Plan, cache: Tensor, states: bool = True) -> Tensor:
        """Final states ``[n, hidden + _PAD]`` of ``ids`` ``[n]`` for `logits`; fills the keys and values in ``cache``.

        Without ``states`` the last layer stops at its keys and values, and what is returned means nothing.

        ``cache``: ``[layers, slots, kv_width]``; one of fewer layers runs only these, which the self-test does.
        """
        architecture = self.architecture
        attention = Attention(plan, cache, architecture.geometry)
        rotation = self._rotation(plan.positions)
        turned = torch.view_as_complex(attention.rows.view(*rotation.shape, 2))
        state = torch.zeros(len(ids), architecture.hidden + _PAD)
        state[:, architecture.hidden] = (architecture.hidden * architecture.norm_eps) ** 0.5
        hidden = state[:, : architecture.hidden]
        hidden.copy_(self._embedding.index_select(0, ids))
        for index in range(len(cache)):
            layer = self._layers[index]
            qkv = self._normalised(layer.qkv, layer.attention_norm, state, hidden)
            if layer.qk_norm is not None:
                self._normalise_heads(qkv, layer.qk_norm)
            self._rotate(torch.view_as_complex(qkv.view(*rotation.shape, 2)), rotation, out=turned)
            if not states and index == len(cache) - 1:
                attention.write(index)
                break
            self._add_to(hidden, layer.output, attention.layer(index))
            gate, up = self._normalised(layer.gate_up, layer.mlp_norm, state, hidden).chunk(2, -1)
            self._add_to(hidden, layer.down, self._activation(gate).mul_(up))
        return state

    def logits(self, state: Tensor) -> Tensor:
        """Logits ``[n, vocab]`` of final states."""
        return self._normalised(self._head, self._norm, state, state[:, : self.architecture.hidden])

    @torch.inference_mode()
    def run(self, ids: Tensor) -> Tensor:
        """Logits ``[n, vocab]`` of a whole text."""
        geometry = self.architecture.geometry
        slots = torch.zeros(self.architecture.layers, width_of(len(ids)), geometry.kv_width)
        return self.logits(self.forward(ids, plan_pass(0, len(ids), None, geometry), slots))

    def _normalised(self, linear: Linear, norm: Tensor, state: Tensor, hidden: Tensor) -> Tensor:
        """The product of the hidden states' root-mean-square norm. ``state`` ends in the norm's epsilon."""
        rows = hidden * norm
        scale = row_scale(rows)
        result = linear.product(rows.div_(scale))
        scale.div_(torch.linalg.vector_norm(state, 2, -1, True))
        if linear.bias is None:
            return result.mul_(scale)
        if self._fused_sums:
            return torch.addcmul(linear.bias, result, scale)
        return result.mul_(scale).add_(linear.bias)

    def _add_to(self, hidden: Tensor, linear: Linear, rows: Tensor) -> None:
        """Adds the product of ``rows``, which are used up."""
        scale = row_scale(rows)
        result = linear.product(rows.div_(scale))
        if self._fused_sums:
            hidden.addcmul_(result, scale)
        else:
            hidden.add_(result.mul_(scale))
        if linear.bias is not None:
            hidden.add_(linear.bias)

    def _normalise_heads(self, qkv: Tensor, weight: Tensor) -> None:
        geometry = self.architecture.geometry
        heads = qkv.view(len(qkv), -1, geometry.head_dim)[:, : geometry.heads + geometry.kv_heads]
        norm = torch.linalg.vector_norm(heads, 2, -1, True).square_().div_(geometry.head_dim)
        heads *= norm.add_(self.architecture.norm_eps).rsqrt_()
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
    """Whether a vector loop over rows of ``width`` floats, shared among threads, can end in scalar steps.

    A pass of few rows is shared among fewer threads than there are, so every number of shares counts.
    """
    return any(width % (_VECTOR * shares) for shares in range(1, torch.get_num_threads() + 1))


def _activation(width: int) -> Callable[[Tensor], Tensor]:
    return _silu if _has_tail(width) else torch.nn.functional.silu


def _silu(values: Tensor) -> Tensor:
    return values / (1 + torch.exp(-values))


def _complex_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    out.real.copy_(left.real * right.real - left.imag * right.imag)
    out.imag.copy_(left.real * right.imag + left.imag * right.real)
