"""Figures as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.peers.bounds import figure_text

Report = Mapping[str, Any]
HEADINGS = {
    "edits": "Edits: hunks between two releases, 64 tokens",
    "fresh": "Fresh: HumanEval problems, 64 tokens",
    "rewrite": "Rewrite: a function again, with one parameter renamed",
    "noise": "Noise: passes over a given text without order",
    "languages": "Edits in other languages",
    "typing": "Typing: changes keystroke by keystroke",
    "truth": "What the developers wrote (no model)",
}
TITLES = {"none": "no stop rule", "product": "the product's stop rules"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def run(report: Report) -> str:
    """Where and with what it ran."""
    machine, peers = report["machine"], report["peers"]
    versions = "; ".join(
        f"{name}: {about.get('version', '')}" + (f", {about['dtype']}" if "dtype" in about else "")
        for name, about in peers.items()
    )
    missing = "".join(f" Not started: {name} ({why})." for name, why in report.get("not_started", {}).items())
    return (
        f"Last run: {report['date']}, {machine['processor']}, {machine['threads']} threads of "
        f"{machine['cores']} cores, {machine['instructions']}, Python {machine['python']}. {versions}.{missing}"
    )


def bounds(report: Report) -> str:
    """What must hold."""
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    rows = [
        (
            line["name"],
            line["limit"],
            figure_text(line["figure"]) if line["figure"] else "–",
            verdicts[line["ok"]],
        )
        for line in report["bounds"]
    ]
    return "### What must hold\n\n" + table(("", "limit", "measured [95 % interval]", ""), rows)


def workload(name: str, figures: Report) -> str:
    """The tables of one workload."""
    heading = f"### {HEADINGS.get(name, name)}"
    if name == "typing":
        return f"{heading}\n\n{typing(figures)}"
    if name == "truth":
        return f"{heading}\n\n{truth(figures)}"
    parts = [heading]
    stops = ("none",) if name in ("noise", "fresh", "rewrite") else ("none", "product")
    for stop in stops:
        if figures[stop]["systems"]:
            parts.append(f"{TITLES[stop].capitalize()}:" if len(stops) > 1 else "")
            parts.append(systems(figures[stop]))
    compared = figures["text_on_off"]
    parts.append(
        f"{figures['tasks']} tasks, prompts of {figures['prompt_tokens'].get('p50', 0):.0f} tokens at the median, "
        f"{figures['tokenised_otherwise']} left out because a peer tokenises them otherwise; "
        f"{compared['different']} of {compared['compared']} texts differ between speculation on and off."
    )
    return "\n\n".join(part for part in parts if part)


def systems(figures: Report) -> str:
    """Every system's figures, and its times as multiples of ours on the same tasks."""
    head = (
        "", "n", "tokens / forward", "ms / token", "first token p50 / p95", "decode p50 / p95", "total p50 / p95",
        "decode ÷ ours", "total ÷ ours", "first line", "similarity", "peak MB",
    )  # fmt: skip
    rows = []
    for name, row in figures["systems"].items():
        ratios = figures["ratios"].get(name, {})
        rows.append(
            (
                name,
                str(row["n"]),
                f"{row['tokens_per_forward']['value']:.2f}",
                f"{row['ms_per_token']['value']:.1f}",
                *(
                    f"{row[key]['p50']:.0f} / {row[key]['p95']:.0f}"
                    for key in ("ttft_ms", "decode_ms", "total_ms")
                ),
                *(interval(ratios.get(key)) for key in ("decode", "total")),
                *(percent(row[key]) for key in ("first_line", "similarity")),
                f"{row['peak_bytes'] / 1e6:.0f}",
            )
        )
    return table(head, rows)


def typing(figures: Report) -> str:
    """Time to ghost text and what it was worth."""
    head = (
        "", "keystrokes", "follows the text, ms p50", "others, ms p50 / p95", "right text showing",
        "characters saved", "CPU s / keystroke", "tokens evaluated / keystroke", "peak MB",
    )  # fmt: skip
    rows = []
    for name in ("ours", "llama"):
        row = figures.get(name)
        if row is None:
            continue
        follows = row["follows_ms"]["value"] if row["follows_ms"] else None
        rows.append(
            (
                name,
                str(row["keystrokes"]),
                "–" if follows is None else f"{follows:.1f}",
                f"{row['others_ms']['p50']:.0f} / {row['others_ms']['p95']:.0f}" if row["others_ms"] else "–",
                percent(row["right_share"]),
                percent(row["saved_share"]),
                f"{row['cpu_s']:.3f}",
                f"{row['evaluated']:.0f}",
                f"{row.get('peak_bytes', 0) / 1e6:.0f}",
            )
        )
    ratio = figures.get("others_ratio")
    said = f"Others, ours ÷ llama.cpp with prompt caching: {figure_text(ratio)}." if ratio else ""
    if compared := figures.get("text_on_off"):
        said += (
            f" {compared['different']} of {compared['compared']} texts made in the middle of the typing differ "
            "between speculation on and off."
        )
    return f"{table(head, rows)}\n\n{said}"


def truth(figures: Report) -> str:
    """Tokens per forward judged against what the developers wrote."""
    ours, lookup = figures["tokens_per_forward"], figures["baselines"]["transformers_prompt_lookup"]
    rows = [
        ("ours", interval(ours)),
        ("transformers' prompt lookup", interval(lookup["tokens_per_forward"])),
        ("ratio", interval(figures["forwards_against_transformers_prompt_lookup"])),
    ]
    return table(("", f"tokens per forward, {figures['n']} hunks, drafts free up to 32"), rows)


def quality(figures: Report) -> str:
    """The infilling benchmark's figures: pass rates, and what they differ by."""
    kinds = ("single", "multi", "all")
    rates = [
        (name, *(rate(by_kind.get(kind)) for kind in kinds)) for name, by_kind in figures["pass_rate"].items()
    ]
    pairs = [
        (
            pair,
            signed(found["all"]),
            f"{found['all']['only_first']} : {found['all']['only_second']}",
            f"{found['all']['p']}",
        )
        for pair, found in figures["difference"].items()
    ]
    holes = figures["holes"]
    return "\n\n".join(
        (
            "### Quality: infilling, tests run",
            f"{figures['date']}: holes cut from the HumanEval solutions, {holes['single']} of one line and "
            f"{holes['multi']} of several (`python -m benchmarks.infilling`). Shares that pass the problem's tests:",
            table(("", "one line", "several lines", "all"), rates),
            table(("difference", "all [95 % interval]", "only one passes", "p (McNemar)"), pairs),
            f"{figures['texts_different_with_speculation']} of "
            f"{figures['texts_compared_with_speculation']} texts differ between speculation on and off.",
        )
    )


def rate(figure: Report | None) -> str:
    """A share with its interval and the number of samples."""
    if not figure or not figure["n"]:
        return "–"
    value, low, high = (percent(figure[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}], n {figure['n']}"


def signed(figure: Report) -> str:
    """A difference of shares in points."""
    value, low, high = (f"{100 * figure[key]:+.1f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def interval(figure: Report | None) -> str:
    """A ratio with its interval."""
    return f"{figure['value']:.2f} [{figure['low']:.2f}, {figure['high']:.2f}]" if figure else "–"


def percent(value: float | None) -> str:
    """A share."""
    return "–" if value is None else f"{100 * value:.0f} %"
