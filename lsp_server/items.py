"""The inline completion items of the protocol.

The range is always sent, lies on one line and begins at the line's start; what it covers is a prefix of
`insertText` or, where the text replaces closed brackets, is given as `filterText`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lsp_server.documents import Place
from lsp_server.messages import SelectedCompletion
from lsp_server.positions import Encoding, to_column

ACCEPT_COMMAND = "specComplete.accept"


@dataclass(frozen=True, slots=True)
class Offer:
    """Text to insert at a place, over ``replaced`` characters behind the cursor."""

    id: str
    text: str
    replaced: int = 0


def item(offer: Offer, place: Place, encoding: Encoding) -> dict[str, Any]:
    """The item of an offer at the cursor."""
    line = place.lines[place.line]
    end = place.column + offer.replaced
    insert, replaced = place.before + offer.text, line[:end]
    made = _item(offer, insert, _range(place.line, 0, to_column(line, end, encoding)))
    if not insert.startswith(replaced):
        made["filterText"] = replaced
    return made


def item_for_selected(offer: Offer, selected: SelectedCompletion) -> dict[str, Any]:
    """The item of an offer that goes on behind the entry selected in the editor's list.

    It keeps its range.
    """
    return _item(
        offer,
        selected.text + offer.text,
        _range(selected.start.line, selected.start.character, selected.end.character),
    )


def result(items: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The answer to a request; null where there is nothing to offer."""
    return {"items": list(items)} if items else None


def _item(offer: Offer, insert: str, span: dict[str, Any]) -> dict[str, Any]:
    command = {"title": "Completion accepted", "command": ACCEPT_COMMAND, "arguments": [offer.id]}
    return {"insertText": insert, "range": span, "command": command}


def _range(line: int, start: int, end: int) -> dict[str, Any]:
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
