"""One request that is not answered yet, and what is remembered of a document beside its text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lsp_server.anchor import Anchor
from lsp_server.documents import Place
from lsp_server.flight import Flight
from lsp_server.messages import SelectedCompletion
from lsp_server.outcomes import Near, OutcomeTracker
from lsp_server.positions import Encoding
from lsp_server.records import Recorder
from lsp_server.reuse import Answers
from lsp_server.service import Job
from speculation.request import CompletionMetrics

Result = dict[str, Any] | None  # what a request is answered with


@dataclass(slots=True, eq=False)
class Ticket:
    """One request that is not answered yet."""

    request_id: int | str
    id: str
    uri: str
    state: DocumentState
    language: str
    encoding: Encoding  # of the columns in the answer
    place: Place
    automatic: bool
    selected: SelectedCompletion | None
    answer: asyncio.Future[Result]
    received_s: float
    waited_until_s: float = 0.0  # end of the debounce
    flight: Flight | None = None
    joined: CompletionMetrics | None = (
        None  # the flight's metrics when this ticket joined it; None: it began with this ticket
    )
    candidates: list[Flight] = field(default_factory=list)
    overdue: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class DocumentState:
    """What is remembered of one document beside its text."""

    def __init__(self, recorder: Recorder, near: Near) -> None:
        self.answers = Answers()
        self.anchor = Anchor()
        self.ticket: Ticket | None = None
        self.flight: Flight | None = None
        self.prefetch: Flight | None = None
        self.moving: Job | None = None  # evaluates the prompt that the anchor is going to move to
        self.middle_ids: Sequence[
            int
        ] = ()  # of the last generation: what was typed since the anchor, and the text
        self.prefetched_for = ""  # id of the answer that was taken as accepted last
        self.told_inactive = ""
        self.outcome = OutcomeTracker(recorder, near)
