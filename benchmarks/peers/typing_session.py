"""One change typed with one peer: every keystroke asks and is answered, and the clock decides what that is worth.

The typist waits for each answer, so that the time of none is hidden by the next keystroke; what was there within the
gap before the next keystroke counts as showing. Gaps, and whether a right text is accepted, follow from the state of
the file, so that peers meet the same states as long as they say the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.keystrokes_typist import Typist
from benchmarks.peers.typing_tasks import LEAST_ACCEPTED, Change, accepts, gap_ms
from lsp_server.documents import Place


@dataclass(frozen=True, slots=True)
class Ghost:
    """An answer: text to show at the cursor, empty where there is none; what it took."""

    text: str = ""
    replaced: int = 0  # characters behind the cursor that go when it is accepted
    ms: float = 0.0
    cpu_s: float | None = None  # of the peer's process since the keystroke before
    evaluated: int = 0  # tokens through the model
    about: dict[str, Any] | None = None


class TypingPeer(Protocol):
    """What gives ghost text."""

    def begin(self, change: Change) -> None:
        """A file is opened and the replaced lines are deleted."""

    def ask(self, place: Place) -> Ghost:
        """The ghost text after a keystroke that led to this place."""

    def accepted(self) -> None:
        """The last ghost text was taken."""

    def end(self) -> None:
        """The file is closed."""

    def peak_bytes(self) -> int:
        """The largest resident size of the process that has the model; 0 where that cannot be told."""


def typed(
    change: Change, peer: TypingPeer, keystrokes: int, sleep: Callable[[float], None] = time.sleep
) -> list[dict[str, Any]]:
    """Types at most so many keystrokes; one row each."""
    typist = change.typist()
    peer.begin(change)
    rows: list[dict[str, Any]] = []
    shown = Ghost()  # what stood there when the key was pressed
    taking = False
    while typist.rest and len(rows) < keystrokes:
        before = text_before(typist.place)
        if taking:
            typist.accept(shown.text, shown.replaced)
            peer.accepted()
            key = "accept"
        else:
            key = typist.press()
        follows = continues(before, text_before(typist.place), shown.text)
        state = state_of(typist.place)
        ghost = peer.ask(typist.place)
        gap = gap_ms(len(rows), state)
        in_time = ghost.ms <= gap
        right = bool(ghost.text) and is_right(ghost.text, typist.rest)
        taking = in_time and takes(ghost.text, typist) and accepts(state)
        rows.append(
            {
                "state": state,
                "key": key,
                "follows": follows,
                "ms": round(ghost.ms, 3),
                "gap_ms": round(gap, 1),
                "shown": bool(ghost.text),
                "right": right,
                "right_in_time": right and in_time,
                "taken": len(ghost.text) if taking else 0,
                "cpu_s": ghost.cpu_s,
                "evaluated": ghost.evaluated,
                **(ghost.about or {}),
            }
        )
        shown = ghost
        sleep(max(0.0, gap - ghost.ms) / 1000)
    peer.end()
    return rows


def continues(before: str, after: str, ghost: str) -> bool:
    """Whether what was typed between two states is the beginning of the ghost text that stood there."""
    piece = after[len(before) :]
    return bool(piece) and after.startswith(before) and ghost.startswith(piece) and len(ghost) > len(piece)


def is_right(ghost: str, rest: str) -> bool:
    """Whether the ghost text, up to the end of its first line that is not blank, is what is going to be typed."""
    lead = len(ghost) - len(ghost.lstrip())
    end = ghost.find("\n", lead)
    head = (ghost if end < 0 else ghost[:end]).rstrip()
    return bool(head) and rest.startswith(head)


def takes(ghost: str, typist: Typist) -> bool:
    """Whether the typist could accept: all of the text is right, and it is worth a key."""
    return typist.in_step and len(ghost.strip()) >= LEAST_ACCEPTED and typist.rest.startswith(ghost)


def text_before(place: Place) -> str:
    """The text up to the cursor."""
    return "\n".join([*place.lines[: place.line], place.before])


def state_of(place: Place) -> str:
    """Names a text with a cursor."""
    whole = f"{place.line} {place.column}\n{place.text()}"
    return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:16]
