"""The target distribution and exact draws from it.

p is made in this order: allowed-token mask (token healing), repetition penalty, temperature, top-k, top-p, min-p;
the same order and arithmetic as transformers' logits processors. Randomness is keyed by (seed, position), never by
call order: one uniform per position, drawn with a counter-based generator (Salmon et al. 2011, Philox), and the
inverse cumulative distribution in id order. So the token at a position is a function of p, seed and position alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How tokens are chosen. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # over prompt and output; 1: off
    seed: int = 0

    def __post_init__(self) -> None:
        checks = [
            (np.isfinite(self.temperature) and self.temperature >= 0, "temperature must be a number >= 0"),
            (self.top_k >= 0, "top-k must be >= 0 (0 turns it off)"),
            (0 < self.top_p <= 1, "top-p must be in (0, 1] (1 turns it off)"),
            (0 <= self.min_p <= 1, "min-p must be in [0, 1] (0 turns it off)"),
            (
                np.isfinite(self.repetition_penalty) and self.repetition_penalty > 0,
                "repetition penalty must be > 0 (1 turns it off)",
            ),
            (0 <= self.seed < 2**64, "seed must be in [0, 2**64)"),
        ]
        for ok, message in checks:
            if not ok:
                raise ValueError(message)


def processed_logits(
    logits: Tensor,
    parameters: SamplingParameters,
    context: Tensor | None = None,
    allowed: Tensor | None = None,
) -> Tensor:
    """Logits ``[vocab]`` after every warper, -inf where a token is impossible; softmax of it is p.

    ``context``: ids ``[n]`` the repetition penalty looks at (prompt, output and drafted prefix).
    ``allowed``: ids ``[m]`` that token healing permits; None permits all.
    """
    scores = logits.clone() if logits.is_floating_point() else logits.float()
    if allowed is not None:
        masked = torch.full_like(scores, -torch.inf)
        masked[allowed] = scores[allowed]
        scores = masked
    if parameters.repetition_penalty != 1.0 and context is not None and len(context):
        ids = torch.unique(context)
        ids = ids[ids < scores.shape[-1]]
        picked = scores[ids]
        penalty = parameters.repetition_penalty
        scores[ids] = torch.where(picked < 0, picked * penalty, picked / penalty)
    if parameters.temperature == 0:
        return scores
    if parameters.temperature != 1.0:
        scores = scores / parameters.temperature
    if 0 < parameters.top_k < scores.shape[-1]:
        kth = torch.topk(scores, parameters.top_k).values[-1]
        scores = scores.masked_fill(scores < kth, -torch.inf)
    if parameters.top_p < 1.0:
        ordered, order = torch.sort(scores, descending=False)
        tail = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - parameters.top_p
        tail[-1] = False
        scores = scores.masked_fill(tail.scatter(0, order, tail), -torch.inf)
    if parameters.min_p > 0:
        probabilities = scores.softmax(dim=-1)
        scores = scores.masked_fill(probabilities < parameters.min_p * probabilities.max(), -torch.inf)
    return scores


def distribution(
    logits: Tensor,
    parameters: SamplingParameters,
    context: Tensor | None = None,
    allowed: Tensor | None = None,
) -> Tensor:
    """The target distribution p ``[vocab]`` that sampling draws from; one-hot on the argmax when greedy."""
    scores = processed_logits(logits, parameters, context, allowed)
    if parameters.temperature == 0:
        return torch.nn.functional.one_hot(scores.argmax(), scores.shape[-1]).to(scores.dtype)
    return scores.softmax(dim=-1)


def uniform(seed: int, position: int, stream: int = 0) -> float:
    """The uniform in [0, 1) of a position. ``stream`` separates independent uses at one position."""
    bits = np.random.Philox(
        key=seed, counter=np.array([position, stream, 0, 0], dtype=np.uint64)
    ).random_raw()
    return float(int(bits) >> 11) * 2.0**-53


def draw(p: Tensor, u: float) -> int:
    """The inverse cumulative distribution of p ``[vocab]`` at ``u``, in id order; never an impossible token."""
    cumulative = p.double().cumsum(dim=-1)
    token = int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))
    if token >= len(p) or p[token] <= 0:  # u times the total can round up to the total
        token = int(torch.nonzero(p > 0)[-1])
    return token


def context_tensor(tokens: Sequence[int], parameters: SamplingParameters) -> Tensor | None:
    """The ids the repetition penalty needs, or None when it is off."""
    return torch.tensor(tokens, dtype=torch.long) if parameters.repetition_penalty != 1.0 else None
