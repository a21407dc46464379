"""The summary as one self-contained HTML page: no script, no network, readable on a phone, light and dark.

Every figure is an element that names the place it was taken from (``data-path``) and how it is rounded
(``data-as``), so that what the page shows can be checked against the JSON, which the page carries as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from lsp_server import stats_shapes as shapes
from lsp_server import stats_text as text

FORMATS: dict[str, Callable[[Any], str]] = {
    "amount": text.amount,
    "ms": text.bare_ms,
    "time": text.milliseconds,
    "percent": text.percent,
    "number": text.number,
    "times": text.times,
}
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # the page can't reach the network
OUTCOMES = ("offered", "shown", "accepted", "partial", "rejected", "superseded", "undecided")


def page(summary: Mapping[str, Any]) -> str:
    """The whole page."""
    return Page(summary).render()


def look_up(summary: Mapping[str, Any], path: str) -> Any:
    """The value at a ``data-path``: keys and list positions as a JSON array."""
    value: Any = summary
    for step in json.loads(path):
        value = value[step]
    return value


class Page:
    """Builds the page's sections from the summary."""

    def __init__(self, summary: Mapping[str, Any]) -> None:
        self._summary = summary
        self._overall = summary["overall"]
        self._rows = [("groups", i) for i in range(len(summary["groups"]))]

    def render(self) -> str:
        """The page as HTML text."""
        style = files(__package__).joinpath("stats_page.css").read_text(encoding="utf-8")
        data = json.dumps(self._summary, ensure_ascii=False).replace("<", "\\u003c")
        sections = self._sections() if self._overall["n"] else ["<p>No request in this log and time.</p>"]
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>spec-complete latency report</title><style>{style}</style></head><body>"
            f'<h1>Completion latency</h1><p class="quiet">{escape(text.log_line(self._summary))}</p>'
            f'{"".join(sections)}<script type="application/json" id="summary">{data}</script></body></html>\n'
        )

    def _sections(self) -> list[str]:
        by = self._summary["by"]
        return [
            self._tiles(),
            _section(f"Latency by {by}", self._latency(), "Milliseconds. Block p50, tick p95, line to p99."),
            *self._over_time(),
            _section("Where the time goes", self._stages(), "Mean milliseconds of a request, by stage."),
            _section("What speculation saves", self._saving() + self._speculation()),
            _section("Acceptance by source and match length", self._sources(), SOURCES_NOTE),
            *self._costs(),
            _section("What became of the answers", self._outcomes(), OUTCOMES_NOTE),
            '<div class="pair">',
            self._bars("Total time in ms", text.bins(self._overall["total_ms"]["histogram"])),
            self._bars("Accepted before a draft failed", self._depths()),
            self._bars("Output tokens", text.bins(self._overall["output_tokens"]["histogram"])),
            "</div>",
            _section("Also", "".join(f"<p>{escape(line)}</p>" for line in text.fact_lines(self._overall))),
        ]

    def _tiles(self) -> str:
        tiles = (
            (
                "Requests",
                self._figure("amount", "n"),
                self._figure("amount", "outcomes", "offered") + " answers with text",
            ),
            (
                "Total, median",
                self._figure("time", "total_ms", "p50"),
                "p95 " + self._figure("time", "total_ms", "p95"),
            ),
            (
                "First token, median",
                self._figure("time", "ttft_ms", "p50"),
                "p95 " + self._figure("time", "ttft_ms", "p95"),
            ),
            (
                "Tokens per forward",
                self._figure("number", "drafting", "tokens_per_forward"),
                self._figure("number", "drafting", "expected_tokens_per_forward") + " expected from α",
            ),
            (
                "Speed-up, estimated",
                self._figure("times", "saving", "speedup"),
                "on decoding " + self._figure("times", "saving", "decode_speedup"),
            ),
            (
                "Taken of shown",
                self._figure("percent", "outcomes", "taken_share_of_shown"),
                "still there " + self._figure("percent", "outcomes", "kept_share"),
            ),
        )
        cells = "".join(
            f"<div><dt>{name}</dt><dd>{value}</dd><dd>{more}</dd></div>" for name, value, more in tiles
        )
        return f'<dl class="tiles">{cells}</dl>'

    def _latency(self) -> str:
        def cells(row: Sequence[Any]) -> list[str]:
            spreads = ("total_ms", "ttft_ms", "tpot_ms")
            figures = [self._figure("ms", name, f"p{q}", row=row) for name in spreads for q in (50, 95, 99)]
            total = look_up(self._summary, json.dumps([*row, "total_ms"]))
            drawing = shapes.latency_range(total["p50"], total["p95"], total["p99"])
            return [self._figure("amount", "n", row=row), *figures, _Plot(drawing)]

        marks = (0.1, 1, 10, 100, 1000, 10_000)
        places = "".join(
            f'<span style="left:{shapes.latency_place(ms):.0f}%">{text.amount(ms) if ms >= 1 else ms}</span>'
            for ms in marks
        )
        scale = f'<div class="scale">{places}</div>'
        quantiles = [f"{name} p50 p95 p99".split() for name in ("total", "ttft", "tpot")]
        headings = [f"{name}<br>{q}" for name, *qs in quantiles for q in qs]
        return self._table(["n", *headings, _Plot(scale)], cells)

    def _over_time(self) -> list[str]:
        groups = self._summary["groups"]
        if self._summary["by"] != "hour" or len(groups) < 2:
            return []
        series = [[group["total_ms"][q] for group in groups] for q in ("p50", "p95")]
        label = f"p50 and p95 of the total time from {groups[0]['key']} to {groups[-1]['key']}"
        top = text.milliseconds(max(series[1]))
        drawing = shapes.lines(range(len(groups)), *series, label=label)
        figure = _chart(drawing, top, groups[0]["key"], groups[-1]["key"])
        return [
            _section("Over time", figure, "Total time per hour with requests; p50 drawn through, p95 dashed.")
        ]

    def _stages(self) -> str:
        names = list(self._overall["stages"])
        longest = max(
            sum(stage["mean_ms"] for stage in group["stages"].values()) for group in self._summary["groups"]
        )

        def cells(row: Sequence[Any]) -> list[str]:
            stages = look_up(self._summary, json.dumps([*row, "stages"]))
            parts = [
                (
                    name.removesuffix("_ms"),
                    stages[name]["mean_ms"] / (longest or 1),
                    text.milliseconds(stages[name]["mean_ms"]),
                )
                for name in names
            ]
            figures = [self._figure("ms", "stages", name, "mean_ms", row=row) for name in names]
            return [_Plot(shapes.stack(parts)), *figures, self._figure("amount", "unbalanced", row=row)]

        titles = [name.removesuffix("_ms") for name in names]
        legend = "".join(f'<span><i style="background:var(--{title})"></i>{title}</span>' for title in titles)
        return f'<div class="legend">{legend}</div>' + self._table([_Plot(""), *titles, "unbalanced"], cells)

    def _saving(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in text.saving_lines(self._overall["saving"]))

    def _speculation(self) -> str:
        columns = {
            "forwards": ("amount", "forwards"),
            "tokens per<br>forward": ("number", "tokens_per_forward"),
            "expected": ("number", "expected_tokens_per_forward"),
            "accepted": ("percent", "acceptance_rate"),
            "α": ("number", "alpha"),
            "draft<br>length": ("number", "mean_draft_length"),
            "accepted<br>length": ("number", "mean_accepted_length"),
            "draft<br>share": ("percent", "draft_share"),
            "verify<br>share": ("percent", "verify_share"),
        }
        saving = ("speedup", "decode_speedup")

        def cells(row: Sequence[Any]) -> list[str]:
            drafting = [self._figure(form, "drafting", name, row=row) for form, name in columns.values()]
            return drafting + [self._figure("times", "saving", name, row=row) for name in saving]

        return self._table(
            [*columns, "speed-up<br>estimated", "on<br>decoding"], cells, ("drafting", "forwards")
        )

    def _sources(self) -> str:
        by_match = self._overall["by_match"]
        buckets = sorted({int(bucket) for lengths in by_match.values() for bucket in lengths})
        rows = []
        for source in self._overall["by_source"]:
            cells = [self._figure("amount", "by_source", source, "drafted")]
            cells.append(self._figure("percent", "by_source", source, "acceptance_rate"))
            for bucket in map(str, buckets):
                known = bucket in by_match.get(source, {})
                cells.append(
                    self._figure("percent", "by_match", source, bucket, "acceptance_rate")
                    if known
                    else text.NOTHING
                )
            rows.append((escape(source), cells))
        return _table(["source", "drafted", "all", *(f"{bucket}+" for bucket in buckets)], rows)

    def _costs(self) -> list[str]:
        made = []
        for i, cost in enumerate(self._summary["costs"]):
            name = f"{cost['model']} · {cost['engine']} · {cost['device']}"
            label = f"t(m) from {cost['positions'][0]} to {cost['positions'][-1]} positions"
            drawing = shapes.lines(cost["positions"], cost["pass_ms"], label=label)
            top = text.milliseconds(max(cost["pass_ms"]))
            lengths = list(cost["break_even_alpha"])
            alphas = [
                self._figure("number", "break_even_alpha", length, row=("costs", i)) for length in lengths
            ]
            body = _chart(drawing, top, str(cost["positions"][0]), f"{cost['positions'][-1]} positions")
            body += _table(["draft length", *lengths], [("break-even α", alphas)])
            made.append(_section(f"Cost of a pass, t(m): {escape(name)}", body, COSTS_NOTE))
        return made

    def _outcomes(self) -> str:
        def cells(row: Sequence[Any]) -> list[str]:
            counts = [self._figure("amount", "outcomes", name, row=row) for name in OUTCOMES]
            shares = ("taken_share_of_shown", "kept_share")
            return counts + [self._figure("percent", "outcomes", name, row=row) for name in shares]

        return self._table([*OUTCOMES, "taken of<br>shown", "kept<br>30 s"], cells, ("outcomes", "offered"))

    def _depths(self) -> list[tuple[str, int]]:
        return text.depth_bins(self._overall["drafting"]["rejected_depth"])

    def _bars(self, title: str, shape: Sequence[tuple[str, int]]) -> str:
        if not shape:
            return ""
        most = max(n for _, n in shape) or 1
        rows = "".join(
            f"<tr><td>{label}</td><td>{shapes.bar(n / most)}</td><td>{text.amount(n)}</td></tr>"
            for label, n in shape
        )
        return _section(title, f'<table class="bars">{rows}</table>')

    def _table(
        self, headings: Sequence[str], cells: Callable[[Sequence[Any]], list[str]], needs: Sequence[str] = ()
    ) -> str:
        """One row a group, those that have something at ``needs``, and one for all."""
        rows = [
            (escape(look_up(self._summary, json.dumps([*row, "key"]))), cells(row))
            for row in self._rows
            if not needs or look_up(self._summary, json.dumps([*row, *needs]))
        ]
        if len(rows) > 1:
            rows.append(("all", cells(("overall",))))
        return _table([self._summary["by"], *headings], rows)

    def _figure(self, form: str, *path: str, row: Sequence[Any] = ("overall",)) -> str:
        place = json.dumps([*row, *path], ensure_ascii=False)
        shown = FORMATS[form](look_up(self._summary, place))
        return f'<span data-path="{escape(place)}" data-as="{form}">{shown}</span>'


