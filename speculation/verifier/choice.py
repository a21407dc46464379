"""Which engine verifies: by device and by what the model's shape allows; can be set. And what it is like
here."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from speculation.verifier.base import Verifier, VerifierError

if TYPE_CHECKING:
    from cache.models import ModelFiles

_COPY_BYTES = 128 * 2**20
_CONTEXT = 200  # positions before the passes that are compared
_NODES = 12
_BRANCHES = (-1, 0, 1, 2, 3, 4, 1, 6, 7, 0, 9, 10)


def choose(device: str, engine: str, dtype: str, files: ModelFiles) -> Verifier:
    """The verifier for a model. "auto" takes graphs on CUDA, int8 on a CPU, eager elsewhere; a dtype asked
    for on a CPU means eager, which has all of them.

    Raises:
        VerifierError: the engine cannot run this model here.
    """
    if engine == "auto":
        engine = _engine_for(device, dtype)
        if engine == "graphs":
            try:
                return _load(engine, device, dtype, files)
            except VerifierError:  # an architecture that its passes cannot run
                engine = "eager"
    return _load(engine, device, dtype, files)


def _engine_for(device: str, dtype: str) -> str:
    if device.startswith("cuda"):
        return "graphs"
    return "int8" if device == "cpu" and dtype in ("auto", "int8") else "eager"


def _load(engine: str, device: str, dtype: str, files: ModelFiles) -> Verifier:
    directory = str(files.directory)
    if engine == "graphs":
        from speculation.verifier.graphs import GraphsVerifier

        return GraphsVerifier.load(directory, files.name, "bfloat16" if dtype == "auto" else dtype, device)
    if engine == "int8":
        return _load_int8(device, dtype, files)
    from speculation.verifier.eager import EagerVerifier

    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    return EagerVerifier.load(directory, files.name, dtype, device)


def _load_int8(device: str, dtype: str, files: ModelFiles) -> Verifier:
    """The fused engine, or transformers' forward with int8 linear layers where the fused one lacks the
    shape."""
    from cache.models import made_weights
    from cache.paths import models_dir
    from speculation.verifier.architecture import UnsupportedModelError
    from speculation.verifier.int8 import Int8Verifier

    if device != "cpu":
        raise VerifierError(
            f"the int8 engine runs on the CPU, not on {device}: use --engine graphs or eager there"
        )
    if dtype not in ("auto", "int8", "float32", "bfloat16"):
        raise VerifierError(f"the int8 engine has no {dtype}: use --engine eager for it")
    backend = None if dtype in ("auto", "int8") else dtype
    try:
        return Int8Verifier.load(files.directory, files.name, files.hash, made_weights(models_dir()), backend)
    except UnsupportedModelError:
        from speculation.verifier.int8_modules import load_replaced

        return load_replaced(str(files.directory), files.name, backend)


def describe(verifier: Verifier) -> dict[str, Any]:
    """What `doctor` shows of an engine: its shape, what it moves a second against a plain copy, and row
    invariance run now. Takes about a second; leaves no slot behind."""
    capabilities = verifier.capabilities
    one_ms, chunk_ms = _pass_ms(verifier)
    read = capabilities.weight_bytes - capabilities.unread_bytes
    return {
        "engine": capabilities.engine,
        "device": capabilities.device,
        "dtype": capabilities.dtype,
        "weight bytes": capabilities.weight_bytes,
        "KV bytes per token": capabilities.kv_bytes_per_token,
        "prefill chunk": capabilities.prefill_chunk,
        "prefill chunk ms": round(chunk_ms, 1),
        "t(1) ms": round(one_ms, 2),
        "weights read GB/s": float(f"{read / one_ms / 1e6:.3g}"),
        "copy GB/s": float(f"{copy_gigabytes_per_s(capabilities.device):.3g}"),
        "row-invariant": {"declared": capabilities.row_invariant, **row_invariance(verifier)},
    }


def copy_gigabytes_per_s(device: str) -> float:
    """Bytes read and written a second by the best of a few large copies."""
    import torch

    source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        started = perf_counter()
        target.copy_(source)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = max(best, 2 * _COPY_BYTES / (perf_counter() - started))
    return best / 1e9


def row_invariance(verifier: Verifier) -> dict[str, bool]:
    """Whether logits are equal to the bit: one pass against single passes, prefill in pieces, a tree
    against chains."""
    import torch

    vocab = verifier.capabilities.vocab_size
    tokens = [(7919 * i + 13) % vocab for i in range(_CONTEXT + _NODES)]
    context, nodes = tokens[:_CONTEXT], tokens[_CONTEXT:]
    slot, other = verifier.open_slot(), verifier.open_slot()
    try:
        verifier.prefill(slot, context)
        together = verifier.verify(slot, nodes).clone()
        for first in range(0, _CONTEXT, 64):
            verifier.prefill(other, context[first : first + 64])
        pieces = torch.equal(verifier.verify(other, nodes), together)
        found = {"prefill in pieces": pieces, "pass sizes": True}
        if verifier.capabilities.trees:
            found["trees"] = _tree_equals_chains(verifier, slot, nodes)
        for node, token in enumerate(nodes):
            same = torch.equal(verifier.verify(slot, [token])[0], together[node])
            found["pass sizes"] = found["pass sizes"] and same
            verifier.commit(slot, [0])
        return found
    finally:
        verifier.close_slot(slot)
        verifier.close_slot(other)


def _tree_equals_chains(verifier: Verifier, slot: int, nodes: list[int]) -> bool:
    import torch

    tree = verifier.verify(slot, nodes, _BRANCHES).clone()
    for leaf in (n for n in range(_NODES) if n not in _BRANCHES):
        path = [leaf]
        while _BRANCHES[path[0]] >= 0:
            path.insert(0, _BRANCHES[path[0]])
        if not torch.equal(verifier.verify(slot, [nodes[n] for n in path]), tree[path]):
            return False
    return True


def _pass_ms(verifier: Verifier) -> tuple[float, float]:
    """The best of a few: a pass of one position, and a prefill chunk."""
    capabilities = verifier.capabilities
    tokens = [i % capabilities.vocab_size for i in range(1, capabilities.prefill_chunk + 1)]
    slot = verifier.open_slot()
    try:
        ones, chunks = [], []
        for _ in range(5):
            verifier.rollback(slot, 0)
            began = perf_counter()
            verifier.prefill(slot, tokens)
            chunks.append(perf_counter() - began)
            for _ in range(2):
                began = perf_counter()
                verifier.verify(slot, tokens[:1])
                ones.append(perf_counter() - began)
        return min(ones) * 1e3, min(chunks) * 1e3
    finally:
        verifier.close_slot(slot)
