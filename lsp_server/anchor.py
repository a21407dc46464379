"""The anchor of a document's prompt: held while the user types on, so that prefix and suffix keep their KV.

It moves when anything but the typed text changed, when the cursor left it, or when the forced middle grew
long.
"""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.documents import Place
from lsp_server.reuse import closed_by_editor
from speculation.request import FrozenPrompt

MOST_LINES = 8  # of forced middle before the anchor moves


@dataclass(frozen=True, slots=True)
class _Held:
    place: Place  # where the anchor was set
    suffix: str
    frozen: FrozenPrompt


class Anchor:
    """One document's anchor. Used by the worker thread only, which is the one to build prompts."""

    def __init__(self) -> None:
        self._held: _Held | None = None

    def at(self, place: Place) -> tuple[int, FrozenPrompt]:
        """The anchor line for a request at ``place``, and prefix and suffix as they were when it was set."""
        held = self._held
        if held is None or not self._fits(held, place):
            prefix = "".join(line + "\n" for line in place.lines[: place.line])
            suffix = _suffix(place)
            held = self._held = _Held(place, suffix, FrozenPrompt(prefix, suffix))
        return held.place.line, held.frozen

    @staticmethod
    def _fits(held: _Held, place: Place) -> bool:
        anchor = held.place.line
        if not anchor <= place.line <= anchor + MOST_LINES:
            return False
        if held.place.lines is not place.lines and held.place.lines[:anchor] != place.lines[:anchor]:
            return False
        return closed_by_editor(_suffix(place), held.suffix)


def _suffix(place: Place) -> str:
    return "\n".join([place.after, *place.lines[place.line + 1 :]])
