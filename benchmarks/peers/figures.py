"""From records to figures: each system's times and counts by task, and ratios between systems on the same tasks.

A system is a peer in one mode. Times of a completion count from the prompt's ids: to the first token (the prefill and
the pass that gives it), and from there to the last (`decode`). The product's stop rules are applied to every system's
own text: its decode then ends with the pass that brought the last token that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.peers.results import Record
from benchmarks.replay_run import ratio

STOPS = ("none", "product")
RUN_OF_PRODUCT = (
    "-product"  # ours in full is run again with the product's rules, because what it learns differs
)
OFF, FULL, LOOKUP = "ours/off", "ours/full", "ours/lookup"
TRANSFORMERS_LOOKUP = "transformers/lookup"


@dataclass(frozen=True, slots=True)
class Completion:
    """One system's completion of one task. Times in milliseconds."""

    prefill: (
        float  # until the first pass after the prompt could begin, or, where the prefill gives it, to token 1
    )
    ttft: float
    decode: float
    tokens: int
    forwards: int  # passes that committed these tokens
    first_line: bool | None
    similarity: float | None

    @property
    def total(self) -> float:
        """From the prompt's ids to the last token."""
        return self.prefill + self.decode


Table = dict[str, dict[str, Completion]]  # by system, by task


def table(records: Iterable[Record], stop: str) -> Table:
    """Every completion under a stop rule; tasks that some peer tokenises otherwise are left out."""
    found: Table = {}
    for record in records:
        if "tokenised_otherwise_by" in record:
            continue
        for peer, answer in record["results"].items():
            for mode, run in answer["modes"].items():
                name = mode.removesuffix(RUN_OF_PRODUCT)
                own_run = f"{name}{RUN_OF_PRODUCT}" in answer["modes"]
                if mode != name and stop != "product":
                    continue
                if mode == name and own_run and stop == "product":
                    continue
                prefill = run.get("prefill_ms", answer.get("prefill_ms", 0.0))
                found.setdefault(f"{peer}/{name}", {})[record["task"]] = completion(run, prefill, stop)
    return found


def completion(run: dict[str, Any], prefill_ms: float, stop: str) -> Completion:
    """A run cut where a stop rule ends it."""
    events, tokens = run["events"], len(run["ids"])
    if stop == "product" and "product_tokens" in run:
        tokens = run["product_tokens"]
    last = next(number for number, (_, count) in enumerate(events) if count >= tokens)
    return Completion(
        prefill=prefill_ms,
        ttft=prefill_ms + events[0][0],
        decode=events[last][0],
        tokens=tokens,
        forwards=run.get("forwards", last + 1),
        first_line=run.get("first_line"),
        similarity=run.get("similarity"),
    )


def paired(
    above: dict[str, Completion], below: dict[str, Completion], value: Callable[[Completion], float]
) -> dict[str, Any] | None:
    """Σ above ÷ Σ below over the tasks that both have, with its interval; None where there are none."""
    tasks = sorted(above.keys() & below.keys())
    if not tasks:
        return None
    found: dict[str, Any] = ratio([value(above[t]) for t in tasks], [value(below[t]) for t in tasks])
    return {**found, "n": len(tasks)}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {f"p{q}": round(float(np.quantile(values, q / 100)), 1) for q in (50, 95)}


def summary(systems: Table, records: Sequence[Record]) -> dict[str, Any]:
    """The figures of each system."""
    peaks = peak_bytes(records)
    figures = {}
    for name, by_task in sorted(systems.items()):
        rows = list(by_task.values())
        figures[name] = {
            "n": len(rows),
            "tokens_per_forward": ratio([r.tokens for r in rows], [r.forwards for r in rows]),
            "ms_per_token": ratio([r.decode for r in rows], [r.tokens for r in rows]),
            "ttft_ms": quantiles([r.ttft for r in rows]),
            "decode_ms": quantiles([r.decode for r in rows]),
            "total_ms": quantiles([r.total for r in rows]),
            "peak_bytes": peaks.get(name.partition("/")[0], 0),
            "first_line": share([r.first_line for r in rows]),
            "similarity": share([r.similarity for r in rows]),
        }
    return figures


def share(values: Iterable[float | bool | None]) -> float | None:
    """The mean of what is known."""
    known = [float(value) for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def peak_bytes(records: Iterable[Record]) -> dict[str, int]:
    """The largest resident size of each peer's process."""
    peaks: dict[str, int] = {}
    for record in records:
        for peer, answer in record["results"].items():
            peaks[peer] = max(peaks.get(peer, 0), answer.get("peak_bytes", 0))
    return peaks


def differences(records: Iterable[Record]) -> dict[str, int]:
    """How often a text of ours with drafts was not the one without, to the token; under the product's stop rules
    the text that counts."""
    compared = different = 0
    for record in records:
        modes = record["results"].get("ours", {}).get("modes", {})
        off = modes.get("off")
        if off is None or "product_tokens" not in off:
            continue  # a given text: nothing is the model's own
        for mode, run in modes.items():
            if mode == "off":
                continue
            count = off["product_tokens"] if mode.endswith(RUN_OF_PRODUCT) else len(off["ids"])
            compared += 1
            different += run["ids"] != off["ids"][:count]
    return {"compared": compared, "different": different}


def best_of(systems: Table, peer: str) -> str | None:
    """The mode of a peer with the lowest total over the tasks that all its modes have."""
    modes = [name for name in systems if name.startswith(f"{peer}/")]
    if not modes:
        return None
    tasks = set.intersection(*(set(systems[name]) for name in modes))
    return min(sorted(modes), key=lambda name: sum(systems[name][task].total for task in tasks))


def workload_figures(records: Sequence[Record]) -> dict[str, Any]:
    """Everything about one workload of completions."""
    figures: dict[str, Any] = {
        "tasks": len(records),
        "tokenised_otherwise": sum("tokenised_otherwise_by" in r for r in records),
        "prompt_tokens": quantiles([r["prompt_tokens"] for r in records]) if records else {},
        "text_on_off": differences(records),
    }
    for stop in STOPS:
        systems = table(records, stop)
        figures[stop] = {
            "systems": summary(systems, records),
            "ratios": ratios(systems),
            "best": {peer: best_of(systems, peer) for peer in ("llama", "transformers")},
        }
    return figures


def ratios(systems: Table) -> dict[str, Any]:
    """Every system against ours in full, on the tasks that both have: above 1 is in our favour."""
    full = systems.get(FULL)
    if full is None:
        return {}
    values: dict[str, Callable[[Completion], float]] = {
        "decode": lambda row: row.decode,
        "total": lambda row: row.total,
        "ttft": lambda row: row.ttft,
        "forwards": lambda row: row.forwards / row.tokens,
    }
    return {
        name: {what: paired(by_task, full, value) for what, value in values.items()}
        for name, by_task in sorted(systems.items())
        if name != FULL
    }
