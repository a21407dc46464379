"""One generation and the place it belongs to, as the event loop sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lsp_server.cleanup import Around, Cleaned, clean
from lsp_server.documents import Place
from lsp_server.reuse import Answer, typed_since
from lsp_server.service import Job, Priority, Update
from speculation.request import CompletionMetrics, CompletionRequest, FinishReason

# the text ended by itself: its last line is whole
WHOLE: frozenset[FinishReason] = frozenset({"end", "line", "block", "suffix"})
Purpose = Literal["asked", "candidate", "prefetch"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a flight is started with."""

    id: str
    base: Place
    purpose: Purpose
    automatic: bool
    markers: Sequence[str]
    build: Callable[[], CompletionRequest]
    parent: Answer | None = None  # what a prefetch takes as accepted
    speculation: bool = True  # whether it may draft
    language: str = ""


class Flight:
    """Collects a job's updates; answers what they are worth at a place."""

    def __init__(self, plan: Plan, report: Callable[[Flight], None], stops: Callable[[str], bool]) -> None:
        self.plan = plan
        self.base = plan.base
        self.raw = ""
        self.token_ids: Sequence[int] = ()
        self.middle_ids: Sequence[int] = ()
        self.finish_reason: FinishReason | None = None
        self.metrics: CompletionMetrics | None = None
        self.error: BaseException | None = None
        self.submitted_s = time.perf_counter()
        self.started_s = 0.0
        self.updated_s = 0.0
        self._report = report
        self._cleaned: tuple[tuple[int, bool], Cleaned] | None = None
        priority = Priority.PREFETCH if plan.purpose == "prefetch" else Priority.ASKED
        self.job = Job(plan.build, priority, self._take, stops)

    @property
    def done(self) -> bool:
        return self.finish_reason is not None or self.error is not None

    def cleaned(self) -> Cleaned:
        """What the clean-up leaves of the text so far, relative to the base."""
        key = (len(self.raw), self.done)
        if self._cleaned is None or self._cleaned[0] != key:
            complete = self.finish_reason in WHOLE
            around = Around(self.base, self.plan.markers, self.plan.automatic, complete, self.plan.language)
            self._cleaned = (key, clean(self.raw, around))
        return self._cleaned[1]

    def typed_at(self, place: Place) -> str | None:
        """What was typed since the base, if that agrees with the text as far as both go; else None."""
        typed = typed_since(self.base, place)
        if typed is None or self.error is not None:
            return None
        text = self.cleaned().text
        if text.startswith(typed):
            return typed if len(text) > len(typed) or not self.done else None
        return typed if not self.done and typed.startswith(text) else None

    def answer(self, length: int | None = None) -> Answer:
        """The text as something to keep; ``length`` characters of it."""
        return Answer(self.plan.id, self.base, self.cleaned().text[:length], self.token_ids)

    def _take(self, update: Update) -> None:
        self.updated_s = time.perf_counter()
        self.started_s = update.started_s
        self.error = update.error
        if update.error is None and (update.finish_reason is not None or len(update.text) >= len(self.raw)):
            self.raw, self.token_ids, self.middle_ids = update.text, update.token_ids, update.middle_ids
            self.finish_reason, self.metrics = update.finish_reason, update.metrics
        self._report(self)
