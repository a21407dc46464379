"""`spec-complete stats`: what the latency log says, in the terminal, as JSON or as one HTML page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

BY = ("route", "source", "language", "model", "hour")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "logs", nargs="*", type=Path, metavar="LOG", help="log files (default: this user's log)"
    )
    parser.add_argument("--since", default="", metavar="WHEN", help="an age (30m, 6h, 7d, 2w) or a date")
    parser.add_argument("--by", choices=BY, default="route", help="what to group by (default: route)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON object")
    output.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
    output.add_argument("--schema", action="store_true", help="print the JSON Schema of the log's lines")


def run(arguments: argparse.Namespace) -> int:
    """Prints or writes the summary."""
    if arguments.schema:
        from lsp_server.telemetry_schema import schema

        print(json.dumps(schema(), indent=2))
        return 0
    from lsp_server.stats import summarise
    from lsp_server.stats_log import StatsError, log_files, since_stamp

    logs = list(arguments.logs)
    if not logs:
        from cache.paths import log_dir
        from lsp_server.telemetry_writer import LOG_NAME

        logs = log_files(log_dir() / LOG_NAME)
        if not logs and not arguments.html:  # a page without data says so itself
            raise StatsError(f"no log yet in {log_dir()}: complete something first, or name a log file")
    summary = summarise(logs, arguments.by, since_stamp(arguments.since) if arguments.since else "")
    if arguments.json:
        print(json.dumps(summary, indent=2))  # ASCII: the same on a pipe of any encoding
    elif arguments.html:
        from lsp_server.stats_html import page

        try:
            arguments.html.write_text(page(summary), encoding="utf-8")
        except OSError as error:
            raise StatsError(f"cannot write {arguments.html}: {error.strerror}") from error
        print(f"wrote {arguments.html}", file=sys.stderr)
    else:
        from lsp_server.stats_terminal import show

        show(summary)
    return 0
