"""What the int8 engine learns about itself at load, on two of its layers: whether rows are invariant, to
the bit, with the kernels of this CPU, and how many positions of prefill fit in a tenth of a second."""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time

import torch
from torch import Tensor

from speculation.verifier.attention import TAIL, WIDTH, plan_pass
from speculation.verifier.int8_model import FusedModel

_LAYERS = 2
_CONTEXT = TAIL + WIDTH - 5  # the nodes after it have two key widths, both with a head and a tail
_PARENTS = (-1, 0, 1, 2, 3, 4, 5, 6, 1, 8, 9, 10, 11, 12, 0, 14)  # a chain of 8, a branch of 6, another of 2
_CHUNK_MS = 90.0
_CHUNKS = range(16, 257, 8)  # one of 8 costs 1.4 of one of 16: benchmarks.engine


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of the self-test."""

    invariant: bool
    prefill_chunk: int


@torch.inference_mode()
def self_test(model: FusedModel) -> Findings:
    """Runs a context in one pass and in pieces, then a tree in one pass and node by node."""
    architecture = model.architecture
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(architecture.vocab, (_CONTEXT + len(_PARENTS),), generator=generator)
    context, nodes = ids[:_CONTEXT], ids[_CONTEXT:]
    layers = min(_LAYERS, architecture.layers)
    cache, again = (torch.zeros(layers, TAIL + 2 * WIDTH, architecture.geometry.kv_width) for _ in range(2))
    _run(model, context, 0, cache)
    times = []
    for _ in range(4):  # the first touches memory for the first time; a busy machine slows some, not all
        began = thread_time()  # of this thread: time given to others does not count, waiting for them does
        _run(model, context[:WIDTH], 0, again)
        times.append(thread_time() - began)
    per_position = min(times) * 1e3 / WIDTH * architecture.layers / layers
    _run(model, context[WIDTH:-1], WIDTH, again)
    _run(model, context[-1:], _CONTEXT - 1, again)
    same = torch.equal(cache[:, :_CONTEXT], again[:, :_CONTEXT])
    same = same and _tree_equals_chains(model, nodes, cache)
    fitting = [chunk for chunk in _CHUNKS if chunk * per_position <= _CHUNK_MS]
    return Findings(same, fitting[-1] if fitting else _CHUNKS[0])


def _run(
    model: FusedModel, ids: Tensor, start: int, cache: Tensor, parents: tuple[int, ...] | None = None
) -> Tensor:
    return model.forward(ids, plan_pass(start, len(ids), parents, model.architecture.geometry), cache)


def _tree_equals_chains(model: FusedModel, nodes: Tensor, cache: Tensor) -> bool:
    hidden = _run(model, nodes, _CONTEXT, cache, _PARENTS)
    logits = model.logits(hidden)
    for leaf in (7, 13, 15):
        path = [leaf]
        while _PARENTS[path[0]] >= 0:
            path.insert(0, _PARENTS[path[0]])
        alone = torch.cat([_run(model, nodes[n : n + 1], _CONTEXT + at, cache) for at, n in enumerate(path)])
        if not torch.equal(alone, hidden[path]):
            return False
    return torch.equal(model.logits(hidden[:1]), logits[:1])
