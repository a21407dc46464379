"""How many tokens a forward pass commits, and what that is worth: drafts replayed against known text.

    python -m benchmarks.replay --workload edits|fresh|noise --stream truth|model|forced
        --cost flat|measured|FILE --stop none|product
        [--packages '[npm:]NAME==OLD:NEW,…' | --language NAME] [--limit N] [--json FILE]

``truth`` judges drafts against what was written and needs no model; ``model`` against the model's own greedy output
on a fixed sample of 200 hunks; ``forced`` makes real passes over the text and times them. The acceptance statistics
are those of one session: they go on learning from task to task.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import replay_model
from benchmarks.languages import language_tasks, languages
from benchmarks.packages import Release
from benchmarks.replay_baselines import TransformersPromptLookup
from benchmarks.replay_forced import Pass, forced_summary
from benchmarks.replay_hunks import NARROW, RELEASES, WIDE
from benchmarks.replay_run import Outcome, ratio, replay_all, summary
from benchmarks.replay_sources import SOURCES, ReplayedStores
from benchmarks.replay_tasks import Task, Workload, edits, fresh, noise, sample, with_targets
from cache.models import ensure
from cache.paths import cache_dir
from speculation.completion import Completer
from speculation.costs import CostTable, costs_of, load
from speculation.draft import Drafter
from speculation.evidence import Evidence
from speculation.families import markers_for
from speculation.policy import CHAIN_NODES, GainPolicy
from speculation.stop import StopRules, Surroundings
from speculation.tokenizer import Tokenizer

MODEL = "qwen2.5-coder-0.5b-q4"
TREE_NODES = 63  # with the pending token, a pass of 64
TREE_WIDTH = 8


def main() -> None:
    """Runs the replay and prints or writes its figures."""
    options = arguments()
    tokenizer = tokenizer_of(options.tokenizer, options.model)
    completer = None
    if options.stream == "forced" or options.cost == "measured" or options.generate:
        completer = replay_model.load(options.model, options.engine)
    workload = workload_of(options, tokenizer, completer)
    if options.stop == "product":
        workload = stopped(workload, tokenizer, options.model)
    if not workload.tasks:
        raise SystemExit("nothing to replay: no hunk found, or no text of the model known (see --generate)")
    costs = cost_table(options.cost, completer)
    figures: dict[str, Any] = {
        "workload": options.workload,
        "stream": options.stream,
        "cost": options.cost,
        "stop": options.stop,
        "packages": packages_of(options),
        "trees": options.trees,
    }
    run = Run(workload, tokenizer, costs, options.trees)
    if options.stream == "forced":
        assert completer is not None
        figures |= forced_summary(workload.tasks, run.drafters(), Pass(completer.verifier))
    else:
        figures |= run.figures(ablate=not options.quick)
    text = json.dumps(figures, indent=1)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")


class Run:
    """One workload under one cost table."""

    def __init__(self, workload: Workload, tokenizer: Tokenizer, costs: CostTable, trees: bool) -> None:
        self.workload = workload
        self.vocabulary = tokenizer.vocab_size
        self.costs = costs
        self.width, self.nodes = (TREE_WIDTH, TREE_NODES) if trees else (1, CHAIN_NODES)
        self.stores = ReplayedStores(workload, tokenizer)

    def drafters(self, without: Sequence[str] = (), history: Path | None = None) -> Callable[[Task], Drafter]:
        """The drafter of each task's workspace; they share what they learn, as in one session."""
        evidence = Evidence()
        costs = CostTable(self.costs.measured)
        policy = GainPolicy(costs, width=self.width, most_nodes=self.nodes)
        if history is not None:
            return self.stores.with_history(history, policy, evidence)
        made = {
            key: self.stores.drafter(key, policy, evidence, without)
            for key in {task.workspace for task in self.workload.tasks}
        }
        return lambda task: made[task.workspace]

    def outcomes(self, drafter_of: Callable[[Task], Drafter], label: str) -> list[Outcome]:
        """Replays every task."""
        return replay_all(self.workload.tasks, drafter_of, self.costs, self.vocabulary, label)

    def figures(self, ablate: bool) -> dict[str, Any]:
        """The figures, the baselines', and those with each source switched off in turn."""
        ours = self.outcomes(self.drafters(), "all sources")
        lookup = TransformersPromptLookup()
        peer = self.outcomes(lambda _: lookup, "transformers' prompt lookup")
        result: dict[str, Any] = summary(ours)
        result["forwards_against_transformers_prompt_lookup"] = ratio(
            [o.forwards for o in peer], [o.forwards for o in ours]
        )
        one = {"value": 1.0, "low": 1.0, "high": 1.0}
        result["baselines"] = {
            "transformers_prompt_lookup": brief(peer),
            "none": {"tokens_per_forward": one, "speedup": one},
        }
        if self.workload.sequential:
            with TemporaryDirectory() as folder:
                drafters = self.drafters(history=Path(folder))
                result["with_history"] = summary(self.outcomes(drafters, "with history"))
        if ablate:
            names = [name for name in SOURCES if name in result["acceptance_by_source"]]
            result["without_source"] = {
                name: brief(self.outcomes(self.drafters((name,)), f"without {name}")) for name in names
            }
        return result


