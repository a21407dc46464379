"""Holes cut from solved problems, and where the text that fills one ends.

A hole is one whole line of a solution, or a run of lines; the cursor stands at the start of the empty line that is
left. Needs nothing but the standard library, so that any interpreter that runs an engine can apply the same rule.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

Kind = Literal["single", "multi"]
SHORTEST_RUN, LONGEST_RUN = 2, 6  # lines that are not blank, of a hole of several


@dataclass(frozen=True, slots=True)
class Hole:
    """What stands above the cursor and below it, what was there, and what tells whether a text will do."""

    name: str
    problem: str
    kind: Kind
    above: str  # whole lines
    cut: str  # without its last line end
    below: str  # begins with that line end
    test: str
    entry_point: str

    @property
    def lines(self) -> int:
        """Lines that were cut, blank ones not counted: as many are taken of an answer."""
        return sum(bool(line.strip()) for line in self.cut.splitlines())

    def program(self, text: str) -> str:
        """The hole filled, with the tests and their call below."""
        return f"{self.above}{text}{self.below}\n{self.test}\ncheck({self.entry_point})\n"


def holes(
    problems: Sequence[Mapping[str, str]], single: int, multi: int, seed: int = 0
) -> dict[Kind, list[Hole]]:
    """So many holes of each kind, one of a problem and kind, in one shuffled order of the problems.

    The holes of a smaller number are the first of a larger one's, and the two kinds share problems.
    """
    order = random.Random(seed).sample(list(problems), len(problems))
    return {
        "single": list(islice(_cut(order, "single", seed), single)),
        "multi": list(islice(_cut(order, "multi", seed), multi)),
    }


def _cut(problems: Sequence[Mapping[str, str]], kind: Kind, seed: int) -> Iterator[Hole]:
    for problem in problems:
        lines = problem["canonical_solution"].splitlines(keepends=True)
        spans = single_lines(lines) if kind == "single" else runs(lines)
        if spans:
            first, last = random.Random(f"{seed} {problem['task_id']} {kind}").choice(spans)
            yield _hole(problem, kind, lines, first, last)


def single_lines(lines: Sequence[str]) -> list[tuple[int, int]]:
    """First and last line of every hole of one line: any that is code."""
    return [(n, n) for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]


def runs(lines: Sequence[str]) -> list[tuple[int, int]]:
    """First and last line of every hole of several lines that leaves some of the solution standing."""
    full = [n for n, line in enumerate(lines) if line.strip()]
    longest = min(LONGEST_RUN, len(full) - 1)
    return [
        (full[start], full[start + count - 1])
        for count in range(SHORTEST_RUN, longest + 1)
        for start in range(len(full) - count + 1)
    ]


def _hole(problem: Mapping[str, str], kind: Kind, lines: Sequence[str], first: int, last: int) -> Hole:
    cut = "".join(lines[first : last + 1]).removesuffix("\n")
    return Hole(
        name=f"{problem['task_id']}/{kind} {first + 1}-{last + 1}",
        problem=problem["task_id"],
        kind=kind,
        above=problem["prompt"] + "".join(lines[:first]),
        cut=cut,
        below="\n" + "".join(lines[last + 1 :]),
        test=problem["test"],
        entry_point=problem["entry_point"],
    )


def taken(text: str, lines: int) -> tuple[str, bool]:
    """The part of an answer that fills a hole of so many lines, and whether the rest of it is not needed.

    Lines that are blank do not count; the line end of the last one is left out.
    """
    at = count = 0
    while (end := text.find("\n", at)) >= 0:
        count += bool(text[at:end].strip())
        if count == lines:
            return text[:end], True
        at = end + 1
    return text, False
