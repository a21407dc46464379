"""The entry selected in the editor's completion list: an answer has to begin with it and keep its range."""

from __future__ import annotations

from lsp_server.documents import Place
from lsp_server.items import Offer
from lsp_server.messages import Position, SelectedCompletion
from lsp_server.positions import Encoding, to_index


def is_around(selected: SelectedCompletion, position: Position, place: Place) -> bool:
    """Whether the entry replaces what the cursor is at; another answer than that has no use for it."""
    start, end = selected.start, selected.end
    return (
        start.line == end.line == position.line == place.line
        and start.character <= position.character <= end.character
    )


def with_selected(place: Place, selected: SelectedCompletion, encoding: Encoding) -> Place:
    """The place as it would be with the selected entry inserted."""
    line = place.lines[place.line]
    start = to_index(line, selected.start.character, encoding)
    end = to_index(line, selected.end.character, encoding)
    changed = line[:start] + selected.text + line[end:]
    return Place(
        (*place.lines[: place.line], changed, *place.lines[place.line + 1 :]),
        place.line,
        start + len(selected.text),
    )


def without_replaced(offer: Offer, place: Place) -> Offer:
    """For an item that must keep the editor's range: what stands after the cursor is not said again."""
    after = place.after[: offer.replaced]
    if after and offer.text.endswith(after):
        return Offer(offer.id, offer.text[: -len(after)])
    return Offer(offer.id, offer.text)
