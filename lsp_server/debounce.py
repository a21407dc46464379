"""How long an automatic request waits before the model is asked.

Waiting saves work that the next keystroke would throw away, but every answer pays for it. With a typing
interval T (a high quantile of the user's own, within bursts) and a measured answer time A the wait is T·A /
(T + A): near T when an answer is expensive, near A when it is cheap, and never longer than either.
"""

from __future__ import annotations

from collections import deque

BURST_MS = 600.0  # a longer gap is a pause, not a rhythm
FASTEST_MS = 80.0  # key repeat is no rhythm either
INTERVALS = 32
PRIOR_INTERVALS = (150.0,) * 4
PRIOR_ANSWER_MS = 300.0
QUANTILE = 0.8


class Debounce:
    """One user's typing rhythm and the engine's answer time; times in ms by a monotonic clock."""

    def __init__(self) -> None:
        self._intervals: deque[float] = deque(PRIOR_INTERVALS, maxlen=INTERVALS)
        self._last_key_ms: float | None = None
        self._answer_ms = PRIOR_ANSWER_MS

    def keystroke(self, now_ms: float) -> None:
        """An edit arrived."""
        if self._last_key_ms is not None and 0 < now_ms - self._last_key_ms <= BURST_MS:
            self._intervals.append(now_ms - self._last_key_ms)
        self._last_key_ms = now_ms

    def answered(self, took_ms: float) -> None:
        """A generation took this long from its start to its end."""
        self._answer_ms += 0.2 * (took_ms - self._answer_ms)

    @property
    def rhythm_ms(self) -> float:
        """The interval that most of the user's keystrokes stay below."""
        ordered = sorted(self._intervals)
        return max(FASTEST_MS, ordered[int(QUANTILE * (len(ordered) - 1))])

    def wait_ms(self, client_ms: float = 0.0, longest_ms: float = 150.0) -> float:
        """The wait for the next automatic request, less what the client itself waited."""
        rhythm, answer = self.rhythm_ms, max(self._answer_ms, 1.0)
        return max(0.0, min(rhythm * answer / (rhythm + answer), longest_ms) - client_ms)
