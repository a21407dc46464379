"""What differs between a workspace and its index: the files to read, and those that have no place in it any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from cache.ignore_rules import EXCLUDE, RULE_FILES
from cache.segment import IndexedFile
from cache.workspace import FileEntry, Skipped, Workspace

MAX_TEXT_BYTES = 64 << 20  # of all indexed files; the longest untouched are left out
MANY_PATHS = 200  # more changes than this are cheaper looked at in one walk than one by one


class Differences(NamedTuple):
    """What to do about an index. Paths are relative to the root."""

    changed: list[FileEntry]  # new or changed, oldest first
    gone: set[str]  # known, and not to be found any more
    crowded: set[str]  # those of them that only had no room


def concerns_all(workspace: Workspace, paths: Collection[str]) -> bool:
    """Whether changes of these paths may concern files that are not named: then everything is looked at.

    A directory that came stands for all in it, and an ignore file decides about others.
    """
    return len(paths) > MANY_PATHS or any(_is_wide(workspace, path) for path in paths)


def differences(
    workspace: Workspace,
    known: Mapping[str, IndexedFile],
    paths: Collection[str] | None,
    skipped: Counter[str],
) -> Differences:
    """Looks at ``paths``, or at everything; counts in ``skipped`` why files were left out."""
    seen: Iterable[FileEntry | Skipped | None]
    if paths is None:
        looked_at = set(known)
        seen = workspace.walk()
    else:
        seen = [workspace.entry(path) for path in paths]
        named = [item.path for item in seen if item is not None]
        looked_at = {path for path in known if any(path == n or path.startswith(n + "/") for n in named)}
    found: dict[str, FileEntry] = {}
    for item in seen:
        if isinstance(item, FileEntry):
            found[item.path] = item
        elif item is not None:
            skipped[item.reason] += 1
    kept = {path: file for path, file in known.items() if path not in looked_at}
    crowded = _crowded([*found.values(), *kept.values()])
    if crowded:
        skipped["over the limit"] += len(crowded)
    wanted = [entry for path, entry in found.items() if path not in crowded]
    wanted.sort(key=lambda entry: (entry.mtime_ns, entry.path))
    changed = [e for e in wanted if (old := known.get(e.path)) is None or old[1:3] != e[1:3]]
    gone = (looked_at - {entry.path for entry in wanted}) | (crowded & set(known))
    return Differences(changed, gone, crowded)


def _crowded(files: list[FileEntry | IndexedFile]) -> set[str]:
    """The paths for which there is no room, newest first; a time of 0 is one too recent to be relied on."""
    room = MAX_TEXT_BYTES
    out = set()
    for file in sorted(files, key=lambda file: (file.mtime_ns == 0, file.mtime_ns, file.path), reverse=True):
        room -= file.size
        if room < 0:
            out.add(file.path)
    return out


def _is_wide(workspace: Workspace, path: str) -> bool:
    directory = Path(path)
    if directory.parts[-3:] == EXCLUDE.parts:
        return True
    if directory.name in RULE_FILES:
        directory = directory.parent
    elif not directory.is_dir() or directory.is_symlink():
        return False
    return workspace.entry(directory) is None  # in one that is skipped, nothing is indexed
