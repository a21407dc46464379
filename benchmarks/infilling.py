"""How good what comes out is: holes in solved problems, filled by each engine and run against the problem's tests.

``python -m benchmarks.infilling [--limit N] [--json FILE]``: holes of one line and of several, cut from the HumanEval
solutions by a fixed seed. Filled by ours with speculation and without (the same text is wanted, so the same rate), by
ours in float32 (what int8 costs; on fewer holes, it is slow), and by llama.cpp on the GGUF file that the model was
made from, each in a process of its own, asked in turn. All get the same prompt ids, decode greedily and stop by one
rule that belongs to none of them: the end token, as many lines as the hole had, or 48 tokens a line. So the product's
stop rules and clean-up do not enter. Two controls tell what the tests can see: the solution's own lines, and nothing.

A run that was stopped goes on where it was. llama.cpp comes with the extra ``bench``, or in another interpreter
(``--llama-python``). Ends with 1 when a text with speculation differs from the one without, or is not there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.infilling_figures import differences, rates, work
from benchmarks.infilling_holes import Hole, Kind, holes
from benchmarks.infilling_run import ROOT, Answer, Kept, fill
from benchmarks.infilling_sandbox import run
from benchmarks.packages import benchmark_cache
from benchmarks.replay_tasks import human_eval

MODEL = "qwen2.5-coder-0.5b-q4"
TOKENS_A_LINE = 48
OURS, PLAIN, EXACT, LLAMA = "int8", "int8 without speculation", "float32", "llama.cpp"
PEERS: dict[str, dict[str, Any]] = {
    OURS: {"engine": "int8", "dtype": "auto", "speculation": True},
    PLAIN: {"engine": "int8", "dtype": "auto", "speculation": False},
    EXACT: {"engine": "eager", "dtype": "float32", "speculation": False},
    LLAMA: {"engine": "llama"},
}
PAIRS = ((OURS, PLAIN), (OURS, EXACT), (OURS, LLAMA))

Report = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs everything and prints the figures."""
    options = arguments(argv)
    most = options.limit if options.limit is not None else options.single + options.multi
    chosen = holes(human_eval(), min(options.single, most), min(options.multi, most))
    every = together([*chosen["single"], *chosen["multi"]])
    few = {hole.name for kind in chosen.values() for hole in kind[: options.float32]}
    ends, requests = prompts(every, options.model)
    settings = {name: worker_of(name, ends, options) for name in options.peers.split(",")}
    kept = Kept(benchmark_cache() / f"infilling-{key(settings, requests)}.jsonl")
    asked = [
        (h, n) for at, h in enumerate(every) for n in turned(settings, at) if n != EXACT or h.name in few
    ]
    about = fill(asked, requests, settings, kept)
    report: Report = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"processor": platform.processor() or platform.machine(), "threads": options.threads},
        "model": options.model,
        "versions": about,
        "holes": {kind: len(found) for kind, found in chosen.items()},
        **figures(chosen, {name: kept.of(name, every) for name in about}),
    }
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    kept.forget()
    compared = report["texts_compared_with_speculation"]
    missing = {OURS, PLAIN} <= settings.keys() and compared < len(every)
    return int(missing or report["texts_different_with_speculation"] > 0)


def together(found: Iterable[Hole]) -> list[Hole]:
    """Holes of one problem one after the other: what their prompts share is evaluated once, by every engine."""
    by_problem: dict[str, list[Hole]] = {}
    for hole in found:
        by_problem.setdefault(hole.problem, []).append(hole)
    return [hole for group in by_problem.values() for hole in group]


def turned(names: Iterable[str], by: int) -> list[str]:
    """Who is asked in which order: another one first each time."""
    ordered = list(names)
    by %= len(ordered)
    return ordered[by:] + ordered[:by]


def prompts(every: Iterable[Hole], model: str) -> tuple[list[int], dict[str, dict[str, Any]]]:
    """The model's end tokens, and what each hole's request is; the prompt is the product's own."""
    from cache.models import resolve
    from speculation.completion import PROMPT_TOKENS
    from speculation.families import markers_for
    from speculation.prompt import build_prompt
    from speculation.request import CompletionRequest
    from speculation.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_file(resolve(model).tokenizer)
    markers = markers_for(tokenizer, model)
    requests = {
        hole.name: {
            "above": hole.above,
            "below": hole.below,
            "lines": hole.lines,
            "max_tokens": TOKENS_A_LINE * hole.lines,
            "prompt": build_prompt(
                CompletionRequest(hole.above + hole.below, len(hole.above)), tokenizer, markers, PROMPT_TOKENS
            ).tokens,
        }
        for hole in every
    }
    return sorted(markers.end_ids), requests


