"""Clocks and models for `benchmarks.gpu`: what is timed, on which weights, and transformers beside it."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, Qwen2Config, Qwen2ForCausalLM

import speculation
from speculation.verifier.graphs_model import cache_argument

SHAPES = {  # of random-weight models, for where no model is at hand
    "1.5B": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    },
}


def load(path: str | None, shape: str, device: torch.device, dtype: torch.dtype) -> Any:
    """The model at ``path``, or one of a shape with random weights (seed 0)."""
    if path is not None:
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
        return model.to(device).eval()
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return Qwen2ForCausalLM(Qwen2Config(**SHAPES[shape])).eval()
    finally:
        torch.set_default_dtype(before)


def twin(model: Any) -> Any:
    """A second module over the same weights, which keeps its attention when the first one's is replaced."""
    shared = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return copy.deepcopy(model, shared)


def token_ids(path: str | None, vocab_size: int, count: int) -> list[int]:
    """Ids to run on: this project's own source where the model has a tokenizer, else random ones."""
    if path is not None and (Path(path) / "tokenizer.json").exists():
        sources = sorted(Path(speculation.__file__).parent.rglob("*.py"))
        text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
        ids: list[int] = AutoTokenizer.from_pretrained(path, local_files_only=True)(text)["input_ids"]
        if len(ids) >= count:
            return ids[:count]
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocab_size, (count,), generator=generator).tolist()


def wait(device: torch.device) -> None:
    """Until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def milliseconds(action: Callable[[], object], device: torch.device) -> float:
    """Wall time of one call, host and device."""
    wait(device)
    started = perf_counter()
    action()
    wait(device)
    return (perf_counter() - started) * 1e3


def interleaved(
    actions: dict[str, Callable[[], object]], device: torch.device, repeats: int
) -> dict[str, dict[str, float]]:
    """Each action ``repeats`` times in turns after one call to warm up; median and quartiles in ms."""
    for action in actions.values():
        action()
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, action in actions.items():
            times[name].append(milliseconds(action, device))
    return {name: summary(values) for name, values in times.items()}


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": round(middle, 4), "q1": round(low, 4), "q3": round(high, 4)}


def bandwidth(device: torch.device, size_bytes: int) -> dict[str, float]:
    """Measured bytes/s of a copy (read and write) and of a sum (read alone), best of 20."""
    source = torch.ones(size_bytes // 2, dtype=torch.float16, device=device)
    target = torch.empty_like(source)
    copy = min(milliseconds(lambda: target.copy_(source), device) for _ in range(20))
    read = min(milliseconds(lambda: source.view(torch.int32).max(), device) for _ in range(20))
    return {"copy_bytes_per_s": 2 * size_bytes / copy * 1e3, "read_bytes_per_s": size_bytes / read * 1e3}


class Plain:
    """transformers' own forward with its dynamic cache and its own attention, on the same weights."""

    def __init__(self, model: Any, context: Sequence[int]) -> None:
        """``model``: a `twin`. Evaluates ``context`` once; every pass comes after it."""
        self._model = model
        self._cache = DynamicCache(config=model.config)
        self._context = len(context)
        self.run(context)

    @torch.inference_mode()
    def run(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits ``[n, vocab]`` on the device; the positions stay in the cache."""
        ids = torch.tensor([list(tokens)], device=self._model.device)
        out = self._model(input_ids=ids, use_cache=True, **{cache_argument(self._model): self._cache})
        logits: torch.Tensor = out.logits[0]
        return logits

    def best_after(self, tokens: Sequence[int]) -> list[int]:
        """The greedy token after each of ``tokens``; the cache is as before."""
        best: list[int] = self.run(tokens).argmax(-1).tolist()
        self._cache.crop(-len(tokens))
        return best
