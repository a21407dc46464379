"""`spec-complete serve`: the language server."""

from __future__ import annotations

import argparse
import sys
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
    if arguments.socket is None and arguments.tcp is None and not arguments.no_daemon and _can_share():
        from lsp_server.frontend import relay_standard_streams

        return relay_standard_streams()
    from lsp_server.process import serve

    return serve(arguments)


def _can_share() -> bool:
    """Whether processes can share a model here: by Unix sockets, which not every platform has."""
    import socket

    return hasattr(socket, "AF_UNIX") and sys.platform != "win32"
