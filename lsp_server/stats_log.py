"""Reads latency logs back: typed records, in the order of the files given; foreign lines are counted, never fatal."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from lsp_server.telemetry_writer import rotated_paths
from speculation.costs import CostTable

BLOCK_BYTES = 2**20
COSTS_MARK = b'"kind":"costs"'  # as the writer spells it
GZIP_MARK = b"\x1f\x8b"
DISTINCT_LIMIT = 64  # distinct keys kept per table: a foreign log must not fill the memory
LONGEST_LINE = 2**20  # bytes; a longer one is foreign, so that memory stays bounded on any file

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Request(msgspec.Struct, tag_field="kind", tag="request", gc=False, kw_only=True):
    """What `stats` reads of a request's record; the schema has the meaning of the fields.

    In the order in which the log has them: so each is found without a search.
    """

    v: Literal[1]
    id: str
    at: str
    route: Literal["typed-through", "continued", "generated", "dropped"]
    reason: str = ""
    queue_ms: Milliseconds = 0.0
    tokenise_ms: Milliseconds = 0.0
    prefill_ms: Milliseconds = 0.0
    draft_ms: Milliseconds = 0.0
    verify_ms: Milliseconds = 0.0
    sample_ms: Milliseconds = 0.0
    post_ms: Milliseconds = 0.0
    total_ms: Milliseconds
    ttft_ms: Milliseconds = 0.0
    tpot_ms: Milliseconds = 0.0
    reused_tokens: Amount = 0
    new_tokens: Amount = 0
    forwards: Amount = 0
    drafted: Amount = 0
    accepted: Amount = 0
    committed: Amount = 0
    text_tokens: Amount = 0
    rejected_depth: dict[Amount, Amount] = {}
    by_match: dict[str, dict[Amount, tuple[Amount, Amount]]] = {}
    passes_by_positions: dict[Amount, Amount] = {}
    oom_count: Amount = 0
    answer: str = ""
    characters: Amount = 0
    batch_size: Amount = 1
    speculation: bool = True
    off_fraction: float = 0.0
    sampling: dict[str, float] | None = None
    model: str = ""
    engine: str = ""
    device: str = ""
    device_memory_bytes: Amount | None = None
    language: str = ""


class Outcome(msgspec.Struct, tag_field="kind", tag="outcome", gc=False):
    """What became of an answer."""

    v: Literal[1]
    id: str
    at: str
    outcome: Literal["shown", "accepted", "partial", "rejected", "superseded", "kept"]
    characters: Amount = 0
    units: Amount = 0
    unit: str = ""


class Costs(msgspec.Struct, tag_field="kind", tag="costs", gc=False):
    """A measured cost table t(m)."""

    v: Literal[1]
    at: str
    model: str
    engine: str
    device: str
    positions: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=2**31)]], msgspec.Meta(max_length=1024)]
    pass_ms: Annotated[list[Milliseconds], msgspec.Meta(max_length=1024)]

    @property
    def where(self) -> Engine:
        """What was measured."""
        return self.model, self.engine, self.device

    def table(self) -> CostTable | None:
        """The table; None for one that makes no sense."""
        try:
            return CostTable(dict(zip(self.positions, self.pass_ms, strict=True)))
        except ValueError:
            return None


class Lost(msgspec.Struct, tag_field="kind", tag="lost", gc=False):
    """Records that the writer could not write."""

    v: Literal[1]
    count: Amount


Engine = tuple[str, str, str]  # model, engine, device
Line = Request | Outcome | Costs | Lost
_NOT_OURS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class StatsError(Exception):
    """A log or an option that can't be used; says which and what to do."""

    exit_code = 2


@dataclass(slots=True)
class ReadCounts:
    """What was read beside the records."""

    files: int = 0
    lines: int = 0
    truncated: int = 0  # not JSON: cut short, or something else altogether
    foreign: int = 0  # JSON, but no record of a version we know


def read(paths: Sequence[Path], counts: ReadCounts, since: str = "") -> Iterator[list[Line]]:
    """The records of these files in order, many at a time, from time stamp ``since`` on (ISO, UTC, as in the log).

    Cost tables are given whatever their age: later requests rest on them.
    """
    decoder = msgspec.json.Decoder(Line)
    for path in paths:
        counts.files += 1
        for block in _blocks(path, counts):
            try:
                records = decoder.decode_lines(block)
                counts.lines += len(records)
            except _NOT_OURS:
                records = _decode_singly(decoder, block, counts)
            yield [record for record in records if _is_since(record, since)] if since else records


def _is_since(record: Line, since: str) -> bool:
    return isinstance(record, Costs | Lost) or record.at >= since


