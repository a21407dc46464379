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
    where.add_argument(
        "--tcp",
        type=_loopback,
        metavar="HOST:PORT",
        help="serve clients on a TCP port of this machine (0: any); every user of it can connect",
    )
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


def _loopback(text: str) -> tuple[str, int]:
    """``[HOST:]PORT`` where only this machine can connect; whoever can sees what is open in the editor."""
    import ipaddress
    import socket

    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r}: write HOST:PORT, as in 127.0.0.1:4000")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise argparse.ArgumentTypeError(f"{host!r} is no host that can be found: {error}") from error
    if not all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found):
        raise argparse.ArgumentTypeError(
            f"{host!r} is not this machine alone, and there is no password: serve on 127.0.0.1, and reach it"
            " from elsewhere through an SSH tunnel"
        )
    return host, int(port)


def _can_share() -> bool:
    """Whether processes can share a model here: by Unix sockets, in a directory where only we can put them."""
    import socket

    if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
        return False
    from lsp_server.daemon import DaemonError, EngineChoice

    try:
        EngineChoice().socket_path()
    except DaemonError as error:
        print(f"spec-complete: {error}; this editor gets a process of its own", file=sys.stderr)
        return False
    return True
