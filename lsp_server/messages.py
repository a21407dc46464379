"""Parameters of the messages we parse ourselves: unpacked with checks, so that a malformed request gets an
answer.

Positions may be past the end (they are clamped later); a negative one, or one that is no integer, is
malformed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INVOKED, AUTOMATIC = 1, 2


class InvalidParamsError(ValueError):
    """A message that does not have the shape the protocol asks for (JSON-RPC −32602)."""


@dataclass(frozen=True, slots=True)
class Position:
    line: int
    character: int


@dataclass(frozen=True, slots=True)
class SelectedCompletion:
    """The entry selected in the editor's list: its text, and the range it would replace."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True, slots=True)
class InlineCompletionParams:
    """`textDocument/inlineCompletion`."""

    uri: str
    position: Position
    trigger: int  # INVOKED or AUTOMATIC
    selected: SelectedCompletion | None = None

    @property
    def invoked(self) -> bool:
        return self.trigger == INVOKED


def inline_completion_params(params: Any) -> InlineCompletionParams:
    """Unpacks the parameters of an inline completion request; raises `InvalidParamsError`."""
    context = _get(params, "context", dict)
    trigger = _get(context, "triggerKind", int)
    if trigger not in (INVOKED, AUTOMATIC):
        raise InvalidParamsError(f"context.triggerKind is {trigger}; it must be 1 (invoked) or 2 (automatic)")
    selected = context.get("selectedCompletionInfo")
    return InlineCompletionParams(
        uri=_get(_get(params, "textDocument", dict), "uri", str),
        position=position(_get(params, "position", dict)),
        trigger=trigger,
        selected=None if selected is None else _selected(selected),
    )


def position(value: Any) -> Position:
    """Unpacks a protocol position; raises `InvalidParamsError`."""
    line, character = _get(value, "line", int), _get(value, "character", int)
    if line < 0 or character < 0:
        raise InvalidParamsError(f"position {line}:{character} is negative")
    return Position(line, character)


def request_id(params: Any) -> int | str:
    """The request that a `$/cancelRequest` is about."""
    found = params.get("id") if isinstance(params, dict) else None
    if not isinstance(found, (int, str)):
        raise InvalidParamsError("id is missing")
    return found


def document_uri(params: Any) -> str:
    """The document a notification is about."""
    return _get(_get(params, "textDocument", dict), "uri", str)


def content_changes(params: Any) -> list[Any]:
    """The changes of a `didChange`."""
    return _get(params, "contentChanges", list)


def environment(params: Any) -> dict[str, str] | None:
    """The variables that are set where a client runs; None where it does not tell."""
    told = params.get("environment") if isinstance(params, dict) else None
    if not isinstance(told, dict):
        return None
    return {name: value for name, value in told.items() if isinstance(value, str)}


def _selected(value: Any) -> SelectedCompletion:
    span = _get(value, "range", dict)
    start, end = position(_get(span, "start", dict)), position(_get(span, "end", dict))
    return SelectedCompletion(start, end, _get(value, "text", str))


def _get(value: Any, name: str, kind: type) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise InvalidParamsError(
            f"{name} is missing or is not {'an' if kind is int else 'a'} {kind.__name__}"
        )
    return found


@dataclass(frozen=True, slots=True)
class OpenedDocument:
    """`textDocument/didOpen`."""

    uri: str
    language: str
    version: int
    text: str


def opened_document(params: Any) -> OpenedDocument:
    """Unpacks a `didOpen`."""
    document = _get(params, "textDocument", dict)
    version = document.get("version")
    return OpenedDocument(
        _get(document, "uri", str),
        str(document.get("languageId", "")),
        version if isinstance(version, int) else 0,
        _get(document, "text", str),
    )


def document_version(params: Any) -> int | None:
    """The version a change leads to, where the client counts them."""
    version = _get(params, "textDocument", dict).get("version")
    return version if isinstance(version, int) else None


def completion_id(params: Any) -> str:
    """The id in the command of an item that a client shows or accepts."""
    arguments = _get(_get(_get(params, "item", dict), "command", dict), "arguments", list)
    if not arguments or not isinstance(arguments[0], str):
        raise InvalidParamsError("item.command.arguments does not hold the completion's id")
    return arguments[0]


def insert_text(params: Any) -> str:
    """The text of an item that a client shows or accepts."""
    return str(_get(_get(params, "item", dict), "insertText", str))


def accepted_length(params: Any) -> int:
    """How much of an item was accepted, in UTF-16 units."""
    return int(_get(params, "acceptedLength", int))


def folder_changes(params: Any) -> tuple[list[str], list[str]]:
    """URIs of the workspace folders that were added and removed."""
    event = _get(params, "event", dict)
    added, removed = event.get("added") or [], event.get("removed") or []
    return [_get(folder, "uri", str) for folder in added], [_get(folder, "uri", str) for folder in removed]


def changed_files(params: Any) -> list[str]:
    """URIs of a `didChangeWatchedFiles`."""
    return [_get(change, "uri", str) for change in _get(params, "changes", list)]
