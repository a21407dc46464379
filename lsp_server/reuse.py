"""Answers that are still good: the user typed (part of) what was offered, or went back to where it was
offered.

Everything compares two texts with cursors: what was typed since, and whether anything else changed. Only
lines near the cursor are compared; what lies further away hardly changes an answer, and the comparison stays
cheap.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lsp_server.brackets import replaced_after
from lsp_server.documents import Place

LINES_ABOVE = 500
LINES_BELOW = 100
TYPED_LINES = 64  # more new lines than any answer has
KEPT_ANSWERS = 16  # per document

_CLOSED_BY_EDITOR = re.compile(r"[\s)\]}>\"'`;]*")


def typed_since(base: Place, now: Place) -> str | None:
    """What was typed at the cursor of ``base`` to come to ``now``; None if anything else changed.

    Brackets and quotes that the editor closed behind the cursor, and the indentation it added before them,
    are not counted as changes.
    """
    lines = now.line - base.line
    if lines < 0 or lines > TYPED_LINES or (lines == 0 and now.column < base.column):
        return None
    if now.lines[base.line][: base.column] != base.before:
        return None
    top = max(0, base.line - LINES_ABOVE)
    if base.lines is not now.lines and base.lines[top : base.line] != now.lines[top : base.line]:
        return None
    if not _same_below(base, now):
        return None
    if lines == 0:
        return now.lines[now.line][base.column : now.column]
    first = now.lines[base.line][base.column :]
    return "\n".join([first, *now.lines[base.line + 1 : now.line], now.before])


def _same_below(base: Place, now: Place) -> bool:
    theirs = base.lines[base.line + 1 : base.line + 1 + LINES_BELOW]
    ours = now.lines[now.line + 1 : now.line + 1 + LINES_BELOW]
    if theirs == ours and now.after == base.after:
        return True
    cut = now.line + 1 + LINES_BELOW < len(now.lines)
    return _closed_by_editor([now.after, *ours], [base.after, *theirs], cut)


def _closed_by_editor(now: Sequence[str], before: Sequence[str], cut: bool) -> bool:
    """`closed_by_editor` for lines; where those of ``now`` were ``cut`` off, ``before`` may have more."""
    for skipped, line in enumerate(now):
        rest = len(now) - skipped
        column = len(line) - len(before[0])
        if (
            (rest == len(before) or (cut and 1 < rest < len(before)))
            and line.endswith(before[0])
            and _CLOSED_BY_EDITOR.fullmatch(line, 0, column)
            and now[skipped + 1 :] == before[1:rest]
        ):
            return True
        if not _CLOSED_BY_EDITOR.fullmatch(line):
            return False
    return False


def closed_by_editor(now: str, before: str) -> bool:
    """Whether ``now`` is ``before`` with nothing but closers and white space put in front."""
    added = len(now) - len(before)
    return added >= 0 and now.endswith(before) and bool(_CLOSED_BY_EDITOR.fullmatch(now, 0, added))


@dataclass(frozen=True, slots=True)
class Answer:
    """Text that was offered (or prepared) at a place."""

    id: str
    base: Place
    text: str
    token_ids: Sequence[int] = ()

    def remainder(self, place: Place) -> str:
        """What is left of it at another place; empty when it does not fit there or was typed to its end."""
        typed = typed_since(self.base, place)
        if typed is None or len(typed) >= len(self.text) or not self.text.startswith(typed):
            return ""
        return self.text[len(typed) :]


@dataclass(frozen=True, slots=True)
class Reused:
    """A remainder that fits where the cursor is now."""

    answer: Answer
    text: str
    replaced: int


def reused(answer: Answer, place: Place) -> Reused | None:
    """What is left of an answer at a place, with what it replaces there."""
    text = answer.remainder(place)
    return Reused(answer, text, replaced_after(place.before, text, place.after)) if text else None


class Answers:
    """The latest answers of one document."""

    def __init__(self) -> None:
        self._answers: deque[Answer] = deque(maxlen=KEPT_ANSWERS)

    def add(self, answer: Answer) -> None:
        """Keeps an answer; the newest is looked at first."""
        self._answers.append(answer)

    def find(self, place: Place) -> Reused | None:
        """The newest answer that goes on here."""
        found = (reused(answer, place) for answer in reversed(self._answers))
        return next((one for one in found if one is not None), None)

    def last_ids(self) -> Sequence[int]:
        """Token ids of the newest answer: a draft for the next one."""
        return self._answers[-1].token_ids if self._answers else ()
