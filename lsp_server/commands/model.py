"""`spec-complete model pull|list|path|verify`: fetch models, and see what is there."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.table import Table

from cache import models
from cache.progress import working

DAMAGED = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    pull = actions.add_parser("pull", help="fetch a model, check it and convert it once")
    pull.add_argument("name", metavar="NAME")
    pull.add_argument("--from", dest="origin", choices=("hub", "mirror"), help="default: hub, then mirror")
    actions.add_parser("list", help="show the known models and which are ready")
    path = actions.add_parser("path", help="print the directory of a pulled model")
    path.add_argument("name", metavar="NAME")
    verify = actions.add_parser("verify", help="recompute the hashes of a pulled model")
    verify.add_argument("name", metavar="NAME")


def run(arguments: argparse.Namespace) -> int:
    """Runs the chosen action; returns the exit code."""
    if arguments.action == "pull":
        return _pull(arguments.name, arguments.origin)
    if arguments.action == "list":
        return _list()
    if arguments.action == "path":
        print(models.resolve(arguments.name).directory)
        return 0
    return _verify(arguments.name)


def _pull(name: str, origin: str | None) -> int:
    files = models.pull_model(name, origin)
    with working(f"Preparing {name} for this device"):
        _prepare(name)
    print(f"{name} is ready: {files.directory}", file=sys.stderr)
    return 0


def _prepare(name: str) -> None:
    """Loads the model once: quantised weights and the cost of a pass are then kept for every later start."""
    from speculation.loading import LoadingError, load_engine

    try:
        load_engine(name)
    except (LoadingError, MemoryError) as error:
        print(f"spec-complete: {name} is there, but does not run here: {error}", file=sys.stderr)


def _list() -> int:
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "size", "licence", "fill-in-the-middle", "state", "remarks"):
        table.add_column(heading, no_wrap=True)
    for entry in models.catalogue().values():
        remarks = [f"default on {device}" for device in entry.default_for]
        remarks += ["untried"] if entry.untried else []
        remarks += [] if entry.commercial else ["no commercial use"]
        table.add_row(
            entry.name,
            f"{entry.bytes / 1e9:.1f} GB" if entry.bytes else "-",
            entry.licence,
            "yes" if entry.fim else "no",
            "ready" if models.is_ready(entry.name) else "not pulled",
            ", ".join(remarks),
        )
    console = Console()
    Console(width=None if console.is_terminal else 160).print(table)
    return 0


def _verify(name: str) -> int:
    results = models.verify(name)
    for path, intact in results:
        print(f"{'ok' if intact else 'DAMAGED'}  {path}")
    if all(intact for _, intact in results):
        return 0
    print(f"spec-complete: {name} is damaged: run spec-complete model pull {name}", file=sys.stderr)
    return DAMAGED
