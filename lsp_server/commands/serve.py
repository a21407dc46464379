"""`spec-complete serve`: the language server."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run the language server"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--stdio", action="store_true", help="serve one client on standard streams (the default)"
    )
    where.add_argument("--socket", type=Path, metavar="PATH", help="serve clients on a Unix socket")
    where.add_argument("--tcp", metavar="HOST:PORT", help="serve clients on a TCP port (0: any)")
    parser.add_argument(
        "--no-daemon", action="store_true", help="run the model in this process instead of the shared one"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until the client is gone."""
    from lsp_server.process import serve

    return serve(arguments)
