"""int8 weights of a Llama-shaped model: quantised once from its safetensors, then kept in the cache
directory.

Packed weights would need pickle, which is never read; so the cache holds raw int8 weights and their scales,
and they are packed at load. Rows of the query and key projections are interleaved, so that rotary embedding
is a product of complex numbers, and the attention scale is folded into the queries.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cache.convert import require_whole
from cache.durable import sync, sync_directory
from cache.progress import working
from cache.sealed import DamagedFileError, SealedFile, seal
from speculation.verifier.architecture import Architecture
from speculation.verifier.calibration import FloatLayers, best_factors, calibration_ids
from speculation.verifier.int8_linear import quantize

_FORMAT = 3  # of the cached file; part of its name

TWICE_ROUNDED = "twice_rounded"  # there where activations are to be rounded to twice as many bits
MOST_DIVERGENCE = 0.01  # nats from float32 on the calibration text, before they are

Tensors = dict[str, Tensor]
Run = Callable[[Path, Tensor], Tensor]


def cached_weights(
    directory: Path, architecture: Architecture, cache_dir: Path, key: str, pair_bound: bool, run: Run
) -> Path:
    """The file with the int8 weights of the model in ``directory``; made on first use, written atomically.

    ``key``: a hash of the source model's files. ``run``: the logits that a file of weights gives for ids; where they
    are too far from float32's, the file says that activations are to be rounded twice.

    Raises:
        cache.models.ModelNotAvailable: the model they would be made from is damaged.
    """
    rounding = "pairs" if pair_bound else "full"
    path = cache_dir / f"{key[:24]}-{rounding}-v{_FORMAT}.safetensors"
    if path.exists():
        return path
    cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            require_whole(directory)
            with working(f"Rounding the weights of {directory.name} to int8 (once)"):
                _make(directory, architecture, pair_bound, run, path)
            for stale in set(cache_dir.glob(f"{key[:24]}-{rounding}-v*.safetensors")) - {path}:
                stale.unlink(missing_ok=True)
    return path


def _make(directory: Path, architecture: Architecture, pair_bound: bool, run: Run, path: Path) -> None:
    """Puts a sealed file in place when it is on the disk."""
    tensors, ids, expected = int8_tensors(directory, architecture, pair_bound)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        _write(tensors, temporary)
        if divergence(expected, run(temporary, ids)) > MOST_DIVERGENCE:
            tensors[TWICE_ROUNDED] = torch.ones(1, dtype=torch.int8)
            _write(tensors, temporary)
        sync(temporary)
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _write(tensors: Tensors, path: Path) -> None:
    sums = seal((n, tuple(t.shape), t.flatten().view(torch.uint8).numpy().data) for n, t in tensors.items())
    save_file(tensors, path, sums)


def divergence(expected: Tensor, found: Tensor) -> float:
    """Mean Kullback-Leibler divergence, nats, of the distributions of logits ``[n, vocab]``."""
    wanted, got = (torch.log_softmax(logits, -1) for logits in (expected, found))
    return float((wanted.exp() * (wanted - got)).sum(-1).mean())


def int8_tensors(
    directory: Path, architecture: Architecture, pair_bound: bool
) -> tuple[Tensors, Tensor, Tensor]:
    """All tensors of the fused forward: ``<layer>.<name>.weight`` int8, ``.scale`` and ``.bias`` float32; and the
    calibration text's ids with float32's logits for them."""
    with Checkpoint(directory) as source:
        embedding = source("model.embed_tokens.weight")
        ids = calibration_ids(directory, architecture.vocab)
        floats = FloatLayers(architecture, embedding[ids].float())
        tensors = Rounding(pair_bound)
        for layer in range(architecture.layers):
            _attention(layer, architecture, source, floats, tensors)
            _mlp(layer, architecture, source, floats, tensors)
        norm = source("model.norm.weight").float()
        head = (embedding if architecture.tied else source("lm_head.weight")).float()
        rows = floats.norm(norm)
        factors = best_factors(rows, head, pair_bound)
        expected = rows @ head.T
        tensors["norm"] = norm / factors
        tensors.linear("head", head * factors)
        tensors["embedding"] = embedding.bfloat16()
    return tensors, ids, expected


class Rounding(Tensors):
    """Tensors by name, the linear ones rounded."""

    def __init__(self, pair_bound: bool) -> None:
        super().__init__()
        self.pair_bound = pair_bound

    def linear(self, name: str, weight: Tensor, bias: Tensor | None = None) -> None:
        """Adds a linear layer."""
        self[f"{name}.weight"], self[f"{name}.scale"] = quantize(weight, self.pair_bound)
        if bias is not None:
            self[f"{name}.bias"] = bias.float().contiguous()


def _attention(
    layer: int, architecture: Architecture, source: Checkpoint, floats: FloatLayers, tensors: Rounding
) -> None:
    geometry = architecture.geometry
    prefix = f"model.layers.{layer}"
    scaling = geometry.head_dim**-0.5

    def interleave(rows: Tensor) -> Tensor:
        halves = rows.view(-1, 2, geometry.head_dim // 2, *rows.shape[1:])
        return halves.transpose(1, 2).reshape(rows.shape)

    def joined(kind: str) -> Tensor:
        q, k, v = (source(f"{prefix}.self_attn.{name}_proj.{kind}").float() for name in "qkv")
        q, k = interleave(q), interleave(k)
        return torch.cat((q if architecture.qk_norm else q * scaling, k, v))

    weight = joined("weight")
    bias = joined("bias") if architecture.qkv_bias else None
    norm = source(f"{prefix}.input_layernorm.weight").float()
    q_norm = k_norm = None
    if architecture.qk_norm:
        q_norm = interleave(source(f"{prefix}.self_attn.q_norm.weight").float()) * scaling
        k_norm = interleave(source(f"{prefix}.self_attn.k_norm.weight").float())
        tensors[f"{layer}.q_norm"], tensors[f"{layer}.k_norm"] = q_norm, k_norm
    output = source(f"{prefix}.self_attn.o_proj.weight").float()
    output_bias = source(f"{prefix}.self_attn.o_proj.bias") if architecture.output_bias else None

    rows = floats.norm(norm)
    factors = best_factors(rows, weight, tensors.pair_bound)
    mixed = floats.attend(torch.nn.functional.linear(rows, weight, bias), q_norm, k_norm)
    values = best_factors(mixed, output, tensors.pair_bound, geometry.group)
    floats.hidden = floats.hidden + torch.nn.functional.linear(mixed.flatten(1), output, output_bias)

    weight[-len(values) :] /= values[:, None]
    if bias is not None:
        bias[-len(values) :] /= values
    by_head = values.view(geometry.kv_heads, 1, geometry.head_dim).expand(-1, geometry.group, -1)
    tensors[f"{layer}.attention_norm"] = norm / factors
    tensors.linear(f"{layer}.qkv", weight * factors, bias)
    tensors.linear(f"{layer}.output", output * by_head.flatten(), output_bias)


def _mlp(
    layer: int, architecture: Architecture, source: Checkpoint, floats: FloatLayers, tensors: Rounding
) -> None:
    prefix = f"model.layers.{layer}"

    def joined(kind: str) -> Tensor:
        return torch.cat([source(f"{prefix}.mlp.{name}_proj.{kind}").float() for name in ("gate", "up")])

    weight = joined("weight")
    bias = joined("bias") if architecture.mlp_bias else None
    norm = source(f"{prefix}.post_attention_layernorm.weight").float()
    down = source(f"{prefix}.mlp.down_proj.weight").float()
    down_bias = source(f"{prefix}.mlp.down_proj.bias") if architecture.mlp_bias else None

    rows = floats.norm(norm)
    factors = best_factors(rows, weight, tensors.pair_bound)
    gate, up = torch.nn.functional.linear(rows, weight, bias).chunk(2, -1)
    inner = torch.nn.functional.silu(gate) * up
    inner_factors = best_factors(inner, down, tensors.pair_bound)
    floats.hidden = floats.hidden + torch.nn.functional.linear(inner, down, down_bias)

    weight[len(inner_factors) :] /= inner_factors[:, None]
    if bias is not None:
        bias[len(inner_factors) :] /= inner_factors
    tensors[f"{layer}.mlp_norm"] = norm / factors
    tensors.linear(f"{layer}.gate_up", weight * factors, bias)
    tensors.linear(f"{layer}.down", down * inner_factors, down_bias)


class Checkpoint:
    """Tensors by name from a model directory's safetensors files, sharded or not."""

    def __init__(self, directory: Path) -> None:
        self._handles = [safe_open(path, "pt") for path in checkpoint_files(directory)]
        self._where = {name: handle for handle in self._handles for name in handle.keys()}  # noqa: SIM118

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._where.clear()
        self._handles.clear()

    def __call__(self, name: str) -> Tensor:
        return self._where[name].get_tensor(name)


