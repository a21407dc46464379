"""`spec-complete index [DIR] [--stats] [--clear]`: build or inspect a workspace's n-gram index."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cache import history, models
from cache.frozen_index import directory_for, indexes_of
from cache.index_builder import BuildStats, IndexBuilder, IndexBusyError, read_stats, remove, unreadable
from cache.index_failures import failed_builds
from cache.paths import history_dir, index_dir
from cache.workspace import REASONS, Workspace
from lsp_server.settings import resolve
from speculation.tokenizer import Tokenizer

PATIENCE_S = 3.0  # with who is building an index that is to be cleared
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
    if arguments.clear:
        return _clear(root)
    if not root.is_dir():
        raise NotAWorkspaceError(f"{root} is not a directory")
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
    for where, what in failed_builds(index_dir()).items():
        if where == os.path.realpath(root):
            print(f"the last build failed: {what}")
    if not found:
        print(f"{root} has no index: run spec-complete index {root}")
    return 0


def _clear(root: Path) -> int:
    """Removes the history and the indexes of every tokenizer; the workspace itself may be gone.

    What cannot be read belongs to nobody and goes, too. The history comes first: it cannot be made again.
    """
    try:
        found = indexes_of(index_dir(), root)
        had_history = history.remove(history_dir(), str(root))
    except FileNotFoundError:  # "." in a directory that was deleted
        raise NotAWorkspaceError(f"{root} is not a directory") from None
    except BlockingIOError:
        raise IndexBusyError("the history is being written; run the command again") from None
    if not root.is_dir() and not found and not had_history:
        raise NotAWorkspaceError(f"{root} is not a directory")
    for directory in unreadable(index_dir()):
        with contextlib.suppress(IndexBusyError):
            remove(directory)
    busy = [directory for directory in found if not _removed(directory)]
    done = ["the history"] * had_history
    if len(found) > len(busy):
        done.insert(0, f"{len(found) - len(busy)} index{'es' * (len(found) - len(busy) > 1)}")
    if done or not busy:
        print(f"{root}: removed {' and '.join(done) or 'nothing, there was nothing'}")
    if busy:
        raise IndexBusyError(
            f"the index of {root} is being built by another process; when that is done, run: "
            f"spec-complete index --clear {shlex.quote(str(root))}"
        )
    return 0


def _removed(directory: Path) -> bool:
    """Builds are short, mostly: one in progress is waited for a little."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            remove(directory)
            return True
        except IndexBusyError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.2)


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