class _Plot(str):
    """A cell that holds a drawing."""


def _table(headings: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    head = "".join(f"<th{' class=plot' if isinstance(h, _Plot) else ''}>{h}</th>" for h in headings)
    body = ""
    for name, cells in rows:
        made = "".join(
            f'<td class="plot">{c}</td>' if isinstance(c, _Plot) else f"<td>{c}</td>" for c in cells
        )
        body += f"<tr{' class=all' if name == 'all' else ''}><td>{name}</td>{made}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _chart(drawing: str, top: str, first: str, last: str) -> str:
    """A drawing between the label of its top and those of its ends."""
    ends = f"<span>{escape(first)}</span><span>{escape(last)}</span>"
    above, below = (f'<div class="axis">{labels}</div>' for labels in (f"<span>{top}</span>", ends))
    return f"<figure>{above}{drawing}{below}</figure>"


def _section(title: str, body: str, note: str = "") -> str:
    quiet = f'<p class="quiet">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{quiet}{body}</section>"


SOURCES_NOTE = "Share of drafted tokens that were accepted, by tokens that agreed with the source."
OUTCOMES_NOTE = "Answers with text; each counts once. Shown: on screen for 250 ms or more, or taken."
COSTS_NOTE = "As measured. α: chance that a looked-at drafted token is accepted. From break-even on it pays."
