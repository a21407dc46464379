"""What is added up for one group of requests: counts, sums, and columns of exact values for percentiles.

Memory: at most 32 bytes a request (four float columns); everything else is bounded by `DISTINCT_LIMIT` and
`LONGEST`, whatever is in the log.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field, fields

from lsp_server.stats_formulas import RatioSums, decode_ms_without
from lsp_server.stats_log import Request
from lsp_server.telemetry import STAGES
from speculation.costs import CostTable

DISTINCT_LIMIT = 64  # distinct keys kept per table; the rest is counted under OTHER
OTHER = "(other)"
LONGEST = 1024  # tokens; longer texts, drafts and passes are counted as this long
MATCH_BUCKETS = 12  # match lengths by their number of binary digits: 0, 1, 2–3, 4–7, … 1024 and more
OUTCOME_RANK = {
    "superseded": 1,
    "rejected": 2,
    "partial": 3,
    "accepted": 4,
}  # a better one replaces a worse one


@dataclass(slots=True)
class Group:
    """Sums over the requests that share a key."""

    n: int = 0
    total: array[float] = field(default_factory=lambda: array("d"))
    ttft: array[float] = field(default_factory=lambda: array("d"))
    tpot: array[float] = field(default_factory=lambda: array("d"))
    without: array[float] = field(default_factory=lambda: array("d"))  # estimated total without speculation
    stage_ms: list[float] = field(default_factory=lambda: [0.0] * len(STAGES))
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
    rejected_depth: list[int] = field(default_factory=lambda: [0] * (LONGEST + 1))
    passes: list[int] = field(default_factory=lambda: [0] * (LONGEST + 1))  # by positions
    by_match: dict[str, list[int]] = field(default_factory=dict)  # drafted, accepted by bucket, by source
    text_tokens: list[int] = field(default_factory=lambda: [0] * (LONGEST + 1))
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

    def add(self, record: Request, costs: CostTable | None) -> None:
        """Adds one request; ``costs`` is the cost table in force for its engine."""
        total = record.total_ms
        self.n += 1
        self.total.append(total)
        self.routes[record.route] += 1
        if record.reason:
            bounded_count(self.reasons, record.reason)
        stages = record.stages()
        sums = self.stage_ms
        for i, ms in enumerate(stages):
            if ms:
                sums[i] += ms
        gap = abs(total - sum(stages))
        if gap > 1 and gap > 0.02 * total:
            self.unbalanced += 1
        self.oom_count += record.oom_count
        if record.device_memory_bytes and record.device_memory_bytes > self.device_memory_bytes:
            self.device_memory_bytes = record.device_memory_bytes
        if record.forwards:
            self._add_decoding(record, costs)

    def _add_decoding(self, record: Request, costs: CostTable | None) -> None:
        if record.ttft_ms > 0:
            self.ttft.append(record.ttft_ms)
        if record.tpot_ms > 0:
            self.tpot.append(record.tpot_ms)
        self.reused_tokens += record.reused_tokens
        self.new_tokens += record.new_tokens
        if record.text_tokens:
            self.text_tokens[min(record.text_tokens, LONGEST)] += 1
        self.batch_size[record.batch_size] += 1
        if record.sampling is None:
            self.sampling["greedy"] += 1
        else:
            bounded_count(self.sampling, sampling_label(record.sampling))
        if record.speculation:
            self._add_drafts(record)
        else:
            self.unspeculated += 1
        self._add_counterfactual(record, costs)

    def _add_drafts(self, record: Request) -> None:
        self.forwards += record.forwards
        self.committed += record.committed
        passes, depths = self.passes, self.rejected_depth
        for positions, count in record.passes_by_positions.items():
            passes[positions if positions < LONGEST else LONGEST] += count
        if not record.drafted:
            return
        self.drafted += record.drafted
        self.accepted += record.accepted
        for depth, count in record.rejected_depth.items():
            depths[depth if depth < LONGEST else LONGEST] += count
        for source, lengths in record.by_match.items():
            sums = self.by_match.get(source)
            if sums is None:
                key = source if len(self.by_match) < DISTINCT_LIMIT else OTHER
                sums = self.by_match.setdefault(key, [0] * (2 * MATCH_BUCKETS))
            for length, (drafted, accepted) in lengths.items():
                bucket = 2 * length.bit_length() if length < LONGEST else 2 * (MATCH_BUCKETS - 1)
                sums[bucket] += drafted
                sums[bucket + 1] += accepted

    def _add_counterfactual(self, record: Request, costs: CostTable | None) -> None:
        decode_ms = record.draft_ms + record.verify_ms
        without: float | None = None
        if record.speculation and costs is not None:
            without = decode_ms_without(costs, record.committed, record.verify_ms, record.passes_by_positions)
            total = record.total_ms - decode_ms + without
            self.without.append(total)
            self.estimated += 1
            self.with_ms += record.total_ms
            self.without_ms += total
            self.decode_with_ms += decode_ms
            self.decode_without_ms += without
        if record.off_fraction > 0 and record.committed:
            if not record.speculation:
                self.sampled_off.add(decode_ms, record.committed)
            else:
                self.sampled_on.add(decode_ms, record.committed)
                if without is not None:
                    self.sampled_estimate.add(without, record.committed)

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
            elif isinstance(mine, list):
                setattr(self, field_.name, [a + b for a, b in zip(mine, theirs, strict=True)])
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
