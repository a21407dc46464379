"""The summary of latency logs: one plain dict that the terminal, ``--json`` and the HTML page all show."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from lsp_server.stats_figures import describe, describe_costs
from lsp_server.stats_group import OTHER, OUTCOME_RANK, Group
from lsp_server.stats_log import (
    Costs,
    Engine,
    Line,
    Outcome,
    ReadCounts,
    Request,
    keep_costs,
    read,
    rereadable,
    survey,
)
from lsp_server.telemetry_schema import VERSION
from speculation.costs import CostTable

GROUP_LIMIT = 400  # groups kept; later ones share one
JOIN_WINDOW = 20_000  # answers whose outcomes are waited for; at least this many, at most twice


def summarise(paths: list[Path], by: str = "route", since: str = "") -> dict[str, Any]:
    """Reads the logs, oldest first, and adds them up by route, source, language, model or hour."""
    counts = ReadCounts()
    with rereadable(paths) as files, _collector_paused():
        files, costs = survey(files)
        summary = Summary(by, costs)
        for records in read(files, counts, since):
            summary.add_all(records)
    return summary.result(counts, since)


class Summary:
    """Groups requests by a key and joins their outcomes; one pass, in the order of the log."""

    def __init__(self, by: str, costs: Mapping[Engine, CostTable]) -> None:
        self.by = by
        self._key = KEYS[by]
        self._groups: dict[str, Group] = {}
        self._costs = dict(costs)
        self._open: dict[str, _Answer] = {}  # the newest answers
        self._older: dict[str, _Answer] = {}  # those before them
        self._waiting: dict[_Place, list[Request]] = {}  # requests that are not added to their groups yet
        self._outcomes = self._unmatched = self._lost = 0
        self._first = self._last = ""

    def add_all(self, lines: Iterable[Line]) -> None:
        """Adds records, in the order of the log."""
        waiting = self._waiting
        for line in lines:
            if isinstance(line, Request):
                key = self._key(line)
                group = self._groups.get(key) or self._new_group(key)
                place = (group, line.model, line.engine, line.device)
                if place in waiting:
                    waiting[place].append(line)
                else:
                    waiting[place] = [line]
                if line.at > self._last:
                    self._last = line.at
                if line.at < self._first or not self._first:
                    self._first = line.at
                if line.characters:
                    self._offer(line.answer or line.id, line.characters, group)
            elif isinstance(line, Outcome):
                self._outcomes += 1
                answer = self._open.get(line.id) or self._older.get(line.id)
                if answer is None:
                    self._unmatched += 1
                else:
                    answer.settle(line)
            elif isinstance(line, Costs):
                self._flush()  # what came before goes by the table that was in force
                if table := line.table():  # one that makes no sense estimates nothing
                    keep_costs(self._costs, line.where, table)
            else:
                self._lost += line.count
        self._flush()

    def _flush(self) -> None:
        for (group, *engine), requests in self._waiting.items():
            group.add_all(requests, self._costs.get((engine[0], engine[1], engine[2])))
        self._waiting.clear()

    def _new_group(self, key: str) -> Group:
        if len(self._groups) >= GROUP_LIMIT:
            key = OTHER
        return self._groups.setdefault(key, Group())

    def _offer(self, answer: str, characters: int, group: Group) -> None:
        """Waits for the outcomes of an answer; while it is typed through, it is returned again."""
        if answer in self._open or answer in self._older:
            return
        if len(self._open) >= JOIN_WINDOW:
            self._open, self._older = {}, self._open
        self._open[answer] = _Answer(group)
        group.offered += 1
        group.offered_characters += characters

    def result(self, counts: ReadCounts, since: str = "") -> dict[str, Any]:
        """The summary as plain data: milliseconds, shares between 0 and 1, None where nothing is known."""
        overall = Group()
        for group in self._groups.values():
            overall.merge(group)
        keys = sorted(self._groups, key=str if self.by == "hour" else lambda key: -self._groups[key].n)
        return {
            "version": VERSION,
            "by": self.by,
            "since": since,
            "log": {
                "files": counts.files,
                "lines": counts.lines,
                "truncated": counts.truncated,
                "foreign": counts.foreign,
                "lost": self._lost,
                "requests": overall.n,
                "outcomes": self._outcomes,
                "outcomes_without_request": self._unmatched,
                "first": self._first,
                "last": self._last,
            },
            "overall": describe(overall),
            "groups": [{"key": key, **describe(self._groups[key])} for key in keys],
            "costs": [
                {"model": model, "engine": engine, "device": device, **describe_costs(table)}
                for (model, engine, device), table in self._costs.items()
            ],
        }


class _Answer:
    """An answer with text, until its outcomes are known. Only its best outcome counts.

    One that goes on after it was accepted can be accepted again: what it gave is added up.
    """

    __slots__ = ("group", "outcome", "shown", "taken", "unchecked")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.outcome = ""
        self.shown = False
        self.taken = 0
        self.unchecked: tuple[int, ...] = ()  # characters of acceptances that were not looked at again yet

    def settle(self, event: Outcome) -> None:
        group = self.group
        if event.outcome in ("shown", "accepted", "partial"):  # what was taken was seen
            group.outcomes["shown"] += not self.shown
            self.shown = True
        if event.outcome == "shown":
            return
        if event.outcome == "kept":
            if self.unchecked:
                group.characters["checked"] += self.unchecked[0]
                group.characters["kept"] += min(event.characters, self.unchecked[0])
                self.unchecked = self.unchecked[1:]
        elif OUTCOME_RANK[event.outcome] >= OUTCOME_RANK.get(self.outcome, 0):
            if self.outcome:
                group.outcomes[self.outcome] -= 1
            group.outcomes[event.outcome] += 1
            earlier = self.taken if self.outcome == "accepted" else 0
            self.outcome = event.outcome
            group.characters["taken"] += earlier + event.characters - self.taken
            self.taken = earlier + event.characters
            if event.outcome == "accepted":
                self.unchecked += (event.characters,)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Records form no cycles: looking for some among millions costs a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _main_source(request: Request) -> str:
    """The source that gave most accepted tokens; of equals, the one that drafted most."""
    gains = {
        source: (
            sum(accepted for _, accepted in lengths.values()),
            sum(drafted for drafted, _ in lengths.values()),
        )
        for source, lengths in request.by_match.items()
    }
    return max(gains, key=gains.__getitem__) if gains else "(no draft)"


class _LocalHour:
    """The local hour of a time stamp; stamps come in order, so the last minute's answer is kept."""

    def __init__(self) -> None:
        self._minute = self._hour = ""

    def __call__(self, request: Request) -> str:
        minute = request.at[:16]
        if minute != self._minute:
            try:
                moment = datetime.fromisoformat(minute + "+00:00").astimezone()
            except (ValueError, OverflowError, OSError):  # no time, or one that has no local time
                return OTHER
            self._minute, self._hour = minute, moment.strftime("%Y-%m-%d %H:00")
        return self._hour


_Place = tuple[Group, str, str, str]  # where a request belongs: its group, and model, engine and device
KEYS: dict[str, Callable[[Request], str]] = {
    "route": attrgetter("route"),
    "source": _main_source,
    "language": lambda request: request.language or "(none)",
    "model": lambda request: (
        f"{request.model} · {request.engine} · {request.device}" if request.model else "(none)"
    ),
    "hour": _LocalHour(),
}
