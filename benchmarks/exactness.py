"""`python -m benchmarks.exactness`: the same text with speculation on and off, with drafts forced in every round.

Prompts are places in the standard library's own files, or the hunks of the replay. Each is decoded without drafts
and then with drafts that are partly right, partly wrong, too long, past the vocabulary or an end token. Differences
are counted; with a row-invariant engine there must be none.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.progress import Progress

from speculation.completion import Completer
from speculation.draft import Draft, DraftRequest, NoDrafter, Origin, Round
from speculation.loading import load_engine
from speculation.request import CompletionRequest
from speculation.sampling import SamplingParameters

SAMPLINGS = {
    "greedy": SamplingParameters(),
    "sampled": SamplingParameters(temperature=0.8, top_p=0.95, top_k=50, seed=11),
}


class Forced:
    """Drafts in every round, from the text it should become: right up to a random point, then anything."""

    def __init__(self, truth: list[int], vocab_size: int, end_id: int, seed: int, trees: bool) -> None:
        self.drafted = self.accepted = 0
        self._truth, self._vocab_size, self._end_id, self._trees = truth, vocab_size, end_id, trees
        self._random = random.Random(seed)
        self._done = 0

    def start(self, request: DraftRequest) -> None:
        """Begins at the first token."""
        self._done = 0

    def draft(self, limit: int) -> Draft:
        """0 to 63 tokens, whatever the limit."""
        chooser = self._random
        length = chooser.randrange(64)
        right = chooser.randrange(length + 1)
        tokens = self._truth[self._done : self._done + right]
        while len(tokens) < length:
            odd = chooser.choice((self._end_id, self._vocab_size + chooser.randrange(99), -1))
            tokens.append(odd if chooser.random() < 0.05 else chooser.randrange(self._vocab_size))
        if not self._trees or chooser.random() < 0.5:
            return Draft(tokens, Origin("forced"))
        parents = [i - 1 if chooser.random() < 0.85 else chooser.randrange(-1, i) for i in range(length)]
        return Draft(tokens, Origin("forced"), parents)

    def observe(self, round_: Round) -> None:
        """Follows what was committed."""
        self._done += len(round_.committed)
        self.drafted += len(round_.draft)
        self.accepted += len(round_.accepted)


def library_places(count: int, seed: int = 1) -> Iterator[CompletionRequest]:
    """Places in the middle of the standard library's files, the same on every machine with this Python."""
    chooser = random.Random(seed)
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    while count > 0:
        text = chooser.choice(files).read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")
        if len(lines) < 120:
            continue
        line = chooser.randrange(60, len(lines) - 20)
        offset = sum(len(x) + 1 for x in lines[:line]) + chooser.randrange(len(lines[line]) + 1)
        start = sum(len(x) + 1 for x in lines[: line - 60])
        end = sum(len(x) + 1 for x in lines[: line + 20])
        yield CompletionRequest(text[start:end], offset - start, path="library.py", stop="none")
        count -= 1


def hunk_places(count: int) -> Iterator[CompletionRequest]:
    """The first hunks of a shuffled replay."""
    from benchmarks.replay_hunks import NARROW, RELEASES, upgrade

    found = [hunk for release in RELEASES for hunk in upgrade(release, NARROW).hunks]
    random.Random(0).shuffle(found)
    for hunk in found[:count]:
        text, offset = hunk.before + hunk.after, len(hunk.before)
        yield CompletionRequest(text, offset, path=hunk.path, stop="none")


def ids_of(completer: Completer, request: CompletionRequest) -> list[int]:
    """Every committed id of a completion."""
    completion = completer.start(request)
    completion.run()
    return completion.decoder.end.committed


def differences(completer: Completer, requests: list[CompletionRequest], sampling: str) -> dict[str, int]:
    """Decodes every request without and with forced drafts."""
    counts = {"prompts": 0, "tokens": 0, "drafted": 0, "accepted": 0, "differences": 0}
    capabilities = completer.verifier.capabilities
    with Progress(disable=not sys.stderr.isatty()) as progress:
        for number, request in enumerate(progress.track(requests, description=sampling)):
            request = replace(request, sampling=SAMPLINGS[sampling])
            completer.drafter = NoDrafter()
            plain = ids_of(completer, request)
            end = min(completer.markers.end_ids)
            forced = Forced(plain, capabilities.vocab_size, end, number, capabilities.trees)
            completer.drafter = forced
            counts["differences"] += ids_of(completer, request) != plain
            counts["prompts"] += 1
            counts["tokens"] += len(plain)
            counts["drafted"] += forced.drafted
            counts["accepted"] += forced.accepted
    return counts


def main() -> int:
    """Prints one line per sampling setting; exit code 1 when a text differed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--source", choices=("library", "edits"), default="library")
    parser.add_argument("--sampling", choices=(*SAMPLINGS, "both"), default="both")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    completer = load_engine(arguments.model, "auto", arguments.engine, arguments.dtype)
    places = library_places if arguments.source == "library" else hunk_places
    requests = [replace(request, max_tokens=arguments.tokens) for request in places(arguments.prompts)]
    chosen = list(SAMPLINGS) if arguments.sampling == "both" else [arguments.sampling]
    results = {name: differences(completer, requests, name) for name in chosen}
    report = {
        "model": completer.model,
        "engine": completer.name,
        "source": arguments.source,
        "results": results,
    }
    print(json.dumps(report, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return int(any(counts["differences"] for counts in results.values()))


if __name__ == "__main__":
    sys.exit(main())