def _decode_singly(decoder: msgspec.json.Decoder[Line], block: bytes, counts: ReadCounts) -> list[Line]:
    """The records of a block in which some lines aren't ours."""
    records: list[Line] = []
    for line in block.split(b"\n"):
        if not line.strip():
            continue
        counts.lines += 1
        try:
            records.append(decoder.decode(line))
        except msgspec.ValidationError:
            counts.foreign += 1
        except _NOT_OURS:
            counts.truncated += 1
    return records


@contextlib.contextmanager
def rereadable(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """These files for as often as it takes: what comes through a pipe is copied to a temporary file once."""
    with contextlib.ExitStack() as stack:
        lasting = []
        for path in paths:
            if not path.is_file():
                copy = stack.enter_context(tempfile.NamedTemporaryFile("wb", prefix="spec-complete-stats-"))
                with _opened(path) as file:
                    shutil.copyfileobj(file, copy, BLOCK_BYTES)
                copy.flush()
                path = Path(copy.name)
            lasting.append(path)
        yield lasting


@dataclass(slots=True)
class Survey:
    """What must be known of a file before its records are added up."""

    first_at: str = ""  # time stamp of its first record
    costs: dict[Engine, CostTable] = field(default_factory=dict)  # the first of each engine

    def note(self, record: Line) -> None:
        """Looks at a record, in the order of the file."""
        if not isinstance(record, Lost):
            self.first_at = self.first_at or record.at
        if isinstance(record, Costs) and record.where not in self.costs and (table := record.table()):
            keep_costs(self.costs, record.where, table)


def survey(paths: Sequence[Path]) -> tuple[list[Path], dict[Engine, CostTable]]:
    """These files, oldest first, and the first cost table of each engine in them.

    Requests logged before any table use the first one: rotation may have taken the table that was in force.
    Only lines that hold one are decoded.
    """
    decode = msgspec.json.Decoder(Line).decode
    found = []
    for path in paths:
        seen = Survey()
        for block in _blocks(path, ReadCounts()):
            if not seen.first_at or COSTS_MARK in block:
                for line in block.split(b"\n"):
                    if not seen.first_at or COSTS_MARK in line:
                        with contextlib.suppress(*_NOT_OURS):
                            seen.note(decode(line))
        found.append((path, seen))
    found.sort(key=lambda entry: entry[1].first_at)
    costs: dict[Engine, CostTable] = {}
    for _, seen in found:
        for where, table in seen.costs.items():
            if where not in costs:
                keep_costs(costs, where, table)
    return [path for path, _ in found], costs


def keep_costs(costs: dict[Engine, CostTable], where: Engine, table: CostTable) -> None:
    """Sets an engine's table, of so many engines at most."""
    if where in costs or len(costs) < DISTINCT_LIMIT:
        costs[where] = table


def _blocks(path: Path, counts: ReadCounts) -> Iterator[bytes]:
    """Whole lines by the block: faster than one by one, and bounded for files without line ends."""
    with _opened(path) as file:
        rest = b""
        skipping = False  # inside a line that is too long
        while block := file.read(BLOCK_BYTES):
            if skipping:
                _, end, block = block.partition(b"\n")
                skipping = not end
            whole, end, rest = (rest + block).rpartition(b"\n")
            if len(rest) > LONGEST_LINE:
                counts.lines += 1
                counts.foreign += 1
                rest, skipping = b"", True
            if end:
                yield whole
        if rest:
            yield rest


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """A file's bytes, unpacked if it is gzipped, as rotated logs often are."""
    try:
        with path.open("rb") as file:
            if file.peek(len(GZIP_MARK)).startswith(GZIP_MARK):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        raise StatsError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def log_files(log: Path) -> list[Path]:
    """A log and its rotated predecessors, oldest first; those that exist."""
    return [path for path in [*reversed(rotated_paths(log)), log] if path.exists()]


def since_stamp(text: str, now: datetime | None = None) -> str:
    """``--since`` as the log's time stamp: an age like 30m, 6h, 7d, or a local date or time in ISO form."""
    now = now or datetime.now(timezone.utc)
    try:
        if age := re.fullmatch(r"(\d+)\s*([mhdw])", text.strip()):
            unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[age[2]]
            moment = now - timedelta(**{unit: int(age[1])})
        else:
            moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00")).astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError):  # the last two: beyond the calendar
        given = text if len(text) <= 40 else text[:40] + "…"
        raise StatsError(f"--since {given!r}: give an age (30m, 6h, 7d, 2w) or a date (2026-01-31)") from None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
