"""What the user wrote, a piece at a time: lines that were edited together, once they have been left alone.

Keystrokes are no record of anything; a line or block that stood for a while is. A piece follows its lines as
edits above move them. Pastes and what formatters do are not what the user wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.documents import Edit

QUIET_S = 20.0  # untouched for this long, a piece is finished
MOST_PIECES = (
    32  # of one document at a time, the oldest are dropped: a replacement in many places is no writing
)
MOST_LINES = 200  # of a piece
MOST_CHARACTERS = 4_000  # of a single change, beyond which it was not typed

Record = Callable[[str, str, str], None]  # path, root, text


@dataclass(slots=True, eq=False)
class _Piece:
    root: str
    first: int  # line
    lines: list[str]  # as they are now
    were: list[str]  # as they were before the first edit
    touched_s: float

    @property
    def end(self) -> int:
        """One past its last line."""
        return self.first + len(self.lines)

    def touches(self, edit: Edit) -> bool:
        """Whether an edit is in it, or on the line above or below."""
        return edit.start[0] <= self.end and edit.end[0] >= self.first - 1

    def apply(self, before: Sequence[str], edit: Edit) -> None:
        """Takes in the lines that the edit is on, and edits them."""
        (top, begin), (bottom, stop) = edit.start, edit.end
        above, below = list(before[top : self.first]), list(before[self.end : bottom + 1])
        self.lines = above + self.lines + below
        self.were = above + self.were + below
        self.first = min(self.first, top)
        top, bottom = top - self.first, bottom - self.first
        new = self.lines[top][:begin] + edit.text + self.lines[bottom][stop:]
        self.lines[top : bottom + 1] = new.split("\n")

    def is_written(self) -> bool:
        """Whether there is something that was not there before."""
        return any(line.strip() for line in set(self.lines) - set(self.were))


class SettledEdits:
    """The pieces that are being written. Used by one thread."""

    def __init__(self, record: Record, clock: Callable[[], float] = time.monotonic) -> None:
        """``record`` gets what is finished."""
        self._record = record
        self._clock = clock
        self._pieces: dict[tuple[object, str], list[_Piece]] = {}  # the latest last

    def __len__(self) -> int:
        return sum(map(len, self._pieces.values()))

    def edit(self, owner: object, path: str, root: str, before: Sequence[str], edit: Edit) -> None:
        """A document's text ``before`` was edited. ``owner``: the client whose text it is."""
        pieces = self._pieces.setdefault((owner, path), [])
        touched = [piece for piece in pieces if piece.touches(edit)]
        replaced = edit.end[0] - edit.start[0]
        is_typed = len(edit.text) <= MOST_CHARACTERS and replaced <= MOST_LINES
        for piece in touched[1:] if is_typed else touched:
            pieces.remove(piece)
            self._finish(path, piece)
        for piece in pieces:
            if piece.first > edit.end[0] and piece not in touched:
                piece.first += edit.text.count("\n") - replaced
        if not is_typed:
            return
        if touched:
            pieces.remove(piece := touched[0])
        else:
            lines = list(before[edit.start[0] : edit.end[0] + 1])
            piece = _Piece(root, edit.start[0], lines, lines, 0.0)
        piece.apply(before, edit)
        piece.touched_s = self._clock()
        if len(piece.lines) > MOST_LINES:
            self._finish(path, piece)
        else:
            pieces.append(piece)
            del pieces[:-MOST_PIECES]

    def settle(self, owner: object, path: str) -> None:
        """A document was closed, or replaced as a whole."""
        for piece in self._pieces.pop((owner, path), []):
            self._finish(path, piece)

    def settle_all(self) -> None:
        """No more edits will come."""
        for owner, path in list(self._pieces):
            self.settle(owner, path)

    def settle_quiet(self) -> None:
        """Finishes what has been left alone."""
        latest = self._clock() - QUIET_S
        for (_, path), pieces in self._pieces.items():
            while pieces and pieces[0].touched_s <= latest:
                self._finish(path, pieces.pop(0))

    def quiet_in_s(self) -> float | None:
        """In how many seconds something may be finished; None while nothing is written."""
        oldest = min((pieces[0].touched_s for pieces in self._pieces.values() if pieces), default=None)
        return None if oldest is None else max(0.0, oldest + QUIET_S - self._clock())

    def _finish(self, path: str, piece: _Piece) -> None:
        if piece.is_written():
            self._record(path, piece.root, "\n".join(piece.lines))
