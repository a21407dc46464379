"""A session in a real Neovim with the real server and model, and what `stats` makes of the log that it leaves.

`python -m benchmarks.editor_session [--keystrokes N] [--keep DIR]` types a part of a file back into it as a person
does: keys with pauses, Enter, slips mended by backspace, answers accepted whole or by the word where they are what
was going to be typed. Then it checks that what `spec-complete stats` says adds up, and prints it. Needs the editors
(`make editors-neovim`) and the default model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lsp_server.telemetry import STAGES, unattributed_ms
from tests.e2e.neovim.conftest import EDITORS, Neovim, wait_for

REPOSITORY = Path(__file__).parents[1]
COMMAND = str(Path(sys.executable).with_name("spec-complete"))
KEY_S = (0.09, 0.24)  # between keys
LOOK_S = 0.9  # how long someone looks at what is offered, now and then
LOOK_EVERY = 9  # keys
SLIP_EVERY = 23
ACCEPT_SHARE = 0.5  # of the answers that are what was going to be typed
LOADED_S = 120.0
FIRST_ANSWER_S = 60.0  # someone who opens a file looks at it first: meanwhile the prompt is read
LAST_ANSWER_S = 3.0
UNBALANCED_SHARE = 0.02  # a request may be held up between two clocks on a busy machine
IDLE_EXIT_MINUTES = 0.1  # nothing is left behind


def main() -> int:
    """Types, and reports; 1 where something does not add up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keystrokes", type=int, default=200)
    parser.add_argument("--file", type=Path, default=REPOSITORY / "lsp_server/documents.py")
    parser.add_argument("--neovim", default="0.12", choices=("0.12", "0.11"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="", metavar="NAME", help="default: the one for this device")
    parser.add_argument("--pace", type=float, default=1.0, help="factor on all pauses, for slow machines")
    parser.add_argument("--off-share", type=float, default=0.0, help="completions made without drafts")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where log, JSON and page are left")
    arguments = parser.parse_args()
    if not (EDITORS / f"nvim-{arguments.neovim}/bin/nvim").exists():
        print(f"no Neovim in {EDITORS}: make editors-neovim", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="session-") as folder:
        place = Path(folder)
        keys, log = session(
            place,
            arguments.file,
            arguments.keystrokes,
            arguments.neovim,
            arguments.seed,
            arguments.pace,
            {
                "SPEC_COMPLETE_SPECULATION_OFF_SHARE": str(arguments.off_share),
                "SPEC_COMPLETE_MODEL": arguments.model,
            },
        )
        print(
            "keystrokes:",
            ", ".join(f"{n} {key}" for key, n in keys.most_common()),
            f"({keys.total()} in all)",
        )
        faults = report(log, place / "report.html")
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            for made in (log, place / "report.html"):
                shutil.copy(made, arguments.keep)
    for fault in faults:
        print(f"does not add up: {fault}", file=sys.stderr)
    return 1 if faults else 0


def session(
    place: Path,
    file: Path,
    keystrokes: int,
    version: str = "0.12",
    seed: int = 0,
    pace: float = 1.0,
    environment: Mapping[str, str] | None = None,
) -> tuple[Counter[str], Path]:
    """Types into a copy of ``file`` in ``place``; the keys by kind, and the latency log."""
    root = place / "project"
    shutil.copytree(file.parent, root, ignore=shutil.ignore_patterns("__pycache__"))
    before, target, after = cut(file.read_text(encoding="utf-8"), 6 * keystrokes)
    document = root / file.name
    document.write_text(before + after, encoding="utf-8")
    (root / ".git").mkdir()  # what the plugin takes for a root
    running = {
        "XDG_RUNTIME_DIR": str(place / "run"),
        "XDG_STATE_HOME": str(place / "state"),
        "SPEC_COMPLETE_IDLE_EXIT_MINUTES": str(IDLE_EXIT_MINUTES),
        **(environment or {}),
    }
    neovim = Neovim(version, place / "home", {"cmd": [COMMAND, "serve"]}, None, running)
    try:
        neovim.open(document)
        wait_for(lambda: _status(neovim) == "ready", LOADED_S, "the model")
        neovim.nvim.command("set indentkeys=")  # lines are not indented again while they are typed
        neovim.nvim.current.window.cursor = (before.count("\n"), 0)
        neovim.keys("A")
        keys = Counter(
            _type(neovim, before.removesuffix("\n"), "\n" + target, keystrokes, pace, random.Random(seed))
        )
        time.sleep(LAST_ANSWER_S)
    finally:
        neovim.close()
    log = place / "state/spec-complete/log/telemetry.jsonl"
    wait_for(
        lambda: not any((place / "run").rglob("*.sock")), 60 * IDLE_EXIT_MINUTES + 30, "the server to end"
    )
    return keys, log


def cut(text: str, length: int) -> tuple[str, str, str]:
    """What is before, in and behind the part to be typed: whole lines from a function in the middle on."""
    lines = text.splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if re.match(r" *def ", line) and n >= len(lines) // 3]
    first = starts[0] + 1
    last, size = first, 0
    while last < len(lines) and size < length:
        size += len(lines[last])
        last += 1
    return "".join(lines[:first]), "".join(lines[first:last]), "".join(lines[last:])


def _status(neovim: Neovim) -> str:
    return str(neovim.lua("return require('spec-complete.status').last").get("kind", ""))


def _type(
    neovim: Neovim, before: str, target: str, keystrokes: int, pace: float, chosen: random.Random
) -> Iterator[str]:
    """Presses ``keystrokes`` keys; the kind of each."""
    wanted = before + target
    for number in range(1, keystrokes + 1):
        there = _before_cursor(neovim)
        if not wanted.startswith(there):
            key, kind = "<BS>", "backspace"
        elif len(there) >= len(wanted):
            return
        elif number % SLIP_EVERY == 0:
            key, kind = "q", "slip"
        else:
            key, kind = _next_key(wanted[len(there) :], neovim.ghost(), chosen)
        neovim.keys(key)
        yield kind
        if number == 1:
            _look_for_answer(neovim)
        else:
            time.sleep(pace * (LOOK_S if number % LOOK_EVERY == 0 else chosen.uniform(*KEY_S)))


def _look_for_answer(neovim: Neovim) -> None:
    end = time.monotonic() + FIRST_ANSWER_S
    while not neovim.ghost() and time.monotonic() < end:
        time.sleep(0.1)


def _next_key(rest: str, ghost: str, chosen: random.Random) -> tuple[str, str]:
    if ghost and chosen.random() < ACCEPT_SHARE:
        word = re.match(r"\s*(\w+|[^\w\s]+)", ghost)
        if rest.startswith(ghost):
            return "<Tab>", "accept"
        if word and rest.startswith(word[0]):
            return "<M-w>", "accept word"
    if rest[0] == "\n":
        return "<CR>", "enter"
    return {"<": "<lt>"}.get(rest[0], rest[0]), "character"


def _before_cursor(neovim: Neovim) -> str:
    row, column = neovim.cursor()
    lines = neovim.nvim.current.buffer[:row]
    return "\n".join([*lines[:-1], lines[-1].encode()[:column].decode()])


def report(log: Path, page: Path) -> list[str]:
    """Prints what `stats` says, writes its page; what does not add up."""
    files = [str(log)]
    environment = {**os.environ, "COLUMNS": "100"}
    for more in ([], ["--html", str(page)]):
        subprocess.run([COMMAND, "stats", *files, *more], check=True, env=environment)
    said = subprocess.run([COMMAND, "stats", *files, "--json"], check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    records = [line for line in lines if line["kind"] == "request"]
    summary = json.loads(said.stdout)
    faults = [*faults_of(summary, records)]
    if json.dumps(summary["overall"]["n"]) not in page.read_text(encoding="utf-8"):
        faults.append("the page has another number of requests")
    return faults


def faults_of(summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What in a summary does not follow from the records."""
    overall, log = summary["overall"], summary["log"]
    n = len(records)
    if not n:
        yield "there is no record"
        return
    if log["truncated"] or log["foreign"] or log["lost"] or log["outcomes_without_request"]:
        yield f"lines were left out: {log}"
    routes = Counter(record["route"] for record in records)
    for told in (overall["routes"], {group["key"]: group["n"] for group in summary["groups"]}):
        if told != routes:
            yield f"routes {told}, in the log {dict(routes)}"
    for name in ("total_ms", "ttft_ms", "tpot_ms"):
        values = [r[name] for r in records if name == "total_ms" or (r["forwards"] and r[name] > 0)]
        points = list(map(float, np.percentile(values, (50, 95, 99)))) if values else [None] * 3
        if [overall[name][f"p{q}"] for q in (50, 95, 99)] != points or overall[name]["n"] != len(values):
            yield f"{name} {overall[name]}, in the log {points} of {len(values)}"
    for stage in STAGES:
        mean = sum(record[stage] for record in records) / n
        if abs(overall["stages"][stage]["mean_ms"] - mean) > 0.001:
            yield f"{stage} {overall['stages'][stage]['mean_ms']}, in the log {mean}"
    gaps = [
        abs(unattributed_ms(r)) for r in records if abs(unattributed_ms(r)) > max(1, 0.02 * r["total_ms"])
    ]
    if overall["unbalanced"] != len(gaps):
        yield f"unbalanced {overall['unbalanced']}, in the log {len(gaps)}"
    if len(gaps) > UNBALANCED_SHARE * n:
        yield f"the stages of {len(gaps)} requests miss the total by up to {max(gaps):.1f} ms"
    if not any(record["forwards"] for record in records):
        yield "no request was decoded"
    elif overall["saving"]["speedup"] is None:
        yield "what speculation saved is unknown"


if __name__ == "__main__":
    sys.exit(main())
