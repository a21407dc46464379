"""`spec-complete index [DIR] [--stats] [--clear]`: build or inspect a workspace's n-gram index."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cache import models
from cache.frozen_index import directory_for, indexes_of
from cache.history import file_for
from cache.index_builder import BuildStats, IndexBuilder, read_stats, remove
from cache.paths import history_dir, index_dir
from cache.workspace import REASONS, Workspace
from lsp_server.settings import resolve
from speculation.tokenizer import Tokenizer

STAGES = {"scan": "looking for files", "read": "indexing", "merge": "merging"}


class NotAWorkspaceError(Exception):
    """The directory to index cannot be used."""

    exit_code = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "directory", nargs="?", default=".", metavar="DIR", help="workspace root (default: .)"
    )
    parser.add_argument("--model", metavar="NAME|PATH", help="the model whose tokenizer is used")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--stats", action="store_true", help="show what is indexed, build nothing")
    action.add_argument("--clear", action="store_true", help="remove the index and the history")


def run(arguments: argparse.Namespace) -> int:
    """Builds, shows or clears; returns the exit code."""
    root = Path(arguments.directory)
    if not root.is_dir():
        raise NotAWorkspaceError(f"{root} is not a directory")
    if arguments.clear:
        return _clear(root)
    if arguments.stats:
        return _stats(root)
    return _build(root, arguments.model)


def _build(root: Path, model: str | None) -> int:
    settings, _ = resolve()
    name = model or settings.model or models.default_model(settings.device)
    tokenizer = Tokenizer.from_file(models.resolve(name).tokenizer)
    workspace = Workspace(root, secret_patterns=settings.secret_patterns)
    builder = IndexBuilder(directory_for(index_dir(), root, tokenizer.hash), workspace, tokenizer.encode)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("indexing", total=None)
        stats = builder.run(
            on_progress=lambda now: bar.update(
                task, completed=now.read, total=now.to_read, description=STAGES[now.stage]
            )
        )
    for damage in stats.damaged:
        print(
            f"spec-complete: dropped a damaged segment and indexed its files again: {damage}", file=sys.stderr
        )
    _show(root, stats)
    return 0


def _stats(root: Path) -> int:
    found = [directory for directory in indexes_of(index_dir(), root) if read_stats(directory)]
    for directory in found:
        _show(root, read_stats(directory) or BuildStats())
    if not found:
        print(f"{root} has no index: run spec-complete index {root}")
    return 0


def _clear(root: Path) -> int:
    """Removes the indexes of every tokenizer, and the history."""
    indexes = indexes_of(index_dir(), root)
    for directory in indexes:
        remove(directory)
    history = file_for(history_dir(), str(root))
    had_history = history.exists()
    history.unlink(missing_ok=True)
    print(f"{root}: removed {len(indexes)} indexes{' and the history' if had_history else ''}")
    return 0


def _show(root: Path, stats: BuildStats) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("workspace", escape(str(root.resolve())))
    table.add_row("files", f"{stats.files:,}")
    table.add_row("tokens", f"{stats.tokens:,}")
    table.add_row("text", f"{stats.text_bytes / 1e6:,.1f} MB")
    table.add_row("on disk", f"{stats.disk_bytes / 1e6:,.1f} MB in {stats.segments} segments")
    table.add_row("read now", f"{stats.read:,} files")
    table.add_row("build time", f"{stats.seconds:.1f} s")
    for reason, count in stats.skipped.most_common():
        table.add_row(f"skipped: {reason}", f"{count:,}  ({REASONS[reason]})")
    console.print(table)
