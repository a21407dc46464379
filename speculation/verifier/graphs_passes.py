"""Forward passes of fixed shapes: a query bucket times a key bucket, each captured once as a CUDA graph.

Everything a pass depends on is in one small input buffer, and mask, positions and the best tokens are
computed on the device, so a captured pass costs one copy in, one launch and one copy out. Uncaptured, the
same code runs anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from speculation.verifier.graphs_model import cache_argument
from speculation.verifier.graphs_stage import Stage, stage_cache

MAX_NODES = 64  # a node's ancestors are the bits of one integer
TOKENS, POSITIONS, ANCESTORS, LENGTH = range(4)  # rows of the input buffer


def bucket_for(buckets: Sequence[int], count: int) -> int:
    """The smallest bucket that holds ``count``."""
    return next(bucket for bucket in buckets if bucket >= count)


def ancestor_bits(parents: Sequence[int] | None, count: int) -> list[int]:
    """Per node an integer whose bit j says that node j is seen (its ancestors and itself)."""
    bits: list[int] = []
    for node in range(count):
        parent = node - 1 if parents is None else parents[node]
        bits.append((bits[parent] if parent >= 0 else 0) | 1 << node)
    return bits


def depths(parents: Sequence[int] | None, count: int) -> list[int]:
    """Per node its distance from the committed end, 0 at a root."""
    if parents is None:
        return list(range(count))
    depth: list[int] = []
    for parent in parents:
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
    return depth


class Passes:
    """Runs the model on the stage in fixed shapes."""

    def __init__(
        self, model: Any, stage: Stage, query_buckets: Sequence[int], key_buckets: Sequence[int]
    ) -> None:
        """Buckets ascend; the last key bucket is the stage's capacity."""
        self.query_buckets, self.key_buckets = tuple(query_buckets), tuple(key_buckets)
        self._model, self._stage = model, stage
        device = stage.keys.device
        head = model.get_output_embeddings().weight
        most = self.query_buckets[-1]
        self._cache_argument = cache_argument(model)
        pinned = device.type == "cuda"
        self._host_inputs = torch.zeros(4, MAX_NODES, dtype=torch.long, pin_memory=pinned)
        self._inputs = torch.zeros(4, MAX_NODES, dtype=torch.long, device=device)
        self._logits = torch.zeros(most, head.shape[0], dtype=model.dtype, device=device)
        self._host_logits = torch.zeros_like(self._logits, device="cpu", pin_memory=pinned)
        self._best = torch.zeros(2, most, dtype=torch.long, device=device)
        self._graphs: dict[tuple[int, int], Any] = {}

    @torch.inference_mode()
    def run(self, tokens: Sequence[int], parents: Sequence[int] | None, start: int) -> None:
        """One pass over at most `MAX_NODES` nodes after ``start`` positions; results stay on the device."""
        count = len(tokens)
        queries = bucket_for(self.query_buckets, count)
        width = bucket_for(self.key_buckets, start + queries)
        self._fill(tokens, parents, start, queries)
        graph = self._graphs.get((queries, width))
        if graph is not None:
            graph.replay()
        else:
            self._forward(queries, width)

    @torch.inference_mode()
    def run_long(self, tokens: Sequence[int], start: int) -> None:
        """A chain of any length, uncaptured, for its keys and values alone."""
        device = self._stage.keys.device
        positions = torch.arange(start, start + len(tokens), device=device)
        width = bucket_for(self.key_buckets, start + len(tokens))
        mask = torch.arange(width, device=device) <= positions[:, None]
        ids = torch.tensor([list(tokens)], device=device)
        self._call(ids, positions, positions, mask, logits_to_keep=1)

    def logits(self, count: int) -> Tensor:
        """Logits ``[count, vocab]`` of the last pass on the CPU, at least float32."""
        host = self._host_logits[:count]
        host.copy_(self._logits[:count], non_blocking=True)
        self.finish()
        return host.clone() if host.dtype in (torch.float32, torch.float64) else host.float()

    def best(self, count: int) -> Tensor:
        """The two best tokens ``[count, 2]`` after each node of the last pass, on the CPU."""
        return self._best[:, :count].t().clone().cpu()

    def finish(self) -> None:
        """Waits for the device; the input buffer may be filled again."""
        if self._inputs.device.type == "cuda":
            torch.cuda.current_stream(self._inputs.device).synchronize()

    @torch.inference_mode()
    def capture(self) -> None:
        """Captures every pass, the largest first, so that the smaller ones live in its memory."""
        pool = torch.cuda.graph_pool_handle()
        for queries in reversed(self.query_buckets):
            for width in reversed(self.key_buckets):
                if width < queries:
                    continue
                self._fill([0] * queries, None, 0, queries)
                warm_up = torch.cuda.Stream(self._inputs.device)
                warm_up.wait_stream(torch.cuda.current_stream(self._inputs.device))
                with torch.cuda.stream(warm_up):
                    self._forward(queries, width)
                torch.cuda.current_stream(self._inputs.device).wait_stream(warm_up)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self._forward(queries, width)
                self._graphs[queries, width] = graph
        torch.cuda.synchronize(self._inputs.device)

    def _fill(self, tokens: Sequence[int], parents: Sequence[int] | None, start: int, queries: int) -> None:
        """The inputs of a pass; padding rows see what is committed and themselves."""
        count = len(tokens)
        padding = queries - count
        bits = ancestor_bits(parents, count) + [1 << node for node in range(count, queries)]
        signed = [b - (1 << 64) if b >> 63 else b for b in bits]
        positions = [start + depth for depth in depths(parents, count)] + [start] * padding
        rows = torch.tensor([[*tokens, *([0] * padding)], positions, signed, [start] * queries])
        self._host_inputs[:, :queries] = rows
        self._inputs.copy_(self._host_inputs, non_blocking=True)

    def _forward(self, queries: int, width: int) -> None:
        inputs = self._inputs[:, :queries]
        start = inputs[LENGTH, :1]
        columns = torch.arange(width, device=inputs.device) - start
        seen = inputs[ANCESTORS, :, None] >> columns.clamp(0, MAX_NODES - 1) & 1
        mask = (columns < 0) | ((columns < MAX_NODES) & seen.bool())
        writes = start + torch.arange(queries, device=inputs.device)
        logits = self._call(inputs[TOKENS][None], inputs[POSITIONS], writes, mask, logits_to_keep=0)
        self._logits[:queries].copy_(logits)
        best = logits.argmax(-1, keepdim=True)
        self._best[0, :queries].copy_(best[:, 0])
        self._best[1, :queries].copy_(logits.scatter(-1, best, -torch.inf).argmax(-1))

    def _call(
        self, ids: Tensor, positions: Tensor, writes: Tensor, mask: Tensor, logits_to_keep: int
    ) -> Tensor:
        out = self._model(
            input_ids=ids,
            position_ids=positions[None],
            attention_mask=mask[None, None],
            use_cache=True,
            logits_to_keep=logits_to_keep,
            **{self._cache_argument: stage_cache(self._stage, writes, mask.shape[1])},
        )
        result: Tensor = out.logits[0]
        return result
