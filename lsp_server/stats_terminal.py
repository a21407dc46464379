"""The summary in the terminal: tables, with small bars where a shape says more than a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from lsp_server.stats_text import (
    NOTHING,
    amount,
    bare_ms,
    bins,
    depth_bins,
    fact_lines,
    log_line,
    number,
    percent,
    saving_lines,
    times,
)

BAR_WIDTH = 24
STAGE_TITLES = {"tokenise_ms": "toke-\nnise", "prefill_ms": "pre-\nfill"}  # tables fit 80 columns
Rows = Sequence[Mapping[str, Any]]


def show(summary: Mapping[str, Any]) -> None:
    """Prints the summary. What a log says is shown literally: as no markup, and without control characters."""
    summary = _printable(summary)
    console = Console(highlight=False, markup=False, emoji=False)
    overall, by = summary["overall"], summary["by"]
    console.print(log_line(summary), soft_wrap=True)
    if not overall["n"]:
        return
    rows = [*summary["groups"], {"key": "all", **overall}]
    tables = [
        _latency(by, rows),
        _stages(by, rows),
        _speculation(by, rows),
        _outcomes(by, rows),
        _sources(overall),
        _costs(summary["costs"]),
    ]
    for table in tables:
        if table.row_count:
            console.print(table)
    for line in saving_lines(overall["saving"]):
        console.print(line, soft_wrap=True)
    console.print()
    for title, shape in (
        ("total time in ms", bins(overall["total_ms"]["histogram"])),
        ("tokens accepted before a draft failed", depth_bins(overall["drafting"]["rejected_depth"])),
        ("output tokens", bins(overall["output_tokens"]["histogram"])),
    ):
        if shape:
            console.print(_bars(title, shape))
    for line in fact_lines(overall):
        console.print(line, soft_wrap=True)


def _printable(value: Any) -> Any:
    """The same data; characters that a terminal would obey or hide are spelled out, as in ``\\x1b``."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value)
    if isinstance(value, Mapping):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return value


def _latency(by: str, rows: Rows) -> Table:
    table = _table("Latency in ms: p50 / p95 / p99", by, "n", "total", "ttft", "tpot")
    for row in rows:
        cells = [
            " / ".join(bare_ms(row[name][f"p{q}"]) for q in (50, 95, 99)) if row[name]["n"] else NOTHING
            for name in ("total_ms", "ttft_ms", "tpot_ms")
        ]
        table.add_row(row["key"], amount(row["n"]), *cells)
    return table


def _stages(by: str, rows: Rows) -> Table:
    names = list(rows[0]["stages"])
    titles = [STAGE_TITLES.get(name, name.removesuffix("_ms")) for name in names]
    table = _table("Where the time goes: mean ms, share", by, *titles, "unbal-\nanced")
    for row in rows:
        stages = [row["stages"][name] for name in names]
        cells = [f"{bare_ms(stage['mean_ms'])}\n{percent(stage['share'])}" for stage in stages]
        table.add_row(row["key"], *cells, amount(row["unbalanced"]))
    return table


def _speculation(by: str, rows: Rows) -> Table:
    headings = (
        "for-\nwards",
        "tokens/\nforward",
        "ex-\npected",
        "ac-\ncepted",
        "α",
        "draft\nlength",
        "accept.\nlength",
        "speed-up\n(est.)",
    )
    table = _table("Speculation", by, *headings)
    for row in rows:
        drafting = row["drafting"]
        if drafting["forwards"]:
            table.add_row(
                row["key"],
                amount(drafting["forwards"]),
                number(drafting["tokens_per_forward"]),
                number(drafting["expected_tokens_per_forward"]),
                percent(drafting["acceptance_rate"]),
                number(drafting["alpha"]),
                number(drafting["mean_draft_length"]),
                number(drafting["mean_accepted_length"]),
                times(row["saving"]["speedup"]),
            )
    return table


def _outcomes(by: str, rows: Rows) -> Table:
    counted = {
        "offered": "of-\nfered",
        "shown": "shown",
        "accepted": "ac-\ncepted",
        "partial": "partly",
        "rejected": "re-\njected",
        "superseded": "super-\nseded",
        "undecided": "un-\ndecided",
    }
    table = _table("Outcomes of answers with text", by, *counted.values(), "taken/\nshown", "kept\n30 s")
    for row in rows:
        outcomes = row["outcomes"]
        if outcomes["offered"]:
            shares = [outcomes["taken_share_of_shown"], outcomes["kept_share"]]
            table.add_row(row["key"], *(amount(outcomes[name]) for name in counted), *map(percent, shares))
    return table


def _sources(overall: Mapping[str, Any]) -> Table:
    buckets = sorted({int(b) for lengths in overall["by_match"].values() for b in lengths})
    title = "Acceptance by source and match length"
    table = _table(title, "source", "drafted", "all", *(f"{bucket}+" for bucket in buckets))
    for source, rates in overall["by_source"].items():
        lengths = overall["by_match"].get(source, {})
        cells = [percent(lengths.get(str(b), {}).get("acceptance_rate")) for b in buckets]
        table.add_row(source, amount(rates["drafted"]), percent(rates["acceptance_rate"]), *cells)
    return table


def _costs(costs: Rows) -> Table:
    lengths = sorted({int(length) for table in costs for length in table["break_even_alpha"]})
    table = _table("Break-even acceptance α by draft length", "engine", "t(1) ms", *map(str, lengths))
    for cost in costs:
        cells = [number(cost["break_even_alpha"].get(str(length))) for length in lengths]
        name = f"{cost['model']} · {cost['engine']} · {cost['device']}"
        table.add_row(name, bare_ms(cost["pass_ms"][0]), *cells)
    return table


def _bars(title: str, shape: Sequence[tuple[str, int]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right", min_width=12)
    table.add_column(width=BAR_WIDTH)
    table.add_column(justify="right")
    most = max(n for _, n in shape)
    for label, n in shape:
        table.add_row(label, Bar(most, 0, n, width=BAR_WIDTH), amount(n))
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(
        title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="left" if position == 0 else "right", no_wrap=position > 0)
    return table
