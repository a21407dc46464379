"""What must hold of the engine, line by line, and what a report says of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Report = dict[str, Any]
SECOND_MODEL = "smollm2-135m-q4"


@dataclass(frozen=True, slots=True)
class Bound:
    """One line: where the value is in a report, and its limit."""

    part: str
    name: str
    path: tuple[str, ...]
    sign: Literal["<=", ">="]
    limit: float
    n: tuple[str, ...] = ()  # where the report says of how many
    beside: tuple[tuple[str, tuple[str, ...]], ...] = ()  # figures to show with it

    def line(self, report: Report) -> Report:
        """The value with its limit and whether it holds; one that was not measured has no value and is not ok."""
        found = _at(report, self.path)
        value = _number(found)
        ok = value is not None and (value <= self.limit if self.sign == "<=" else value >= self.limit)
        line: Report = {
            "part": self.part,
            "name": self.name,
            "value": value,
            "limit": f"{self.sign} {self.limit}",
        }
        if (interval := _interval(found)) is not None:
            line["interval"] = interval
        if self.n and (count := _at(report, self.n)) is not None:
            line["n"] = count
        for label, path in self.beside:
            line[label] = _at(report, path)
        return {**line, "ok": ok}

    def text(self, line: Report) -> str:
        """The line for people."""
        if line["value"] is None:
            return f"----  {self.name}: not measured (--only {self.part})"
        more = "".join(
            f", {label} {line[label]}"
            for label in ("interval", "n", *(b[0] for b in self.beside))
            if label in line
        )
        return (
            f"{'ok  ' if line['ok'] else 'MISS'}  {self.name}: {line['value']} (limit {line['limit']}){more}"
        )


def _ratio(size: str, rival: str, limit: float) -> Bound:
    label = "llama.cpp" if rival == "llama" else rival.replace("-", " ")
    own, other = ("costs", "ms", "int8", size), ("costs", "ms", rival, size)
    return Bound(
        "costs",
        f"{size} / {label}",
        ("costs", "ratio", rival, size),
        "<=",
        limit,
        ("costs", "rounds"),
        (("ms", own), ("rival's ms", other)),
    )


def _errors(model: str) -> list[Bound]:
    beside = ("error", model, "bfloat16")
    n = ("error", model, "positions")
    return [
        Bound(
            "error",
            f"argmax equal to float32, {model}",
            ("error", model, "int8", "argmax_equal"),
            ">=",
            0.955,
            n,
            (("bfloat16's", (*beside, "argmax_equal")),),
        ),
        Bound(
            "error",
            f"mean KL from float32 (nats), {model}",
            ("error", model, "int8", "mean_kl"),
            "<=",
            0.01,
            n,
            (("bfloat16's", (*beside, "mean_kl")),),
        ),
    ]


def bounds_for(model: str) -> list[Bound]:
    """Every line, for a default model of this name."""
    conduct = ("cancellation", "n")
    return [
        _ratio("t(1)", "llama", 1.05),
        _ratio("t(8)", "llama", 0.45),
        _ratio("t(32)", "llama", 0.5),
        _ratio("prefill", "llama", 0.6),
        _ratio("t(1)", "transformers-bfloat16", 0.33),
        Bound("invariance", "kinds of passes whose bits differ", ("invariance", "different"), "<=", 0),
        Bound(
            "edits", "edit scripts whose bits differ", ("edits", "different"), "<=", 0, ("edits", "scripts")
        ),
        *(
            Bound(
                "on-off",
                f"texts that forced drafts change, {sampling}",
                ("on-off", sampling, "differences"),
                "<=",
                0,
                ("on-off", sampling, "prompts"),
            )
            for sampling in ("greedy", "sampled")
        ),
        *_errors(model),
        *(_errors(SECOND_MODEL) if model != SECOND_MODEL else ()),
        Bound("keystrokes", "new tokens a keystroke", ("keystrokes", "mean"), "<=", 3, ("keystrokes", "n")),
        Bound(
            "keystrokes",
            "new tokens when going back",
            ("keystrokes", "return"),
            "<=",
            3,
            ("keystrokes", "returns"),
        ),
        Bound(
            "cancellation",
            "passes begun after a cancel",
            ("cancellation", "passes_after_cancel"),
            "<=",
            0,
            conduct,
        ),
        Bound(
            "cancellation",
            "a prefill chunk (ms)",
            ("cancellation", "chunk_ms"),
            "<=",
            100,
            ("cancellation", "chunks"),
            (("tokens", ("cancellation", "chunk")), ("longest wait", ("cancellation", "longest_wait_ms"))),
        ),
        Bound(
            "ready", "seconds from process start to ready", ("ready", "ready_s"), "<=", 5.0, ("ready", "n")
        ),
        Bound("ready", "peak memory of the server (GB)", ("ready", "peak_gb"), "<=", 1.7, ("ready", "n")),
        *(
            Bound(
                "trees",
                f"tokens a forward, trees, drafts free, {stream}",
                ("trees", stream, "tokens_per_forward"),
                ">=",
                limit,
                ("trees", stream, "n"),
            )
            for stream, limit in (("model", 2.95), ("truth", 3.1))
        ),
        Bound(
            "trees",
            "gain with trees / without, measured costs",
            ("trees", "with / without"),
            ">=",
            1.0,
            ("trees", "measured", "n"),
        ),
        Bound(
            "wrong-use", "misuses that are not refused", ("wrong-use", "allowed"), "<=", 0, ("wrong-use", "n")
        ),
        Bound(
            "wrong-use",
            "misuses that change the cache",
            ("wrong-use", "changing"),
            "<=",
            0,
            ("wrong-use", "n"),
        ),
    ]


def _at(report: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(report, dict) or key not in report:
            return None
        report = report[key]
    return report


def _number(found: Any) -> float | None:
    """A figure; of one with its interval the figure, of a list of names their number."""
    if isinstance(found, dict):
        found = found.get("value")
    elif isinstance(found, list):
        found = found[0] if found and isinstance(found[0], (int, float)) else len(found)
    return None if found is None else round(float(found), 4)


def _interval(found: Any) -> list[float] | None:
    if isinstance(found, dict):
        return [found["low"], found["high"]]
    return found[1:] if isinstance(found, list) and len(found) == 3 and isinstance(found[0], float) else None
