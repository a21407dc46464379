"""What a verify pass costs: t(m) milliseconds for m positions, measured and kept per device, engine, dtype and model.

The table is stepped, not linear: kernels work in blocks. It is profiled once in under two seconds, stored, and
follows every pass that is timed afterwards. What a busy machine got wrong heals: by timed passes, and by profiling
again after a week.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from time import perf_counter

from speculation.verifier.base import Verifier

MOST_POSITIONS = 64
PROFILED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
CONTEXT = 384  # tokens in the slot while profiling
BUDGET_S = 1.6
RATE = 0.05  # how far one timed pass moves its entry
OUTLIER = 3.0  # a pass that took longer than so many times what is known counts as that
FAR = 32  # a kept table must have been measured up to here: drafts can be that long
KEPT_S = 7 * 24 * 3600.0  # older tables are profiled again


class CostTable:
    """t(m) for m = 1…64: measured at some m, straight lines between, never falling.

    Where a larger size was measured faster than a smaller one, both are disturbed: they share their mean, so that
    one slow time does not lift all that come after it.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        """``measured``: milliseconds by positions; at least one entry.

        Raises:
            ValueError: no entry, or one that is not a positive time.
        """
        if not measured or any(m < 1 or not 0 < ms < 1e6 for m, ms in measured.items()):
            raise ValueError("a cost table needs positive milliseconds for 1 or more positions")
        self.measured = {int(m): float(measured[m]) for m in sorted(measured)}
        self._changed_by = 0.0
        self.ms = self._interpolated()

    @classmethod
    def flat(cls, ms: float = 1.0) -> CostTable:
        """Passes that cost the same whatever their size."""
        return cls({1: ms})

    def __call__(self, positions: int) -> float:
        """t(positions) in milliseconds."""
        return self.ms[min(positions, MOST_POSITIONS)]

    def update(self, positions: int, ms: float) -> None:
        """A pass over ``positions`` took ``ms``."""
        known = self.measured.get(positions, self(positions))
        if not 0 < ms < float("inf"):
            return
        ms = min(ms, OUTLIER * known)  # not left out: an entry that is far too low must be able to rise
        self.measured[positions] = known + RATE * (ms - known)
        self._changed_by += RATE * abs(ms - known) / known
        if self._changed_by > RATE:  # not worth a new table for every pass
            self.ms = self._interpolated()
            self._changed_by = 0.0

    def _interpolated(self) -> list[float]:
        """Index m holds t(m); index 0 repeats t(1)."""
        known = _rising(sorted(self.measured.items()))
        table = []
        for m in range(MOST_POSITIONS + 1):
            low = max((k for k in known if k[0] <= m), default=known[0])
            high = min((k for k in known if k[0] >= m), default=known[-1])
            if low[0] == high[0] or m < known[0][0]:
                table.append(low[1])
            elif m > known[-1][0]:
                table.append(known[-1][1])
            else:
                part = (m - low[0]) / (high[0] - low[0])
                table.append(low[1] + part * (high[1] - low[1]))
        return list(accumulate(table, max))  # rounding


def _rising(measured: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The never falling times that are nearest to the measured ones (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []  # sum and count of sizes that share their mean
    for _, ms in measured:
        total, count = ms, 1
        while pools and pools[-1][0] * count > total * pools[-1][1]:
            total, count = total + pools[-1][0], count + pools[-1][1]
            pools.pop()
        pools.append((total, count))
    smooth = [total / count for total, count in pools for _ in range(count)]
    return [(m, ms) for (m, _), ms in zip(measured, smooth, strict=True)]


def profile(verifier: Verifier, budget_s: float = BUDGET_S) -> CostTable:
    """Measures t(m) on a slot of its own, in rounds over all sizes so that a disturbance hits none alone.

    Of each size the fastest pass counts: whatever else the machine does can only make one slower.
    """
    capabilities = verifier.capabilities
    sizes = _sizes(verifier)
    context = min(CONTEXT, capabilities.max_context - max(sizes))
    tokens = [(7 * n) % min(capabilities.vocab_size, 1000) for n in range(max(context, max(sizes)))]
    times: dict[int, list[float]] = {m: [] for m in sizes}
    began = perf_counter()
    slot = verifier.open_slot()
    try:
        for at in range(0, context, capabilities.prefill_chunk):
            verifier.prefill(slot, tokens[at : min(at + capabilities.prefill_chunk, context)])
        verifier.verify(slot, tokens[:1])  # the first pass pays for what is built lazily
        while True:
            for m in sizes:
                started = perf_counter()
                verifier.verify(slot, tokens[:m])
                times[m].append((perf_counter() - started) * 1e3)
                whole_round = len(times[sizes[-1]]) > 0  # a busy machine still gets every size measured
                if perf_counter() - began > budget_s and whole_round:
                    return CostTable({size: min(ms) for size, ms in times.items()})
    finally:
        verifier.close_slot(slot)


def table_path(folder: Path, verifier: Verifier) -> Path:
    """Where the table of a verifier is kept."""
    import torch  # here: who only reads tables, as `stats` does, starts without it

    capabilities = verifier.capabilities
    threads = f"{torch.get_num_threads()}t"
    parts = (
        capabilities.device,
        threads,
        capabilities.engine,
        capabilities.dtype,
        Path(capabilities.model).name,
    )
    return folder / ("costs-" + "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts) + ".json")


def save(table: CostTable, path: Path) -> None:
    """Writes a table; a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({str(m): round(ms, 3) for m, ms in sorted(table.measured.items())}))
    partial.replace(path)


def load(path: Path) -> CostTable | None:
    """A table that was saved or written by hand (``{"1": 23, "8": 34}``); None where there is none to be read."""
    try:
        return CostTable(
            {int(m): float(ms) for m, ms in json.loads(path.read_text(encoding="utf-8")).items()}
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def costs_of(verifier: Verifier, folder: Path) -> CostTable:
    """The table of a verifier: the kept one where it is whole and recent, or profiled now and kept."""
    path = table_path(folder, verifier)
    table = load(path)
    if table is None or not _usable(table, verifier) or _age_s(path) > KEPT_S:
        table = profile(verifier)
        save(table, path)
    return table


def _sizes(verifier: Verifier) -> list[int]:
    return [m for m in PROFILED if m < verifier.capabilities.max_context // 2]


def _usable(table: CostTable, verifier: Verifier) -> bool:
    """Whether a plain pass and long drafts were measured, and not only lines drawn between."""
    return 1 in table.measured and max(table.measured) >= min(FAR, max(_sizes(verifier)))


def _age_s(path: Path) -> float:
    try:
        return abs(time.time() - path.stat().st_mtime)
    except OSError:
        return float("inf")
