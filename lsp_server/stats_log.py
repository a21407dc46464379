"""Reads latency logs back: typed records, oldest file first; foreign lines are counted, never fatal."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from lsp_server.telemetry_writer import rotated_paths

BLOCK_BYTES = 2**20
COSTS_MARK = b'"kind":"costs"'  # as the writer spells it
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
    positions: list[Annotated[int, msgspec.Meta(ge=1)]]
    pass_ms: list[Milliseconds]


class Lost(msgspec.Struct, tag_field="kind", tag="lost", gc=False):
    """Records that the writer could not write."""

    v: Literal[1]
    count: Amount


Line = Request | Outcome | Costs | Lost


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
        try:
            for block in _blocks(path, counts):
                try:
                    records = decoder.decode_lines(block)
                    counts.lines += len(records)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    records = _decode_singly(decoder, block, counts)
                yield [record for record in records if _is_since(record, since)] if since else records
        except OSError as error:
            raise StatsError(f"cannot read {path}: {error.strerror}") from error


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
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            counts.truncated += 1
    return records


def first_costs(paths: Sequence[Path]) -> list[Costs]:
    """The cost tables in these files, oldest first: requests logged before any table use the first one.

    (Rotation may have taken the table that was in force.) Only lines that hold one are decoded.
    """
    decode = msgspec.json.Decoder(Costs).decode
    tables: list[Costs] = []
    for path in paths:
        with contextlib.suppress(OSError):  # `read` reports it
            for block in _blocks(path, ReadCounts()):
                if COSTS_MARK in block:
                    for line in block.split(b"\n"):
                        if COSTS_MARK in line:
                            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                                tables.append(decode(line))
    return tables


def _blocks(path: Path, counts: ReadCounts) -> Iterator[bytes]:
    """Whole lines by the block: faster than one by one, and bounded for files without line ends."""
    with path.open("rb") as file:
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
