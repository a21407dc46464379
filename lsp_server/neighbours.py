"""Other open files of the same root for the prompt, most stable first.

The files used last come in, ordered by when they last changed: what changes most stands last, so that the
beginning of the prompt keeps its KV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lsp_server.documents import Document
from lsp_server.gate import path_of, root_of

MOST_FILES = 3


def neighbours(
    document: Document,
    others: Iterable[Document],
    roots: Sequence[str],
    allowed: Callable[[Document], bool],
    characters: int,
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(path relative to the root, lines) of the files to put into the prompt of ``document``.

    Args:
        others: open documents, most recently used last.
        allowed: whether a document may be in a prompt at all.
        characters: most text in all.
    """
    root = root_of(path_of(document.uri), roots)
    if not root or characters <= 0:
        return ()
    near = [
        other
        for other in others
        if other is not document
        and other.language == document.language
        and root_of(path_of(other.uri), roots) == root
        and allowed(other)
    ][-MOST_FILES:]
    share = characters // len(near) if near else 0
    near.sort(key=lambda other: other.changed_s)
    return tuple(
        (path_of(other.uri)[len(root) :].lstrip("/"), _head(other.snapshot(), share)) for other in near
    )


def _head(lines: Sequence[str], characters: int) -> tuple[str, ...]:
    """The first whole lines, ``characters`` at most."""
    taken = 0
    for number, line in enumerate(lines):
        taken += len(line) + 1
        if taken > characters:
            return tuple(lines[:number])
    return tuple(lines)
