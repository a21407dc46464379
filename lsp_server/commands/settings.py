"""`spec-complete settings`: the settings in force and where they come from, or their schema."""

from __future__ import annotations

import argparse
import json
import sys

from lsp_server.settings import as_json, resolve, schema, settings_path

HELP = "print the settings in force, or their schema"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema with documentation and defaults"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints JSON on stdout, what was wrong on stderr."""
    if arguments.schema:
        print(json.dumps(schema(), indent=2))
        return 0
    settings, problems = resolve()
    print(json.dumps(as_json(settings), indent=2))
    print(f"settings file: {settings_path()}", file=sys.stderr)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 0
