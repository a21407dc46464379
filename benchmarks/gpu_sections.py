"""The sections of `benchmarks.gpu`: each measures one thing over one model for a part of the report."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks.gpu_measures import (
    Plain,
    bandwidth,
    interleaved,
    load,
    milliseconds,
    summary,
    token_ids,
    twin,
)
from speculation.verifier import graphs_attention
from speculation.verifier.base import VerifierError
from speculation.verifier.graphs import QUERY_BUCKETS, GraphsVerifier
from speculation.verifier.graphs_model import Weights, quantise
from speculation.verifier.model_bytes import bytes_read

CONTEXTS = (512, 2048, 6144)
GENERATED = 64
SHARED_PASS = 16  # positions of the one shape in which texts with and without drafts are compared
Section = dict[str, Any]
Actions = dict[str, Callable[[], object]]
Propose = Callable[[list[int]], Sequence[int]]


class Run:
    """One loaded model, the tokens to run it on, and the time since the start."""

    def __init__(self, path: str | None, device: torch.device, tiny: bool) -> None:
        if device.type == "cpu":
            torch.set_num_threads(1)  # the small shape only loses by sharing a pass among threads
        self.started = perf_counter()
        self.path, self.device = path, device
        self.cuda = device.type == "cuda"
        self.shape = "tiny" if tiny else "1.5B"
        self.contexts: Sequence[int] = (256,) if tiny else CONTEXTS
        self.repeats = 20 if self.cuda else 3
        self.texts = 8 if self.cuda else 2
        self.dtype = torch.bfloat16 if not self.cuda or torch.cuda.is_bf16_supported() else torch.float16
        most = max(self.contexts) + 4 * GENERATED
        self.model: Any = load(path, self.shape, device, self.dtype)
        self.load_s = self.seconds()
        self.plain_model = twin(self.model)
        self.verifier = GraphsVerifier(self.model, max_context=most)
        self.capture_s = self.seconds() - self.load_s
        self.ids = token_ids(path, self.verifier.capabilities.vocab_size, most)

    def seconds(self) -> float:
        """Since the start."""
        return perf_counter() - self.started


def slot_with(verifier: GraphsVerifier, tokens: Sequence[int]) -> int:
    """A slot that holds these tokens, prefilled as a completion does it."""
    slot = verifier.open_slot()
    size = verifier.capabilities.prefill_chunk
    for begin in range(0, len(tokens), size):
        verifier.prefill(slot, tokens[begin : begin + size])
    return slot


def greedy(
    verifier: GraphsVerifier, slot: int, last: int, propose: Propose = lambda done: ()
) -> tuple[list[int], int]:
    """`GENERATED` greedy tokens after ``last``, and the passes taken; ``propose`` gives the drafts."""
    tokens: list[int] = []
    passes = 0
    while len(tokens) < GENERATED:
        draft = list(propose(tokens))[: GENERATED - len(tokens) - 1]
        best = verifier.verify_best(slot, [last, *draft])[:, 0].tolist()
        passes += 1
        agreed = next((i for i, token in enumerate(draft) if token != best[i]), len(draft))
        verifier.commit(slot, range(agreed + 1))
        tokens += best[: agreed + 1]
        last = tokens[-1]
    return tokens, passes


def machine(run: Run) -> Section:
    """What it ran on."""
    about: Section = {
        "device": str(run.device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model": run.path or f"random weights, {run.shape} shape",
        "dtype": str(run.dtype).removeprefix("torch."),
    }
    if run.cuda:
        properties = torch.cuda.get_device_properties(run.device)
        about |= {
            "card": properties.name,
            "memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
        }
    return about


def ready(run: Run) -> Section:
    """Time until the first pass, and memory."""
    capabilities = run.verifier.capabilities
    return {
        "load_s": round(run.load_s, 3),
        "capture_s": round(run.capture_s, 3),
        "weight_bytes": capabilities.weight_bytes,
        "kv_bytes_per_token": capabilities.kv_bytes_per_token,
        "max_context": capabilities.max_context,
        "peak_bytes": torch.cuda.max_memory_allocated(run.device) if run.cuda else None,
    }


def passes(run: Run) -> Section:
    """t(m) in ms: captured, with and without the logits copied out; uncaptured; transformers' own forward."""
    return {"ms": {str(context): _passes_at(run, context) for context in run.contexts}}


