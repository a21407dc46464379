"""How much of an accepted text is still in the document some time later.

Looked for line by line near where it was inserted, so that it costs the event loop little: a line that is
there whole counts whole, an edited one with what is the same at its start and at its end. Indentation and
line ends don't count: editors change them by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

NEARBY_LINES = 40  # how far edits elsewhere may have moved it


def kept_share(text: str, lines: Sequence[str]) -> float:
    """The share (0–1) of the characters of ``text`` that ``lines`` still have; each line is used once."""
    pieces = [piece.strip() for piece in text.split("\n") if piece.strip()]
    free = [line.strip() for line in lines]
    whole = sum(map(len, pieces))
    edited = []
    kept = 0
    for piece in pieces:
        at = next((i for i, line in enumerate(free) if piece in line), None)
        if at is None:
            edited.append(piece)
        else:
            kept += len(piece)
            free[at] = free[at].replace(piece, "", 1)
    for piece in edited:
        best = max(range(len(free)), key=lambda i: _in_common(piece, free[i]), default=None)
        if best is not None:
            kept += _in_common(piece, free[best])
            free[best] = ""
    return kept / whole if whole else 0.0


def _in_common(piece: str, line: str) -> int:
    """What an edited line has kept of a piece: the same start, and the same end behind it."""
    start = _same_start(piece, line)
    return start + _same_start(piece[start:][::-1], line[start:][::-1])


def _same_start(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