def worker_of(name: str, ends: list[int], options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """A peer's interpreter, and what its worker is told when it starts."""
    told = {"model": options.model, "gguf": str(options.gguf), "threads": options.threads, "ends": ends}
    return options.llama_python if name == LLAMA else sys.executable, {**PEERS[name], **told}


def key(settings: object, requests: object) -> str:
    """Names a run: what is asked of whom, and the code that answers."""
    digest = hashlib.sha256(json.dumps([settings, requests], sort_keys=True).encode())
    for folder in ("speculation", "cache", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def figures(chosen: dict[Kind, list[Hole]], answers: dict[str, dict[str, Answer]]) -> Report:
    """Rates by kind and together, what they differ by, and whether speculation changed a text."""
    every = [hole for kind in chosen.values() for hole in kind]
    groups: dict[str, list[Hole]] = {"single": chosen["single"], "multi": chosen["multi"], "all": every}
    passes = {
        name: {hole: answer["verdict"] == "passed" for hole, answer in found.items()}
        for name, found in answers.items()
    }
    controls = {"the solution": lambda hole: hole.cut, "nothing": lambda hole: ""}
    for name, text_of in controls.items():
        passes[name] = {
            hole.name: run(hole.program(text_of(hole))) == "passed"
            for hole in track(every, f"control: {name}", console=Console(stderr=True))
        }
    ours, plain = answers.get(OURS, {}), answers.get(PLAIN, {})
    both = ours.keys() & plain.keys()
    return {
        "pass_rate": rates(passes, groups),
        "difference": differences(passes, groups, PAIRS),
        "as_written": {
            name: sum(h.name in found and found[h.name]["text"].strip() == h.cut.strip() for h in every)
            for name, found in answers.items()
        },
        "work": {name: work(found) for name, found in answers.items()},
        "texts_compared_with_speculation": len(both),
        "texts_different_with_speculation": sum(ours[hole]["text"] != plain[hole]["text"] for hole in both),
    }


def show(report: Report) -> None:
    """Prints the figures, a line each."""
    for name, by_kind in report["pass_rate"].items():
        for kind, found in by_kind.items():
            interval = f"{found['low']:.1%} to {found['high']:.1%}"
            print(
                f"{name:<26}{kind:<8}{found['passed']:>4} of {found['n']:<4}{found['value']:>7.1%}  ({interval})"
            )
    for pair, by_kind in report["difference"].items():
        found = by_kind["all"]
        split = f"{found['only_first']} : {found['only_second']}"
        interval = f"{found['low']:+.1%} to {found['high']:+.1%}"
        print(f"{pair}: {found['value']:+.1%} ({interval}), {split} of {found['n']}, p = {found['p']}")
    compared = report["texts_compared_with_speculation"]
    print(f"texts that differ with speculation: {report['texts_different_with_speculation']} of {compared}")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.infilling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--single", type=int, default=100, help="holes of one line")
    parser.add_argument("--multi", type=int, default=60, help="holes of several lines")
    parser.add_argument("--float32", type=int, default=30, help="holes of each kind that float32 fills")
    parser.add_argument("--limit", type=int, help="so many holes of each kind at most")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"comma separated, of {', '.join(PEERS)}")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument(
        "--gguf", type=Path, help="what llama.cpp reads (default: what the model was made from)"
    )
    parser.add_argument(
        "--llama-python", default=sys.executable, help="an interpreter that has llama-cpp-python"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON too")
    options = parser.parse_args(argv)
    if unknown := set(options.peers.split(",")) - PEERS.keys():
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}")
    if options.gguf is None:
        from cache.paths import models_dir

        options.gguf = next(iter(sorted((models_dir() / options.model).glob("*.gguf"))), None)
    return options


if __name__ == "__main__":
    sys.exit(main())
