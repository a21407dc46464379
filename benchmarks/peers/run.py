"""The run: each task goes to every peer in turn, one at a time, in an order that rotates from task to task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Protocol

from benchmarks.peers.results import Record, Results
from benchmarks.peers.tasks import PeerTask, Workload
from speculation.stop import StopRules, Surroundings
from speculation.tokenizer import Tokenizer


class Asked(Protocol):
    """A peer that can be asked: a worker process, or a scripted one in a test."""

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """One request, answered."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a peer does in a workload: its modes, and how many of the tasks it gets (the first ones)."""

    modes: tuple[str, ...]
    limit: int


Plan = Mapping[str, Part]  # by peer


def rotated(peers: Sequence[str], turn: int) -> list[str]:
    """The peers in an order that begins with another one each turn."""
    at = turn % len(peers) if peers else 0
    return [*peers[at:], *peers[:at]]


def peers_at(plan: Plan, number: int) -> list[str]:
    """The peers that get the task of this number."""
    return [peer for peer, part in plan.items() if number < part.limit]


class Runner:
    """Runs workloads with a set of peers and keeps every record at once."""

    def __init__(
        self, peers: Mapping[str, Asked], tokenizer: Tokenizer, ends: frozenset[int], results: Results
    ) -> None:
        self._peers, self._tokenizer, self._ends, self._results = peers, tokenizer, ends, results
        self._told: set[str] = set()

    def run(
        self, name: str, workload: Workload, plan: Plan, done: Callable[[int], None] = lambda count: None
    ) -> list[Record]:
        """The records of a workload; what is known already is not measured again."""
        most = max((part.limit for part in plan.values()), default=0)
        records = []
        for number, task in enumerate(workload.tasks[:most]):
            wanted = peers_at(plan, number)
            record = self._results.get(name, task.name, wanted)
            if record is None:
                record = self._record(name, workload, task, number, rotated(wanted, number), plan)
                self._results.add(record)
            records.append(record)
            done(number + 1)
        return records

    def _record(
        self, name: str, workload: Workload, task: PeerTask, number: int, order: list[str], plan: Plan
    ) -> Record:
        record: Record = {
            "workload": name,
            "task": task.name,
            "number": number,
            "language": task.language,
            "prompt_tokens": len(task.prompt),
            "order": order,
            "results": {},
        }
        if unlike := [peer for peer in order if not self._same_tokens(peer, task)]:
            return {**record, "results": {peer: {} for peer in order}, "tokenised_otherwise_by": unlike}
        for peer in order:
            if peer == "ours":
                self._tell_workspace(task.workspace, workload)
            # where a peer begins a task makes a difference to what is still in the processor's caches
            modes = rotated(plan[peer].modes, number)
            answer = self._peers[peer].ask("complete", task=task.request(), modes=modes)
            for run in answer["modes"].values():
                self._judge(run, task)
            record["results"][peer] = answer
        return record

    def _same_tokens(self, peer: str, task: PeerTask) -> bool:
        ids = self._peers[peer].ask("tokenize", texts=list(task.texts))["ids"]
        return bool(ids == [self._tokenizer.encode(text) for text in task.texts])

    def _tell_workspace(self, key: str, workload: Workload) -> None:
        if key and key not in self._told:
            self._peers["ours"].ask("workspace", key=key, texts=dict(workload.workspaces[key]))
            self._told.add(key)

    def _judge(self, run: dict[str, Any], task: PeerTask) -> None:
        """Adds where the product would stop, and how near the text is to what the developer wrote."""
        if task.forced:
            return
        stop = StopRules("block", self._ends, len(run["ids"]), Surroundings("", task.next_line))
        for token in run["ids"]:
            if not stop.commit(token, self._tokenizer.bytes_of(token)):
                break
        run["product_tokens"] = stop.committed
        run["first_line"] = first_line(stop.text) == first_line(task.written)
        run["similarity"] = round(similarity(stop.text, task.written), 4)


def first_line(text: str) -> str:
    """The first line that is not blank, with its indentation."""
    return next((line.rstrip() for line in text.split("\n") if line.strip()), "")


def similarity(text: str, written: str) -> float:
    """Share of characters that match in order (difflib's ratio), 0 to 1."""
    return SequenceMatcher(None, text.rstrip(), written.rstrip(), autojunk=False).ratio()
