"""What is replayed: the hunks between two releases of a package, one completion each.

A hunk is a `difflib` opcode ``replace`` or ``insert`` whose new text has at least 20 characters when stripped.
Before the cursor stand lines of the new file, after it lines of the old one; the workspace is the old release.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.packages import SOURCE_SUFFIXES, Release, archive, sources

RELEASES = tuple(
    Release.parse(text)
    for text in (
        "flask==3.0.0:3.1.0",
        "httpx==0.27.0:0.28.1",
        "rich==13.7.0:14.0.0",
        "click==8.1.7:8.2.1",
        "black==24.1.0:25.1.0",
        "starlette==0.37.0:0.46.0",
    )
)
SMALLEST = 20  # characters of stripped new text that make a hunk


@dataclass(frozen=True, slots=True)
class Window:
    """How many lines stand before and after the cursor."""

    before: int
    after: int


WIDE = Window(120, 40)  # truth
NARROW = Window(60, 25)  # what the model is prompted with


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place where the new release differs: the text around it and what was written there."""

    package: str
    path: str
    line: int  # 0-based, in the new file
    before: str
    after: str
    replaced: str
    written: str

    @property
    def name(self) -> str:
        """Package, path and line, to find it again."""
        return f"{self.package}/{self.path}:{self.line + 1}"


def hunks(package: str, old: Mapping[str, str], new: Mapping[str, str], window: Window) -> Iterator[Hunk]:
    """Every hunk between two releases, in path and line order."""
    for path in sorted(old.keys() & new.keys()):
        before, after = old[path].splitlines(keepends=True), new[path].splitlines(keepends=True)
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            written = "".join(after[j1:j2])
            if tag in ("replace", "insert") and len(written.strip()) >= SMALLEST:
                yield Hunk(
                    package=package,
                    path=path,
                    line=j1,
                    before="".join(after[max(0, j1 - window.before) : j1]),
                    after="".join(before[i2 : i2 + window.after]),
                    replaced="".join(before[i1:i2]),
                    written=written,
                )


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One package's upgrade: the old release, which is the workspace, and the hunks to the new one."""

    release: Release
    workspace: Mapping[str, str]
    hunks: tuple[Hunk, ...]


def upgrade(release: Release, window: Window, suffixes: tuple[str, ...] = SOURCE_SUFFIXES) -> Upgrade:
    """Fetches both releases and cuts them into hunks. Only the old release's files are in the workspace."""
    old, new = (
        sources(archive(release.index, release.name, version), suffixes)
        for version in (release.old, release.new)
    )
    found = tuple(hunks(release.name, old, new, window))
    workspace = workspace_of(old, new)
    unseen = set(new.values()) - set(old.values())
    if unseen.intersection(workspace.values()):
        raise AssertionError(f"text of the new release is in the workspace of {release.name}")
    return Upgrade(release, workspace, found)


def workspace_of(old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str]:
    """What the editor would have on disk: the old release, and nothing of the new one."""
    return old