def _passes_at(run: Run, context: int) -> Section:
    slot = slot_with(run.verifier, run.ids[:context])
    uncaptured = GraphsVerifier(run.model, max_context=context + 128, capture=False)
    beside = slot_with(uncaptured, run.ids[:context])
    plain = Plain(run.plain_model, run.ids[:context])
    table: Section = {}
    for count in QUERY_BUCKETS:
        nodes = run.ids[-count:]
        actions: Actions = {
            "best": partial(run.verifier.verify_best, slot, nodes),
            "logits": partial(run.verifier.verify, slot, nodes),
            "uncaptured": partial(uncaptured.verify_best, beside, nodes),
            "transformers": partial(plain.best_after, nodes),
        }
        table[str(count)] = interleaved(actions, run.device, run.repeats)
    run.verifier.close_slot(slot)
    return table


def prefill(run: Run) -> Section:
    """ms to evaluate a prompt from nothing: in chunks as a completion does; by transformers in one piece."""

    def ours(prompt: Sequence[int]) -> None:
        run.verifier.close_slot(slot_with(run.verifier, prompt))

    out: Section = {}
    for length in run.contexts:
        prompt = run.ids[:length]
        actions: Actions = {
            "graphs": partial(ours, prompt),
            "transformers": partial(Plain, run.plain_model, prompt),
        }
        out[str(length)] = interleaved(actions, run.device, max(3, run.repeats // 4))
    return {"ms": out}


def decode(run: Run) -> Section:
    """Tokens/s one at a time, beside what reading weights and cache once per token allows on this card."""
    speeds = bandwidth(run.device, 1 << 30 if run.cuda else 1 << 24)
    reads = bytes_read(run.model)
    out: Section = {"bandwidth": speeds, "weight_bytes_read": reads}
    for context in run.contexts:
        times = []
        for _ in range(3):
            slot = slot_with(run.verifier, run.ids[: context - 1])
            times.append(milliseconds(partial(greedy, run.verifier, slot, run.ids[context - 1]), run.device))
            run.verifier.close_slot(slot)
        ms = summary(times)["median"] / GENERATED
        used = reads + run.verifier.capabilities.kv_bytes_per_token * (context + GENERATED // 2)
        out[str(context)] = {
            "ms_per_token": ms,
            "tokens_per_s": 1e3 / ms,
            "bytes_per_s": used / ms * 1e3,
            "share_of_read_bandwidth": used / ms * 1e3 / speeds["read_bytes_per_s"],
        }
    return out


def forced_acceptance(run: Run) -> Section:
    """The most that drafts can gain: every drafted token is right, for several draft lengths."""
    context = run.contexts[0]
    slot = slot_with(run.verifier, run.ids[: context - 1])
    last = run.ids[context - 1]
    text, _ = greedy(run.verifier, slot, last)
    counts: dict[str, int] = {}

    def again(length: int) -> None:
        run.verifier.rollback(slot, context - 1)
        _, count = greedy(run.verifier, slot, last, lambda done: text[len(done) : len(done) + length])
        counts[str(length)] = count

    actions: Actions = {str(length): partial(again, length) for length in (0, 1, 3, 7, 15, 31, 63)}
    times = interleaved(actions, run.device, max(3, run.repeats // 4))
    plain = times["0"]["median"]
    return {
        length: {"ms": ms, "speed_up": plain / ms["median"], "tokens_per_pass": GENERATED / counts[length]}
        for length, ms in times.items()
    }


def one_shape(run: Run) -> Section:
    """With passes of one shape: do rows depend on what shares the pass, and do drafts change texts?"""
    context = run.contexts[0]
    verifier = GraphsVerifier(
        run.model, max_context=context + 4 * GENERATED, query_buckets=[SHARED_PASS], key_buckets=()
    )
    slot = slot_with(verifier, run.ids[:context])
    nodes = run.ids[context : context + SHARED_PASS]
    together = verifier.verify(slot, nodes)
    identical = same_token = 0
    for node, row in zip(nodes, together, strict=True):
        alone = verifier.verify(slot, [node])[0]
        identical += int(torch.equal(alone, row))
        same_token += int(alone.argmax() == row.argmax())
        verifier.commit(slot, [0])
    prompts = [run.ids[start : start + context] for start in range(0, run.texts * 16, 16)]
    return {
        "rows": SHARED_PASS,
        "rows_identical": identical,
        "rows_with_the_same_token": same_token,
        "texts": len(prompts),
        "texts_that_differ": sum(_drafts_change(verifier, prompt) for prompt in prompts),
        "texts_that_differ_in_free_shapes": sum(_drafts_change(run.verifier, prompt) for prompt in prompts),
    }


def _drafts_change(verifier: GraphsVerifier, prompt: Sequence[int]) -> bool:
    """Whether greedy text changes when drafts are forced, a third of whose tokens are wrong."""
    slot = slot_with(verifier, prompt[:-1])
    off, _ = greedy(verifier, slot, prompt[-1])
    vocab_size = verifier.capabilities.vocab_size

    def propose(done: list[int]) -> list[int]:
        coming = off[len(done) : len(done) + SHARED_PASS - 1]
        wrong = [(len(done) + i) % 3 == 2 for i in range(len(coming))]
        return [(token + w) % vocab_size for token, w in zip(coming, wrong, strict=True)]

    verifier.rollback(slot, len(prompt) - 1)
    on, _ = greedy(verifier, slot, prompt[-1], propose)
    verifier.close_slot(slot)
    return on != off


def precision(run: Run) -> Section:
    """The engine's logits against those of the same weights in float32."""
    start, count = QUERY_BUCKETS[-1], min(512, run.contexts[0])
    slot = slot_with(run.verifier, run.ids[:start])
    rows = []
    for begin in range(start, count, start):
        nodes = run.ids[begin : min(begin + start, count)]
        rows.append(run.verifier.verify(slot, nodes))
        run.verifier.commit(slot, range(len(nodes)))
    run.verifier.close_slot(slot)
    got = torch.cat(rows)
    reference = load(run.path, run.shape, run.device, torch.float32)
    reference.load_state_dict(run.model.state_dict())  # random weights differ by dtype, even with one seed
    with torch.inference_mode():
        ids = torch.tensor([run.ids[:count]], device=run.device)
        exact: Tensor = reference(input_ids=ids, use_cache=False).logits[0, start:].float().cpu()
    p = exact.log_softmax(-1)
    divergence = (p.exp() * (p - got.log_softmax(-1))).sum(-1)
    return {
        "positions": len(got),
        "argmax_equal": float((got.argmax(-1) == exact.argmax(-1)).double().mean()),
        "mean_kl": float(divergence.mean()),
    }


def attention(run: Run) -> Section:
    """The engine's split attention beside torch's own on the packed heads: ms of one layer."""
    config = run.model.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    random = partial(torch.randn, dtype=run.dtype, device=run.device)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    out: Section = {}
    for width in (256, 1024, 4096):
        key = random(groups, width, dim)
        for count in (1, 8, 64):
            query = random(groups, heads // groups * count, dim)
            mask = torch.ones(count, width, dtype=torch.bool, device=run.device)
            rows = mask.repeat(heads // groups, 1)
            actions: Actions = {
                "split": partial(graphs_attention.split, query, key, key, mask, dim**-0.5),
                "sdpa": partial(sdpa, query[None], key[None], key[None], attn_mask=rows),
            }
            out[f"{width} keys, {count} positions"] = interleaved(actions, run.device, run.repeats)
    return out


def quantised(run: Run) -> Section:
    """t(m) with weight-only int8 and int4 where torchao is installed: up to which pass size do they pay?"""
    kinds: tuple[Weights, ...] = ("int8", "int4")
    return {kind: _quantised(run, kind) for kind in kinds}


def _quantised(run: Run, kind: Weights) -> Section:
    model = load(run.path, run.shape, run.device, run.dtype)
    try:
        quantise(model, kind)
    except VerifierError as error:
        return {"skipped": str(error)}
    context = run.contexts[0]
    verifier = GraphsVerifier(model, max_context=context + 128, key_buckets=())
    slot = slot_with(verifier, run.ids[:context])
    actions: Actions = {str(m): partial(verifier.verify_best, slot, run.ids[-m:]) for m in QUERY_BUCKETS}
    return {"bytes_read": bytes_read(model), "ms": interleaved(actions, run.device, run.repeats)}
