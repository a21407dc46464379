"""Which documents get completions at all: a table of reasons why not, checked on every request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from cache.secrets import is_secret
from lsp_server.documents import Document
from lsp_server.settings import Settings

SCHEMES = frozenset({"file", "untitled", "vscode-notebook-cell", "vscode-remote"})
ON_DISK = frozenset({"file"})


def path_of(uri: str) -> str:
    """The file system path of a URI; the plain name of what has none (`untitled:Untitled-1`)."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # what editors make up need not be a URI: `scratch://[a]/b.py`
        return unquote(uri.partition(":")[2])
    path = unquote(parts.path)
    if parts.netloc and parts.scheme == "file":
        return f"//{parts.netloc}{path}"
    if len(path) > 2 and path[0] == "/" and path[2] == ":":  # /c:/folder
        return path[1:]
    return path


def scheme_of(uri: str) -> str:
    """What a URI begins with; empty where it has no scheme."""
    head, colon, _ = uri.partition(":")
    return head.lower() if colon else ""


def is_on_disk(uri: str) -> bool:
    """Whether a document may be indexed: untitled ones and notebook cells are not files."""
    return scheme_of(uri) in ON_DISK


def root_of(path: str, roots: Sequence[str]) -> str:
    """The innermost workspace folder that a path lies in, or an empty string."""
    inside = [root for root in roots if PurePath(path).is_relative_to(root)]
    return max(inside, key=len, default="")


def why_not(document: Document, settings: Settings) -> str:
    """The reason code why a document gets no completions; empty where it does."""
    return next(reasons(document, settings), "")


def reasons(document: Document, settings: Settings) -> Iterator[str]:
    """All reason codes why a document gets no completions, one by one."""
    return (code for code, applies in _REASONS if applies(document, settings))


def line_too_long(document: Document, line: int, settings: Settings) -> bool:
    """Whether the cursor's line is longer than is worked on."""
    return len(document.line(min(line, document.line_count - 1))) > settings.max_line_length


_REASONS: tuple[tuple[str, Callable[[Document, Settings], bool]], ...] = (
    ("disabled", lambda document, settings: not settings.enabled),
    ("scheme", lambda document, settings: scheme_of(document.uri) not in SCHEMES),
    ("language_off", lambda document, settings: document.language in settings.disabled_languages),
    ("secret", lambda document, settings: is_secret(path_of(document.uri), settings.secret_patterns)),
    ("out_of_step", lambda document, settings: document.out_of_step),
    ("too_many_lines", lambda document, settings: document.line_count > settings.max_lines),
    ("too_large", lambda document, settings: document.size > settings.max_characters),
)
