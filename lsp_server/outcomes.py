"""What became of an answer: seen, accepted, partly accepted, or rejected.

Most editors do not say; it is read off the next edits. Clients that do say it are believed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.documents import Place
from lsp_server.kept import kept_share
from lsp_server.records import Recorder
from lsp_server.reuse import typed_since
from lsp_server.telemetry import KEPT_AFTER_MS, SHOWN_AFTER_MS, Outcome, outcome_record

Accepted = Callable[[str], None]
Near = Callable[[int], Sequence[str] | None]


@dataclass(slots=True)
class _Offered:
    id: str
    base: Place
    text: str
    at_s: float
    taken: int = 0  # characters typed or accepted so far
    seen: bool = False


class OutcomeTracker:
    """Follows the answer shown in one document."""

    def __init__(self, recorder: Recorder, near: Near) -> None:
        """``near``: the document's lines about one line; None once it is closed."""
        self._recorder = recorder
        self._near = near
        self._offered: _Offered | None = None
        self.on_accepted: Accepted | None = None  # gets the text

    def offered(self, id: str, base: Place, text: str) -> None:  # noqa: A002 - the field's name in the log
        """An answer was given; the remainder of one that is being typed along is not a new one."""
        current = self._offered
        if current is not None and current.id == id:
            return
        if current is not None:
            self._seen(current)
            self._settle("rejected" if current.seen else "superseded")
        self._offered = _Offered(id, base, text, time.monotonic())

    def edited(self, now: Place) -> None:
        """The text changed and the cursor is at ``now``."""
        current = self._offered
        if current is None:
            return
        self._seen(current)
        typed = typed_since(current.base, now)
        if typed is not None and typed.startswith(current.text):
            self._accept(current)
        elif typed is None or not current.text.startswith(typed):
            self._settle("rejected" if current.seen else "superseded")
        else:
            taken, current.taken = len(typed) - current.taken, len(typed)
            if taken > 1:
                self._partial(current, typed[-taken:])

    def accepted(self, id: str) -> None:  # noqa: A002
        """The editor says that the whole answer was inserted."""
        if self._offered is not None and self._offered.id == id:
            self._accept(self._offered)

    def partially_accepted(self, id: str, left: int) -> None:  # noqa: A002
        """The editor says that the answer was inserted but for its last ``left`` characters."""
        current = self._offered
        characters = 0 if current is None else len(current.text) - left
        if current is not None and current.id == id and characters > current.taken:
            piece = current.text[current.taken : characters]
            current.taken = characters
            self._partial(current, piece)

    def shown(self, id: str) -> None:  # noqa: A002
        """The editor says that the answer is on the screen."""
        if self._offered is not None and self._offered.id == id:
            self._mark_seen(self._offered)

    def _seen(self, current: _Offered) -> None:
        if (time.monotonic() - current.at_s) * 1000 >= SHOWN_AFTER_MS:
            self._mark_seen(current)

    def _mark_seen(self, current: _Offered) -> None:
        if not current.seen:
            current.seen = True
            self._write("shown")

    def _accept(self, current: _Offered) -> None:
        self._mark_seen(current)  # what was taken was seen, however fast
        self._write("accepted", characters=len(current.text))
        self._offered = None
        asyncio.get_running_loop().call_later(KEPT_AFTER_MS / 1000, self._look_again, current)
        if self.on_accepted is not None:
            self.on_accepted(current.text)

    def _look_again(self, accepted: _Offered) -> None:
        lines = self._near(accepted.base.line)
        if lines is not None:
            kept = round(kept_share(accepted.text, lines) * len(accepted.text))
            after_ms = (time.monotonic() - accepted.at_s) * 1000
            self._recorder.write(outcome_record(accepted.id, "kept", after_ms=after_ms, characters=kept))

    def _partial(self, current: _Offered, piece: str) -> None:
        self._mark_seen(current)
        unit = "line" if "\n" in piece else "word" if len(piece) > 1 else "character"
        self._write("partial", characters=current.taken, units=1, unit=unit)

    def _settle(self, outcome: Outcome) -> None:
        self._write(outcome)
        self._offered = None

    def _write(self, outcome: Outcome, characters: int = 0, units: int = 0, unit: str = "") -> None:
        assert self._offered is not None
        after_ms = (time.monotonic() - self._offered.at_s) * 1000
        self._recorder.write(
            outcome_record(
                self._offered.id, outcome, after_ms=after_ms, characters=characters, units=units, unit=unit
            )
        )