def checkpoint_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return [directory / name for name in sorted(names)]
    return [directory / "model.safetensors"]


class WeightFile:
    """A file of cached weights. What is packed is read, so that its pages do not stay in memory; the embedding
    is mapped, so that only the rows in use are. Raises `cache.sealed.DamagedFileError` where it is damaged."""

    _DTYPES: ClassVar = {"I8": torch.int8, "F32": torch.float32}

    def __init__(self, path: Path) -> None:
        self._file = SealedFile(path)
        try:
            self._mapped = safe_open(path, "pt")
        except SafetensorError as error:
            raise DamagedFileError(f"{path} is damaged: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._file

    def read(self, name: str) -> Tensor:
        """A tensor of int8 or float32 in memory of its own."""
        dtype, shape, data = self._file.read(name)
        self._expect(name, dtype, "I8" if name.endswith(".weight") else "F32")
        return torch.frombuffer(data, dtype=self._DTYPES[dtype]).view(shape)

    def map(self, name: str) -> Tensor:
        """A tensor that lies in the file."""
        self._expect(name, self._file.check(name), "BF16")
        return self._mapped.get_tensor(name)

    def _expect(self, name: str, dtype: str, expected: str) -> None:
        if dtype != expected:
            raise DamagedFileError(f"{self._file.path} is damaged: {name} is {dtype} and not {expected}")