def brief(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The two ratios of a run."""
    figures = summary(outcomes)
    return {name: figures[name] for name in ("tokens_per_forward", "speedup")}


def workload_of(options: argparse.Namespace, tokenizer: Tokenizer, completer: Completer | None) -> Workload:
    """The tasks asked for, with their targets."""
    if options.workload == "fresh":
        workload = fresh(tokenizer.encode)
    elif options.workload == "noise":
        workload = noise(tokenizer.vocab_size)
    else:
        window = NARROW if options.stream == "model" else WIDE
        if options.language:
            workload = language_tasks(options.language, tokenizer.encode, window)
        else:
            releases = [Release.parse(text) for text in options.packages.split(",")]
            workload = edits(tokenizer.encode, releases, window)
    if options.stream == "model":
        workload = replace(workload, tasks=sample(workload.tasks)[: options.limit])
        model = ensure(options.model)
        engine = completer.name if completer is not None else options.engine
        stream = replay_model.ModelStream(engine, model.hash)
        maker = completer if options.generate else None
        markers = markers_for(tokenizer, model.name)
        return with_targets(workload, replay_model.targets(workload.tasks, markers, stream, maker))
    if options.limit is not None:
        workload = replace(workload, tasks=sample(workload.tasks, options.limit))
    return workload


def packages_of(options: argparse.Namespace) -> str:
    """The upgrades that are replayed, as they would be given."""
    if options.workload != "edits":
        return ""
    if options.language:
        return ",".join(map(str, languages()[options.language].releases))
    return str(options.packages)


def stopped(workload: Workload, tokenizer: Tokenizer, model: str) -> Workload:
    """Targets cut where the product would stop: end tokens, the block's end, the suffix repeated."""
    ends = markers_for(tokenizer, model).end_ids
    tasks = []
    for task in workload.tasks:
        rules = StopRules("block", ends, len(task.target), Surroundings("", task.next_line))
        for token in task.target:
            if not rules.commit(token, tokenizer.bytes_of(token)):
                break
        tasks.append(replace(task, target=task.target[: rules.committed]))
    return replace(workload, tasks=tasks)


def cost_table(cost: str, completer: Completer | None) -> CostTable:
    """What passes cost: nothing more for more positions, what this engine takes here, or a file's figures."""
    if cost == "flat":
        return CostTable.flat()
    if cost == "measured":
        assert completer is not None
        return costs_of(completer.verifier, cache_dir() / "costs")
    table = load(Path(cost))
    if table is None:
        raise SystemExit(f'{cost} is no cost table: {{"positions": milliseconds, …}} is wanted')
    return table


def tokenizer_of(path: str | None, model: str = MODEL) -> Tokenizer:
    """The tokenizer of a file, or of a model, its tables built: they are no part of a round's time."""
    tokenizer = Tokenizer.from_file(path or ensure(model).tokenizer)
    tokenizer.prepare()
    return tokenizer


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workload", choices=("edits", "fresh", "noise"), default="edits")
    parser.add_argument("--stream", choices=("truth", "model", "forced"), default="truth")
    parser.add_argument(
        "--cost", default="flat", help="flat, measured, or a JSON file of milliseconds by positions"
    )
    parser.add_argument("--stop", choices=("none", "product"), default="none")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--packages",
        default=",".join(map(str, RELEASES)),
        help="[INDEX:]NAME==OLD:NEW,…, of pypi (the default) or npm; sources of any language are read",
    )
    what.add_argument("--language", choices=languages(), help="the upgrades that stand for this language")
    parser.add_argument("--limit", type=int, help="replay a random sample of so many tasks")
    parser.add_argument(
        "--trees", action="store_true", help=f"drafts are trees of at most {TREE_NODES} nodes"
    )
    parser.add_argument("--quick", action="store_true", help="do not switch each source off in turn")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--engine", default="eager", help="engine of the model stream and of measured costs")
    parser.add_argument(
        "--generate", action="store_true", help="make the model's text where it is not known yet"
    )
    parser.add_argument("--tokenizer", help="a tokenizer.json; the model's by default")
    parser.add_argument("--json", help="write the figures to this file, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
