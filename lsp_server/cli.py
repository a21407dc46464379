"""The `spec-complete` command: picks the subcommand, and turns expected errors into one clear line.

Subcommands are imported when they are chosen, so that `spec-complete serve` starts without torch.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from lsp_server.output import give_up, make_robust

COMMANDS = {
    "serve": "run the language server",
    "complete": "complete a file at a position and print the text",
    "model": "fetch, list and check models",
    "settings": "print the settings in force, or their schema",
    "index": "build or inspect a workspace's n-gram index",
    "stats": "summarise the latency log",
    "doctor": "show device, engine, model and paths, and what is wrong with them",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; returns its exit code (0 done, 2 bad input, 3 no model, 4 out of memory)."""
    make_robust()
    parser = argparse.ArgumentParser(
        prog="spec-complete", description="Inline code completion on your own machine."
    )
    parser.add_argument("--version", action="version", version=f"spec-complete {version()}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        if name == chosen:
            importlib.import_module(f"lsp_server.commands.{name}").configure(subparser)
    parsed = parser.parse_args(arguments)
    command = importlib.import_module(f"lsp_server.commands.{parsed.command}")
    try:
        code = int(command.run(parsed))
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk is still our error to report
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output went away: not our error
        give_up()
        return 0
    except Exception as error:
        expected = getattr(error, "exit_code", None)
        if isinstance(error, OSError) and expected is None:
            give_up()
            at = f" ({error.filename})" if error.filename is not None else ""
            print(f"spec-complete: {error.strerror or error}{at}", file=sys.stderr)
            return 2
        if expected is None:
            raise
        print(f"spec-complete: {error}", file=sys.stderr)
        return int(expected)


def version() -> str:
    """The installed distribution's version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as distribution_version

    try:
        return distribution_version("spec-complete")
    except PackageNotFoundError:
        return "0+unknown"


if __name__ == "__main__":
    sys.exit(main())
