"""The typing workload: the same changes typed with each peer, one peer at a time, in turns."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from rich.progress import Progress

from benchmarks.peers import plan
from benchmarks.peers.figures import differences, peak_bytes, quantiles, share
from benchmarks.peers.results import Record, Results
from benchmarks.peers.run import Part, Runner, rotated
from benchmarks.peers.tasks import PeerTask, Workload, Workloads
from benchmarks.peers.typing_llama import LlamaTyping
from benchmarks.peers.typing_ours import OurTyping
from benchmarks.peers.typing_session import TypingPeer, text_before, typed
from benchmarks.peers.typing_tasks import Change, changes, files_of
from benchmarks.replay_model import prompt_ids
from benchmarks.replay_run import RESAMPLES
from benchmarks.replay_tasks import MOST_TOKENS, Task

KEYSTROKES = 40  # of a change
STATES_AFTER = (13, 31)  # keystrokes after which texts are compared with speculation on and off
Rows = Sequence[Mapping[str, Any]]


def run(
    peers: plan.Peers,
    makers: Workloads,
    results: Results,
    runner: Runner,
    options: argparse.Namespace,
    bars: Progress,
) -> dict[str, Any]:
    """Types what is not known yet and gives the figures; then compares texts on and off in the middle of lines."""
    hunks, workspaces = makers.hunks()
    wanted = changes(hunks, min(options.limit or plan.TYPING_CHANGES, plan.TYPING_CHANGES))
    names = [name for name in ("ours", "llama") if name in peers.started]
    bar = bars.add_task("typing", total=len(wanted))
    records = []
    with ExitStack() as stack:
        made: dict[str, TypingPeer] = {}
        for number, change in enumerate(wanted):
            record = results.get("typing", change.name, names)
            if record is None:
                if not made:
                    made["ours"] = stack.enter_context(
                        OurTyping(files_of(workspaces, wanted), options.model, options.threads)
                    )
                    if "llama" in names:
                        worker = peers.started["llama"]
                        made["llama"] = LlamaTyping(worker, makers.tokenizer, makers.markers)
                order = rotated(names, number)
                rows = {name: typed(change, made[name], KEYSTROKES) for name in order}
                found = {name: {"rows": rows[name], "peak_bytes": made[name].peak_bytes()} for name in order}
                record = {"workload": "typing", "task": change.name, "order": order, "results": found}
                results.add(record)
            records.append(record)
            bars.update(bar, completed=number + 1)
    tasks = [task for change in wanted for task in states(change, makers)]
    parts = {"ours": Part(("off", "full"), len(tasks))}
    compared = runner.run("typing-states", Workload(tasks, workspaces), parts)
    return {**figures(records), "text_on_off": differences(compared)}


def states(change: Change, makers: Workloads) -> list[PeerTask]:
    """States in the middle of the typing as completions of a given prompt: what is not at the start of a line."""
    typist, made = change.typist(), []
    encode, markers = makers.tokenizer.encode, makers.markers
    for pressed in range(1, max(STATES_AFTER) + 1):
        if not typist.rest:
            break
        typist.press()
        if pressed in STATES_AFTER:
            place = typist.place
            before, after = text_before(place), place.text()[place.offset() :]
            about = Task(
                f"{change.name} after {pressed}", change.workspace, encode(before), encode(after), (), ()
            )
            made.append(
                PeerTask(
                    about.name,
                    prompt_ids(about, markers),
                    MOST_TOKENS,
                    workspace=about.workspace,
                    prefix=about.prefix,
                    suffix=about.suffix,
                    replaced=encode(change.replaced),
                )
            )
    return made


def figures(records: Sequence[Record]) -> dict[str, Any]:
    """What the keystrokes say about each peer, and about both at the states that they share."""
    by_change = {
        name: [r["results"][name]["rows"] for r in records if name in r["results"]]
        for name in ("ours", "llama")
    }
    made: dict[str, Any] = {
        name: peer_figures(changes_) for name, changes_ in by_change.items() if any(changes_)
    }
    for name, peak in peak_bytes(records).items():
        if name in made:
            made[name]["peak_bytes"] = peak
    made["changes"] = len(records)
    pairs = [
        shared_others(r["results"]["ours"]["rows"], r["results"]["llama"]["rows"])
        for r in records
        if {"ours", "llama"} <= r["results"].keys()
    ]
    made["others_ratio"] = ratio_of_medians(pairs)
    made["waits"] = {
        name: sorted(round(row["ms"], 1) for rows in changes_ for row in rows if is_other(row))
        for name, changes_ in by_change.items()
        if any(changes_)
    }
    return made


def peer_figures(by_change: Sequence[Rows]) -> dict[str, Any]:
    """One peer's figures."""
    rows = [row for rows in by_change for row in rows]
    follows = [[row["ms"] for row in rows if row["follows"] and row["shown"]] for rows in by_change]
    others = [row["ms"] for row in rows if is_other(row)]
    saved = sum(max(0, row["taken"] - 1) for row in rows)  # accepting is a key, too
    return {
        "keystrokes": len(rows),
        "follows": sum(len(times) for times in follows),
        "follows_ms": median_with_interval(follows),
        "others": len(others),
        "others_ms": quantiles(others) if others else None,
        "shown_share": share([row["shown"] for row in rows]),
        "right_share": share([row["right_in_time"] for row in rows]),
        "saved_characters": saved,
        "saved_share": round(saved / max(1, saved + len(rows)), 4),
        "cpu_s": round(float(np.mean([row["cpu_s"] or 0.0 for row in rows])), 4),
        "evaluated": round(float(np.mean([row["evaluated"] for row in rows])), 1),
    }


def is_other(row: Mapping[str, Any]) -> bool:
    """Whether a keystroke brought ghost text that the one before had not shown."""
    return bool(row["shown"]) and not row["follows"]


def shared_others(ours: Rows, theirs: Rows) -> list[tuple[float, float]]:
    """The times of both at the states where both had to think of something new."""
    known = {row["state"]: row["ms"] for row in theirs if is_other(row)}
    return [(row["ms"], known[row["state"]]) for row in ours if is_other(row) and row["state"] in known]


def ratio_of_medians(by_change: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any] | None:
    """Median of the first ÷ median of the second, with a 95 % bootstrap interval over changes."""

    def value(groups: Sequence[Sequence[tuple[float, float]]]) -> float:
        table = np.asarray([pair for group in groups for pair in group], dtype=float)
        return float(np.median(table[:, 0]) / np.median(table[:, 1]))

    return _with_interval([group for group in by_change if group], value)


def median_with_interval(by_change: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """The median of all, with a 95 % bootstrap interval over changes; None where there is nothing."""
    return _with_interval(
        [group for group in by_change if group],
        lambda groups: float(np.median([x for group in groups for x in group])),
    )


def _with_interval(groups: Sequence[Any], value: Callable[[Sequence[Any]], float]) -> dict[str, Any] | None:
    if not groups:
        return None
    picks = np.random.default_rng(0).integers(0, len(groups), (RESAMPLES, len(groups)))
    low, high = np.quantile([value([groups[i] for i in pick]) for pick in picks], [0.025, 0.975])
    found = {"value": value(groups), "low": float(low), "high": float(high)}
    return {name: round(x, 4) for name, x in found.items()} | {"n": sum(len(group) for group in groups)}
