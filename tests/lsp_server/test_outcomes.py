"""Outcomes as they are written: what an editor says, and what is read off edits."""

from __future__ import annotations

import pytest

from lsp_server.documents import Place
from lsp_server.outcomes import OutcomeTracker

TEXT = "value + one"


class Recorder:
    """Keeps what became of answers."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def write(self, record):
        self.outcomes.append(record["outcome"])


def at_once(happens) -> list[str]:
    """What is recorded if this happens as soon as the answer is there."""
    recorder = Recorder()
    tracker = OutcomeTracker(recorder, lambda line: None)
    tracker.offered("a", Place(("x = ",), 0, 4), TEXT)
    happens(tracker)
    return recorder.outcomes


def typed(text: str) -> Place:
    return Place(("x = " + text,), 0, 4 + len(text))


@pytest.mark.parametrize(
    ("happens", "outcome"),
    [
        (lambda tracker: tracker.accepted("a"), "accepted"),
        (lambda tracker: tracker.partially_accepted("a", 6), "partial"),
        (lambda tracker: tracker.edited(typed(TEXT)), "accepted"),
        (lambda tracker: tracker.edited(typed("value")), "partial"),
    ],
    ids=["editor says all", "editor says some", "all is inserted", "some is inserted"],
)
async def test_an_answer_that_is_taken_at_once_was_seen(happens, outcome):
    assert at_once(happens) == ["shown", outcome]


async def test_an_answer_is_seen_once():
    def happens(tracker):
        tracker.shown("a")
        tracker.partially_accepted("a", 6)
        tracker.shown("a")
        tracker.accepted("a")

    assert at_once(happens) == ["shown", "partial", "accepted"]


@pytest.mark.parametrize("text", ["v", "n", ""])
async def test_an_answer_that_is_only_typed_past_was_not_seen(text):
    def happens(tracker):
        tracker.edited(typed(text))
        tracker.offered("b", typed(text), "other")

    assert at_once(happens) == ["superseded"]


async def test_what_is_said_of_another_answer_counts_for_nothing():
    def happens(tracker):
        tracker.shown("b")
        tracker.accepted("b")
        tracker.partially_accepted("b", 6)

    assert at_once(happens) == []
