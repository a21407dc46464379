"""The anchor of a document's prompt: held while the user types on, so that prefix and suffix keep their KV.

It moves when anything but the typed text changed, when the cursor left it, or when the forced middle grew
long. Before the last happens the prompt from where the cursor is can be evaluated in idle time (`due`, `ahead`,
`adopt`), so that no request pays for the move.
"""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.documents import Place
from lsp_server.reuse import closed_by_editor
from speculation.request import FrozenPrompt

MOST_LINES = 8  # of forced middle before the anchor moves
DUE_LINES = 3  # of forced middle before it is to move in idle time


@dataclass(frozen=True, slots=True)
class Held:
    """Where an anchor was set, and prefix and suffix as they were then."""

    place: Place
    suffix: str
    frozen: FrozenPrompt


class Anchor:
    """One document's anchor. It is set and moved by the worker thread only, which is the one to build prompts."""

    def __init__(self) -> None:
        self._held: Held | None = None
        self._ready: Held | None = None  # a further one whose prompt is evaluated

    def at(self, place: Place) -> tuple[int, FrozenPrompt]:
        """The anchor line for a request at ``place``, and prefix and suffix as they were when it was set."""
        ready, self._ready = self._ready, None
        if ready is not None and self._fits(ready, place):
            self._held = ready
        held = self._held
        if held is None or not self._fits(held, place):
            held = self._held = self.ahead(place)
        return held.place.line, held.frozen

    def due(self, place: Place) -> bool:
        """Whether the anchor is held for ``place`` but so far above it that it will soon have to move. Any thread."""
        held = self._held
        return held is not None and place.line - held.place.line >= DUE_LINES and self._fits(held, place)

    @staticmethod
    def ahead(place: Place) -> Held:
        """An anchor at ``place``, for `adopt`. Any thread."""
        prefix = "".join(line + "\n" for line in place.lines[: place.line])
        suffix = _suffix(place)
        return Held(place, suffix, FrozenPrompt(prefix, suffix))

    def adopt(self, held: Held) -> None:
        """The prompt of ``held`` is evaluated: the next request that it fits has it for its anchor. Any thread."""
        self._ready = held

    @staticmethod
    def _fits(held: Held, place: Place) -> bool:
        anchor = held.place.line
        if not anchor <= place.line <= anchor + MOST_LINES:
            return False
        if held.place.lines is not place.lines and held.place.lines[:anchor] != place.lines[:anchor]:
            return False
        return closed_by_editor(_suffix(place), held.suffix)


def _suffix(place: Place) -> str:
    return "\n".join([place.after, *place.lines[place.line + 1 :]])
