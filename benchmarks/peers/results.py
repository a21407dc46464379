"""What was measured, one line of JSON per task, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Record = dict[str, Any]

# what decides a figure: the product's own code and the code that measures it, not the code that shows it; changed
# code is measured anew
MEASURED_CODE = ("speculation", "cache", "lsp_server", "benchmarks/peers")
SHOWING_CODE = frozenset(("__main__.py", "bounds.py", "figures.py", "plots.py", "report.py", "tables.py"))


class Results:
    """The records of one configuration. A line that was cut off in the middle is as if it were not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[tuple[str, str], Record] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    self._take(json.loads(line))
                except (ValueError, KeyError):
                    continue

    def get(self, workload: str, task: str, peers: Iterable[str] = ()) -> Record | None:
        """The record of a task, if it has the results of all these peers."""
        record = self._records.get((workload, task))
        if record is None or any(peer not in record["results"] for peer in peers):
            return None
        return record

    def add(self, record: Record) -> None:
        """Keeps a record, on disk before it returns."""
        self._take(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+", encoding="utf-8") as stream:
            stream.seek(0, os.SEEK_END)
            torn = stream.tell() > 0 and not self._ends_line()
            stream.write(("\n" if torn else "") + json.dumps(record) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _take(self, record: Record) -> None:
        self._records[record["workload"], record["task"]] = record

    def _ends_line(self) -> bool:
        with self.path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) == b"\n"


def key_of(configuration: Mapping[str, Any]) -> str:
    """Names a configuration by everything in it."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()[:16]


def code_hash(root: Path, directories: Iterable[str] = MEASURED_CODE) -> str:
    """A hash of the source files below some directories, data files of the package included."""
    digest = hashlib.sha256()
    for directory in directories:
        for path in sorted((root / directory).rglob("*")):
            shows = directory == "benchmarks/peers" and path.name in SHOWING_CODE
            if path.suffix in (".py", ".json", ".txt") and not shows:
                digest.update(str(path.relative_to(root)).encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
