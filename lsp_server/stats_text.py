"""How figures are worded and rounded, in the terminal and on the HTML page alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NOTHING = "–"
SPACE = "\N{NO-BREAK SPACE}"  # between digits and before units: a figure never breaks over lines


def amount(value: float | None) -> str:
    """A count, with spaces at the thousands."""
    return NOTHING if value is None else f"{value:,.0f}".replace(",", SPACE)


def bare_ms(value: float | None) -> str:
    """A time in milliseconds without its unit, three significant digits."""
    if value is None:
        return NOTHING
    size_ = abs(value)
    return amount(value) if size_ >= 99.5 else f"{value:.1f}" if size_ >= 9.95 else f"{value:.2f}"


def milliseconds(value: float | None) -> str:
    """A time with its unit, ms or s, three significant digits."""
    if value is None or abs(value) < 9_995:
        return NOTHING if value is None else f"{bare_ms(value)}{SPACE}ms"
    return f"{bare_ms(value / 1000)}{SPACE}s"


def percent(value: float | None) -> str:
    """A share; small ones keep a decimal."""
    if value is None:
        return NOTHING
    return (
        f"{value * 100:.0f}{SPACE}%" if abs(value) >= 0.0995 or value == 0 else f"{value * 100:.1f}{SPACE}%"
    )


def number(value: float | None) -> str:
    """A ratio or a mean, two decimals."""
    return NOTHING if value is None else f"{value:.2f}"


def times(value: float | None) -> str:
    """A speed-up."""
    return NOTHING if value is None else f"{value:.2f}{SPACE}×"


def size(value: float | None) -> str:
    """Bytes as MB."""
    return NOTHING if value is None else f"{amount(value / 1e6)}{SPACE}MB"


def bins(histogram: Sequence[Mapping[str, Any]], unit: str = "") -> list[tuple[str, int]]:
    """A histogram's names and counts, without the empty bins at both ends."""
    filled = [i for i, bin_ in enumerate(histogram) if bin_["n"]]
    shown = histogram[filled[0] : filled[-1] + 1] if filled else []
    return [(f"{_range(bin_['from'], bin_['to'])}{unit}", bin_["n"]) for bin_ in shown]


def depth_bins(depths: Mapping[str, int], last: int = 16) -> list[tuple[str, int]]:
    """The rejected depths' names and counts, those from ``last`` on together."""
    counts = {int(depth): n for depth, n in depths.items()}
    shown = [(str(depth), counts.get(depth, 0)) for depth in range(min(last, max(counts, default=-1) + 1))]
    rest = sum(n for depth, n in counts.items() if depth >= last)
    return [*shown, (f"≥{SPACE}{last}", rest)] if rest else shown


def _range(low: float, high: float | None) -> str:
    if high is None:
        return f"≥{SPACE}{amount(low)}"
    return amount(low) if low == high else f"{amount(low)}–{amount(high)}"


def log_line(summary: Mapping[str, Any]) -> str:
    """What was read, and what was not."""
    log = summary["log"]
    text = f"{amount(log['requests'])} requests and {amount(log['outcomes'])} outcomes"
    if log["first"]:
        text += f", {log['first'][:16].replace('T', ' ')} to {log['last'][:16].replace('T', ' ')} UTC"
    faults = {
        "truncated": "cut short or not JSON",
        "foreign": "of another kind or version",
        "lost": "lost by the writer",
        "outcomes_without_request": "outcomes whose request is not here",
    }
    told = [f"{words} {amount(log[name])}" for name, words in faults.items() if log[name]]
    return text + (f"; left out: {', '.join(told)}" if told else "")


def saving_lines(saving: Mapping[str, Any]) -> list[str]:
    """What speculation saved, with what that rests on."""
    estimated, sampled = amount(saving["estimated_requests"]), saving["sampled"]
    if not saving["estimated_requests"]:
        first = "Saving unknown: no decoded request has a measured cost table t(m) in the log."
    else:
        saved = f"{'saved' if saving['saved_ms'] >= 0 else 'cost'} {milliseconds(abs(saving['saved_ms']))}"
        first = (
            f"Speculation {saved} of {milliseconds(saving['without_ms'])}"
            f" (estimated over {estimated} decoded requests): {times(saving['speedup'])} on the whole answer,"
            f" {times(saving['decode_speedup'])} on decoding."
        )
    measured = sampled["measured_decode_speedup"]
    if not measured:
        return [
            first,
            "Not checked by sampling: too few requests were answered without speculation for comparison.",
        ]
    interval = f"{times(measured['value'])} [{number(measured['low'])}, {number(measured['high'])}]"
    return [
        first,
        f"Checked by sampling: decoding measured {interval} from {amount(sampled['on'])} requests on and"
        f" {amount(sampled['off'])} off, where the estimate is {times(sampled['estimated_decode_speedup'])}.",
    ]


def fact_lines(group: Mapping[str, Any]) -> list[str]:
    """Counts that need no table."""
    titles = {"dropped for": "reasons", "sampling": "sampling", "batch size": "batch_size"}
    lines = [
        f"{title}: " + ", ".join(f"{key} ({amount(n)})" for key, n in group[name].items())
        for title, name in titles.items()
        if group[name]
    ]
    prompt, memory = group["prompt"], size(group["device_memory_bytes"])
    return [
        *lines,
        f"prompt tokens: {amount(prompt['reused_tokens'])} reused, {amount(prompt['new_tokens'])} evaluated",
        f"out-of-memory events: {amount(group['oom_count'])}; device memory at most {memory}",
    ]
