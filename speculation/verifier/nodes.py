"""Checks and masks for the nodes of one pass, shared by every engine: wrong use is refused before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from speculation.verifier.base import Capabilities, VerifierError


def check_nodes(
    tokens: Sequence[int], parents: Sequence[int] | None, length: int, capabilities: Capabilities
) -> None:
    """Raises `VerifierError` for a pass that cannot be run on a slot with ``length`` committed positions."""
    if not tokens:
        raise VerifierError("a pass needs at least one token")
    if length + len(tokens) > capabilities.max_context:
        raise VerifierError(
            f"{length} + {len(tokens)} positions do not fit into a context of {capabilities.max_context}"
        )
    wrong = next((t for t in tokens if not 0 <= t < capabilities.vocab_size), None)
    if wrong is not None:
        raise VerifierError(f"token id {wrong} is outside the vocabulary of {capabilities.vocab_size}")
    if parents is None:
        return
    if not capabilities.trees:
        raise VerifierError(f"the {capabilities.engine} engine cannot verify trees with this model")
    if len(parents) != len(tokens):
        raise VerifierError(f"{len(tokens)} tokens with {len(parents)} parents")
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise VerifierError(f"node {node} has parent {parent}; a parent must come before its child")


def check_path(path: Sequence[int], parents: Sequence[int]) -> None:
    """Raises `VerifierError` unless ``path`` leads from a root down the nodes of the last pass."""
    before = -1
    for node in path:
        if not 0 <= node < len(parents) or parents[node] != before:
            raise VerifierError(
                f"path {list(path)} does not lead through the last pass of {len(parents)} nodes"
            )
        before = node


def ancestor_mask(count: int, parents: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """(mask ``[count, count]``, True where a node sees another; depth ``[count]`` of each node, 0 at the root)."""
    if parents is None:
        return torch.ones(count, count, dtype=torch.bool).tril(), torch.arange(count)
    mask = torch.eye(count, dtype=torch.bool)
    depth = torch.zeros(count, dtype=torch.long)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
            depth[node] = depth[parent] + 1
    return mask, depth
