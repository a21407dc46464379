"""Replays tasks: drafts are judged against the target text, passes are priced by a cost table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks.replay_tasks import MOST_TOKENS, Task
from speculation.costs import CostTable
from speculation.draft import Draft, Drafter, DraftRequest, Round

RESAMPLES = 2000


@dataclass(slots=True)
class Outcome:
    """What became of one task."""

    tokens: int
    forwards: int = 0
    cost: float = 0.0
    plain_cost: float = 0.0
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    rejected_depth: Counter[int] = field(default_factory=Counter)
    round_ms: list[float] = field(default_factory=list)


def replay(task: Task, drafter: Drafter, costs: CostTable, vocabulary: int) -> Outcome:
    """Decodes one task's target with drafts."""
    target = task.target
    outcome = Outcome(tokens=len(target), plain_cost=len(target) * costs(1))
    began = perf_counter()
    drafter.start(request_of(task, vocabulary))
    start_ms = (perf_counter() - began) * 1e3
    done = 0
    while done < len(target):
        began = perf_counter()
        draft = drafter.draft(max(MOST_TOKENS, len(target)) - done - 1)
        drafted = perf_counter()
        path = accepted_path(draft, target[done : len(target) - 1])
        committed = list(target[done : done + len(path) + 1])
        judged = perf_counter()
        drafter.observe(Round(draft, path, committed, 0.0, 1 + len(draft)))
        outcome.round_ms.append((perf_counter() - judged + drafted - began) * 1e3 + start_ms)
        start_ms = 0.0
        done += len(committed)
        _count(outcome, draft, path, costs)
    return outcome


def request_of(task: Task, vocabulary: int) -> DraftRequest:
    """What the drafter is told of a task."""
    return DraftRequest(
        prefix=task.prefix, suffix=task.suffix, document=task.name, root=task.workspace, vocab_size=vocabulary
    )


def accepted_path(draft: Draft, target: Sequence[int]) -> list[int]:
    """The drafted nodes that the target follows."""
    path: list[int] = []
    at = -1
    for token in target:
        found = next(
            (n for n in range(at + 1, len(draft)) if draft.tokens[n] == token and draft.parent_of(n) == at),
            None,
        )
        if found is None:
            break
        at = found
        path.append(at)
    return path


def replay_all(
    tasks: Sequence[Task],
    drafter_of: Callable[[Task], Drafter],
    costs: CostTable,
    vocabulary: int,
    label: str,
) -> list[Outcome]:
    """Every task in order, with a progress bar."""
    return [
        replay(task, drafter_of(task), costs, vocabulary)
        for task in track(tasks, label, console=Console(stderr=True))
    ]


def _count(outcome: Outcome, draft: Draft, path: Sequence[int], costs: CostTable) -> None:
    outcome.forwards += 1
    outcome.cost += costs(1 + len(draft))
    for node in range(len(draft)):
        outcome.drafted[draft.origin_of(node).source] += 1
    for node in path:
        outcome.accepted[draft.origin_of(node).source] += 1
    if len(path) < len(draft):
        outcome.rejected_depth[len(path)] += 1


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Σ above ÷ Σ below with a paired 95 % bootstrap interval over tasks."""
    a, b = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    if not len(a) or b.sum() == 0:
        return {"value": 0.0, "low": 0.0, "high": 0.0}
    picks = np.random.default_rng(0).integers(0, len(a), (RESAMPLES, len(a)))
    low, high = np.quantile(a[picks].sum(1) / b[picks].sum(1), [0.025, 0.975])
    return {
        name: round(float(x), 4) for name, x in (("value", a.sum() / b.sum()), ("low", low), ("high", high))
    }


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The figures of a run."""
    drafted = sum((o.drafted for o in outcomes), Counter())
    accepted = sum((o.accepted for o in outcomes), Counter())
    depths = sum((o.rejected_depth for o in outcomes), Counter())
    rounds = [ms for o in outcomes for ms in o.round_ms]
    return {
        "n": len(outcomes),
        "tokens_per_forward": ratio([o.tokens for o in outcomes], [o.forwards for o in outcomes]),
        "speedup": ratio([o.plain_cost for o in outcomes], [o.cost for o in outcomes]),
        "speedup_with_drafting": ratio(
            [o.plain_cost for o in outcomes], [o.cost + sum(o.round_ms) for o in outcomes]
        ),
        "acceptance_by_source": {
            source: {"drafted": n, "accepted": accepted[source], "rate": round(accepted[source] / n, 4)}
            for source, n in drafted.most_common()
        },
        "rejected_depth": {str(depth): depths[depth] for depth in sorted(depths)},
        "drafted": drafted.total(),
        "accepted": accepted.total(),
        "draft_ms": {
            "mean": round(float(np.mean(rounds)), 4) if rounds else 0.0,
            "median": round(float(np.median(rounds)), 4) if rounds else 0.0,
            "p95": round(float(np.quantile(rounds, 0.95)), 4) if rounds else 0.0,
        },
    }
