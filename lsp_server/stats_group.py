"""What is added up for one group of requests: counts, sums, and columns of exact values for percentiles.

Many requests are added at a time, by numpy. Times are added in whole microseconds, as the log has them: so a sum
does not depend on the order. Memory: at most 32 bytes a request (four float columns); everything else is bounded by
`DISTINCT_LIMIT` and `LONGEST`, whatever is in the log.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, compress
from operator import attrgetter

import numpy as np

from lsp_server.stats_formulas import PassCounts, RatioSums, decode_ms_without
from lsp_server.stats_log import DISTINCT_LIMIT, Request
from lsp_server.telemetry import STAGES
from speculation.costs import CostTable

OTHER = "(other)"  # what is beyond `DISTINCT_LIMIT`
LONGEST = 1024  # tokens; longer texts, drafts and passes are counted as this long
MATCH_BUCKETS = 12  # match lengths by their number of binary digits: 0, 1, 2–3, 4–7, … 1024 and more
OUTCOME_RANK = {
    "superseded": 1,
    "rejected": 2,
    "partial": 3,
    "accepted": 4,
}  # a better one replaces a worse one
NUMBERS = (
    *STAGES, "total_ms", "ttft_ms", "tpot_ms", "reused_tokens", "new_tokens", "text_tokens", "forwards", "drafted",
    "accepted", "committed", "batch_size", "oom_count", "speculation", "off_fraction",
)  # fmt: skip
PLACES = {name: place for place, name in enumerate(NUMBERS)}
_numbers_of = attrgetter(*NUMBERS)


class Numbers:
    """The numbers of many requests as columns; counts up to 2**53 are exact."""

    __slots__ = ("_columns",)

    def __init__(self, records: Sequence[Request] = (), columns: np.ndarray | None = None) -> None:
        if columns is None:
            rows = np.fromiter(chain.from_iterable(map(_numbers_of, records)), float)
            columns = np.ascontiguousarray(rows.reshape(-1, len(NUMBERS)).T)
        self._columns = columns

    def __len__(self) -> int:
        return self._columns.shape[1]

    def __getitem__(self, name: str) -> np.ndarray:
        column: np.ndarray = self._columns[PLACES[name]]
        return column

    @property
    def stages(self) -> np.ndarray:
        """The stage times, one row a stage."""
        return self._columns[: len(STAGES)]

    @property
    def decode_ms(self) -> np.ndarray:
        """What drafting and verifying took."""
        return np.asarray(self["draft_ms"] + self["verify_ms"])

    def total(self, name: str) -> int:
        """The sum of a column of counts."""
        return int(self[name].sum())

    def where(self, mask: np.ndarray) -> Numbers:
        """The numbers of those requests."""
        return Numbers(columns=self._columns[:, mask])


def _lengths() -> np.ndarray:
    return np.zeros(LONGEST + 1, np.int64)


@dataclass(slots=True, eq=False)
class Group:
    """Sums over the requests that share a key."""

    n: int = 0
    total: array[float] = field(default_factory=lambda: array("d"))
    ttft: array[float] = field(default_factory=lambda: array("d"))
    tpot: array[float] = field(default_factory=lambda: array("d"))
    without: array[float] = field(default_factory=lambda: array("d"))  # estimated total without speculation
    stage_us: np.ndarray = field(default_factory=lambda: np.zeros(len(STAGES), np.int64))
    unbalanced: int = 0  # requests whose stages miss the total by more than 2 % and 1 ms
    routes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    reused_tokens: int = 0
    new_tokens: int = 0
    unspeculated: int = 0  # requests decoded with speculation off; not in what follows up to `by_match`
    forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    committed: int = 0
    rejected_depth: np.ndarray = field(default_factory=_lengths)
    passes: np.ndarray = field(default_factory=_lengths)  # by positions
    by_match: dict[str, list[int]] = field(default_factory=dict)  # drafted, accepted by bucket, by source
    text_tokens: np.ndarray = field(default_factory=_lengths)
    sampling: Counter[str] = field(default_factory=Counter)
    batch_size: Counter[int] = field(default_factory=Counter)
    oom_count: int = 0
    device_memory_bytes: int = 0
    offered: int = 0  # answers that had text; counted where they were first returned
    offered_characters: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)  # "shown" and the best outcome of each answer
    characters: Counter[str] = field(default_factory=Counter)  # taken, checked, kept
    estimated: int = 0  # requests with an estimate
    with_ms: float = 0.0  # their total time, as measured
    without_ms: float = 0.0  # as estimated without speculation
    decode_with_ms: float = 0.0
    decode_without_ms: float = 0.0
    sampled_on: RatioSums = field(default_factory=RatioSums)  # decode ms, committed tokens
    sampled_off: RatioSums = field(default_factory=RatioSums)
    sampled_estimate: RatioSums = field(default_factory=RatioSums)  # the on side, as estimated without

    @property
    def stage_ms(self) -> list[float]:
        """The sums of the stage times, in the order of `STAGES`."""
        return [us / 1000 for us in self.stage_us.tolist()]

    def add_all(self, records: Sequence[Request], costs: CostTable | None) -> None:
        """Adds requests; ``costs`` is the cost table in force for their engine."""
        numbers = Numbers(records)
        self.n += len(records)
        self.total.frombytes(numbers["total_ms"].tobytes())
        self.routes.update([record.route for record in records])
        for reason, n in Counter([record.reason for record in records]).items():
            if reason:
                bounded_count(self.reasons, reason, n)
        stages = numbers.stages
        self.stage_us += np.rint(stages * 1000).astype(np.int64).sum(axis=1)
        gaps = np.abs(numbers["total_ms"] - stages.sum(axis=0))
        self.unbalanced += int(np.count_nonzero((gaps > 1) & (gaps > 0.02 * numbers["total_ms"])))
        self.oom_count += numbers.total("oom_count")
        memory = max([record.device_memory_bytes or 0 for record in records])
        self.device_memory_bytes = max(self.device_memory_bytes, memory)
        decoded = numbers["forwards"] > 0
        if decoded.any():
            self._add_decoding(*_those(records, numbers, decoded))
        with_drafts = decoded & (numbers["speculation"] > 0)
        self._add_unspeculated(numbers.where(decoded & ~with_drafts))
        if with_drafts.any():
            self._add_speculated(*_those(records, numbers, with_drafts), costs)

    def _add_decoding(self, records: Sequence[Request], numbers: Numbers) -> None:
        for column, name in ((self.ttft, "ttft_ms"), (self.tpot, "tpot_ms")):
            column.frombytes(numbers[name][numbers[name] > 0].tobytes())
        self.reused_tokens += numbers.total("reused_tokens")
        self.new_tokens += numbers.total("new_tokens")
        texts = numbers["text_tokens"]
        _count(self.text_tokens, texts[texts > 0])
        for size, n in Counter(np.minimum(numbers["batch_size"], LONGEST).tolist()).items():
            self.batch_size[int(size)] += n
        drawn = [record.sampling for record in records if record.sampling is not None]
        if len(drawn) < len(records):
            self.sampling["greedy"] += len(records) - len(drawn)
        for sampling in drawn:
            bounded_count(self.sampling, sampling_label(sampling))

    def _add_unspeculated(self, numbers: Numbers) -> None:
        self.unspeculated += len(numbers)
        sampled = numbers.where((numbers["off_fraction"] > 0) & (numbers["committed"] > 0))
        if len(sampled):
            self.sampled_off.add(sampled.decode_ms, sampled["committed"])

    def _add_speculated(self, records: Sequence[Request], numbers: Numbers, costs: CostTable | None) -> None:
        self.forwards += numbers.total("forwards")
        self.committed += numbers.total("committed")
        passes = PassCounts.of([record.passes_by_positions for record in records])
        _count(self.passes, passes.positions, passes.counts)
        if drafted := numbers.total("drafted"):
            self.drafted += drafted
            self.accepted += numbers.total("accepted")
            depths = [record.rejected_depth for record in records if record.rejected_depth]
            _count(self.rejected_depth, _all(depths), _all(table.values() for table in depths))
            self._add_matches([record.by_match for record in records if record.by_match])
        self._add_counterfactual(numbers, passes, costs)

    def _add_matches(self, tables: Iterable[Mapping[str, Mapping[int, tuple[int, int]]]]) -> None:
        found: dict[str, list[tuple[int, tuple[int, int]]]] = {}
        for table in tables:
            for source, lengths in table.items():
                if source in found:
                    found[source] += lengths.items()
                else:
                    found[source] = [*lengths.items()]
        for source, rates in found.items():
            sums = self.by_match.get(source)
            if sums is None:
                key = source if len(self.by_match) < DISTINCT_LIMIT else OTHER
                sums = self.by_match.setdefault(key, [0] * (2 * MATCH_BUCKETS))
            for length, (drafted, accepted) in rates:
                bucket = 2 * length.bit_length() if length < LONGEST else 2 * (MATCH_BUCKETS - 1)
                sums[bucket] += drafted
                sums[bucket + 1] += accepted

    def _add_counterfactual(self, numbers: Numbers, passes: PassCounts, costs: CostTable | None) -> None:
        total_ms, decode_ms, committed = numbers["total_ms"], numbers.decode_ms, numbers["committed"]
        sampled = (numbers["off_fraction"] > 0) & (committed > 0)
        if sampled.any():
            self.sampled_on.add(decode_ms[sampled], committed[sampled])
        if costs is None:
            return
        decode_without = decode_ms_without(costs, committed, numbers["verify_ms"], passes)
        without = total_ms - decode_ms + decode_without
        self.without.frombytes(without.tobytes())
        self.estimated += len(numbers)
        self.with_ms += float(total_ms.sum())
        self.without_ms += float(without.sum())
        self.decode_with_ms += float(decode_ms.sum())
        self.decode_without_ms += float(decode_without.sum())
        if sampled.any():
            self.sampled_estimate.add(decode_without[sampled], committed[sampled])

    def merge(self, other: Group) -> None:
        """Adds another group's sums to this one."""
        memory = max(self.device_memory_bytes, other.device_memory_bytes)
        for field_ in fields(self):
            mine, theirs = getattr(self, field_.name), getattr(other, field_.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            elif isinstance(mine, array):
                mine.extend(theirs)
            elif isinstance(mine, RatioSums):
                mine.merge(theirs)
            elif isinstance(mine, dict):
                for key, sums in theirs.items():
                    mine[key] = [a + b for a, b in zip(mine.get(key, [0] * len(sums)), sums, strict=True)]
            else:
                setattr(self, field_.name, mine + theirs)
        self.device_memory_bytes = memory


def sampling_label(sampling: dict[str, float]) -> str:
    """Sampling parameters without the seed, as one readable key."""
    return ", ".join(f"{name} {value:g}" for name, value in sampling.items() if name != "seed")


def bounded_count(counter: Counter[str], key: str, count: int = 1) -> None:
    """Counts ``key``, or `OTHER` once the table is full: a foreign log must not fill the memory."""
    if key not in counter and len(counter) >= DISTINCT_LIMIT:
        key = OTHER
    counter[key] += count


def _those(
    records: Sequence[Request], numbers: Numbers, mask: np.ndarray
) -> tuple[Sequence[Request], Numbers]:
    if mask.all():
        return records, numbers
    return list(compress(records, mask.tolist())), numbers.where(mask)


def _all(parts: Iterable[Iterable[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(parts), np.int64)


def _count(counts: np.ndarray, places: np.ndarray, times: np.ndarray | None = None) -> None:
    """Raises ``counts`` at ``places``, those beyond its end at its last one, once or ``times`` as often."""
    if len(places):
        bounded = np.minimum(places, len(counts) - 1).astype(np.intp)
        counts += np.bincount(bounded, times, len(counts)).astype(np.int64)
