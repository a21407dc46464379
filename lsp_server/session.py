"""One client's completions: from a request's receipt to its one answer.

Everything here runs on the event loop; nothing waits. A request becomes a ticket, which is answered from an
earlier answer, from a flight (a generation in the making) that agrees with what was typed, or from a new
flight after the debounce. An edit, a newer request or a cancellation answers the ticket with nothing at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lsp_server.builder import RequestBuilder
from lsp_server.cleanup import SPECIAL_TOKENS, deadline_cut, repeats_next_line
from lsp_server.debounce import Debounce
from lsp_server.documents import ChangeError, Document, Documents, Edit, Place
from lsp_server.feed import SourceFeed
from lsp_server.flight import Flight, Plan
from lsp_server.gate import line_too_long, why_not
from lsp_server.items import Offer, item, item_for_selected, result
from lsp_server.kept import NEARBY_LINES
from lsp_server.messages import InlineCompletionParams
from lsp_server.positions import Encoding
from lsp_server.records import Recorder, Source, copied
from lsp_server.reuse import Reused, reused
from lsp_server.selection import is_around, with_selected, without_replaced
from lsp_server.service import CompletionService, Priority
from lsp_server.settings import Settings
from lsp_server.status import Status, inactive
from lsp_server.telemetry import Route
from lsp_server.ticket import DocumentState, Result, Ticket

if TYPE_CHECKING:
    from lsp_server.sources import Sources


logger = logging.getLogger(__name__)


class Client(Protocol):
    """What a session tells its client."""

    def status(self, status: Status) -> None:
        """The state of the server, or of one document, changed."""

    def more_available(self, uri: str) -> None:
        """An answer that was cut at the deadline goes on."""


class Session:
    """One client's documents and requests."""

    def __init__(
        self,
        service: CompletionService,
        client: Client,
        recorder: Recorder,
        settings: Settings,
        sources: Sources | None = None,
    ) -> None:
        """``sources``: where drafts are copied from; they are told what happens to the documents."""
        self.service = service
        self.client = client
        self.recorder = recorder
        self.settings = settings
        self.documents = Documents()
        self.feed = SourceFeed(sources, lambda: self.settings, self.documents)
        self.encoding: Encoding = "utf-16"
        self.debounce = Debounce()
        self._states: dict[str, DocumentState] = {}
        self._tickets: dict[int | str, Ticket] = {}
        self._failing = ""  # the error that was told last
        self._ids = (f"{uuid.uuid4().hex[:8]}-{number}" for number in itertools.count(1))

    def configure(self, settings: Settings) -> None:
        """The settings in force, from now on."""
        changed, self.settings = settings != self.settings, settings
        if changed:
            self.feed.settings_changed()

    # documents

    def open(self, uri: str, language: str, version: int, text: str) -> None:
        """`didOpen`."""
        self._forget(uri)
        document = self.documents.open(uri, language, version, text)
        state = self._states[uri] = DocumentState(self.recorder, lambda line: self._lines_near(uri, line))
        state.outcome.on_accepted = lambda accepted: self.feed.accepted(document, accepted)
        self.feed.opened(document)

    def _lines_near(self, uri: str, line: int) -> list[str] | None:
        document = self.documents.get(uri)
        if document is None:
            return None
        first, last = max(0, line - NEARBY_LINES), min(document.line_count, line + 2 * NEARBY_LINES)
        return [document.line(number) for number in range(first, last)]

    def change(self, uri: str, version: int | None, changes: Sequence[Any]) -> None:
        """`didChange`: supersedes the open request, and stops what no longer agrees."""
        document = self.documents.get(uri)
        if document is None:
            return
        self._supersede(uri, "superseded")
        self.debounce.keystroke(time.perf_counter() * 1000)
        edit = None
        try:
            for change in changes:
                edit = self._apply(document, change)
        except ChangeError:
            document.out_of_step = True
            self.feed.closed(document)
        document.version = version if version is not None else document.version
        document.changed_s = time.monotonic()
        typed_here = edit is not None and len(changes) == 1 and not document.out_of_step
        self._settle(self._states[uri], edit.place_in(document.snapshot()) if edit and typed_here else None)

    def _apply(self, document: Document, change: Any) -> Edit | None:
        before = document.snapshot()
        edit = document.apply(change, self.encoding)
        if edit is None:
            self.feed.opened(document)
        else:
            self.feed.edited(document, before, edit)
        return edit

    def close(self, uri: str) -> None:
        """`didClose`."""
        self._forget(uri)
        if (document := self.documents.close(uri)) is not None:
            self.feed.closed(document)

    def end(self) -> None:
        """The client is gone."""
        for uri in list(self._states):
            self._forget(uri)
        self.feed.end()

    # requests

    def request(self, request_id: int | str, params: InlineCompletionParams) -> asyncio.Future[Result]:
        """`textDocument/inlineCompletion`; the text is the one at this very moment."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        received_s = time.perf_counter()
        document = self.documents.get(params.uri)
        if document is None:
            answer.set_result(None)
            return answer
        self._supersede(params.uri, "superseded")
        self.documents.touch(params.uri)
        place = document.place(params.position.line, params.position.character, self.encoding)
        selected = params.selected
        if selected is not None and not is_around(selected, params.position, place):
            selected = None
        if selected is not None:
            place = with_selected(place, selected, self.encoding)
        ticket = Ticket(
            request_id,
            next(self._ids),
            params.uri,
            document.language,
            place,
            not params.invoked,
            selected,
            answer,
            received_s,
        )
        self._tickets[request_id] = ticket
        self._states[params.uri].ticket = ticket
        self._or_drop(ticket, lambda ticket: self._dispatch(ticket, document))
        return answer

    def cancel(self, request_id: int | str) -> None:
        """`$/cancelRequest`: answered with nothing, and no further forward pass."""
        if (ticket := self._tickets.get(request_id)) is not None:
            state = self._states[ticket.uri]
            self._drop(ticket, "cancelled")
            if state.flight is not None:
                state.flight.job.pause()

    # what the editor tells of answers

    def shown(self, completion_id: str) -> None:
        """An answer is on the screen."""
        for state in self._states.values():
            state.outcome.shown(completion_id)

    def accepted(self, completion_id: str) -> None:
        """An answer was inserted."""
        for state in self._states.values():
            state.outcome.accepted(completion_id)

    def partially_accepted(self, completion_id: str, characters_left: int) -> None:
        """An answer was inserted but for its last ``characters_left``."""
        for state in self._states.values():
            state.outcome.partially_accepted(completion_id, characters_left)

    def _dispatch(self, ticket: Ticket, document: Document) -> None:
        state = self._states[ticket.uri]
        if reason := self._inactive_reason(ticket, document):
            self._drop(ticket, reason)
            self._tell_inactive(state, ticket.uri, reason)
            return
        state.told_inactive = ""
        flight = self._agreeing_flight(state, ticket.place)
        rest = state.answers.find(ticket.place)
        if rest is not None and (flight is None or not _goes_further(flight, rest, ticket.place)):
            self._answer(ticket, [_offer(rest)], Source("typed-through"))
            self._prefetch(ticket, state, rest)
            return
        if not self.service.ready:
            self._drop(ticket, "no_engine" if self.service.status.kind == "error" else "not_ready")
        elif flight is not None:
            self._join(ticket, state, flight)
        else:
            self._stop_flights(state)
            wait_ms = 0.0
            if ticket.automatic:
                wait_ms = self.debounce.wait_ms(
                    self.settings.client_debounce_ms, self.settings.max_debounce_ms
                )
            self._later(ticket, wait_ms, self._launch)
            self._later(ticket, self.settings.deadline_ms, self._on_deadline)

    def _inactive_reason(self, ticket: Ticket, document: Document) -> str:
        if reason := why_not(document, self.settings):
            return reason
        if line_too_long(document, ticket.place.line, self.settings):
            return "line_too_long"
        return "automatic_off" if ticket.automatic and not self.settings.automatic else ""

    def _agreeing_flight(self, state: DocumentState, place: Place) -> Flight | None:
        for flight in (state.flight, state.prefetch):
            if flight is not None and not flight.done and flight.typed_at(place) is not None:
                return flight
        return None

    def _join(self, ticket: Ticket, state: DocumentState, flight: Flight) -> None:
        if flight is state.prefetch:
            self._stop(state.flight)
            state.flight, state.prefetch = flight, None
        ticket.flight, ticket.joined = flight, copied(flight.metrics)
        self.service.set_priority(flight.job, Priority.ASKED)
        self.service.submit(flight.job)
        age_ms = (time.perf_counter() - flight.submitted_s) * 1000
        self._later(ticket, max(0.0, self.settings.deadline_ms - age_ms), self._on_deadline)

    def _launch(self, ticket: Ticket) -> None:
        state = self._states[ticket.uri]
        ticket.waited_until_s = time.perf_counter()
        ticket.flight = state.flight = self._flight(ticket, state, ticket.place, candidate=0)
        self.service.submit(state.flight.job)

    def _flight(
        self,
        ticket: Ticket,
        state: DocumentState,
        place: Place,
        candidate: int,
        prefetch: Reused | None = None,
    ) -> Flight:
        document = self.documents.get(ticket.uri)
        assert document is not None
        builder = RequestBuilder.of(
            document,
            self.documents,
            self.feed.roots,
            self.settings,
            state.anchor,
            state.answers.last_ids(),
            state.middle_ids,
        )
        speculation = self.settings.speculation and random.random() >= self.settings.speculation_off_share
        plan = Plan(
            id=ticket.id if candidate == 0 and prefetch is None else next(self._ids),
            base=place,
            purpose="asked" if prefetch is None else "prefetch",
            markers=SPECIAL_TOKENS,
            automatic=ticket.automatic or prefetch is not None,
            build=lambda: builder.build(place, candidate, speculation),
            speculation=speculation,
            parent=None if prefetch is None else prefetch.answer,
        )
        return Flight(
            plan,
            lambda flight: self._progress_or_drop(ticket.uri, state, flight),
            lambda text: repeats_next_line(text, place),
        )

    # progress

    def _progress_or_drop(self, uri: str, state: DocumentState, flight: Flight) -> None:
        """A fault of our own ends the flight; whoever waits for it is answered."""
        try:
            self._progress(uri, state, flight)
        except Exception:
            logger.exception("an answer could not be made")
            self._stop(flight)
            state.flight = None if state.flight is flight else state.flight
            state.prefetch = None if state.prefetch is flight else state.prefetch
            ticket = state.ticket
            if ticket is not None and (ticket.flight is flight or flight in ticket.candidates):
                self._drop(ticket, "failed")

    def _progress(self, uri: str, state: DocumentState, flight: Flight) -> None:
        if flight.error is not None:
            self._failed(state, flight)
            return
        self._recovered()
        if flight.done:
            self._landed(uri, state, flight)
        ticket = state.ticket
        if ticket is not None and (ticket.flight is flight or flight in ticket.candidates):
            self._consider(ticket, state)

    def _landed(self, uri: str, state: DocumentState, flight: Flight) -> None:
        """A flight is complete."""
        if flight.plan.purpose == "asked":
            state.middle_ids = flight.middle_ids
        if flight.plan.purpose == "prefetch":
            if not flight.cleaned().reason:
                state.answers.add(flight.answer())
        else:
            self.debounce.answered((flight.updated_s - flight.started_s) * 1000)
            waited_for = state.ticket is not None and state.ticket.flight is flight
            if flight is state.flight and not waited_for and not flight.cleaned().reason:
                state.answers.add(flight.answer())
                self.client.more_available(uri)
        if flight is state.prefetch:
            state.prefetch = None

    def _consider(self, ticket: Ticket, state: DocumentState) -> None:
        """Answers a ticket if what there is suffices."""
        flight = ticket.flight
        assert flight is not None
        typed = flight.typed_at(ticket.place)
        if typed is None and ticket.joined is not None and not flight.cleaned().reason:
            self._relaunch(
                ticket, state
            )  # the user typed ahead, and the model went another way or stopped short
        elif flight.done:
            self._finish(ticket, state, flight, typed)
        elif ticket.overdue and typed is not None:
            self._cut_short(ticket, state, flight, typed)

    def _finish(self, ticket: Ticket, state: DocumentState, flight: Flight, typed: str | None) -> None:
        cleaned = flight.cleaned()
        if cleaned.reason or typed is None:
            state.flight = None
            self._drop(ticket, cleaned.reason or "blank", self._source(ticket, flight))
            return
        if self._wants_more(ticket, state, flight):
            return
        state.flight = None
        offers: list[Offer] = []
        for number, candidate in enumerate([flight, *ticket.candidates]):
            text = candidate.cleaned().text
            if candidate.done and not candidate.cleaned().reason and text.startswith(typed):
                if number:
                    state.answers.add(candidate.answer())
                rest = reused(candidate.answer(), ticket.place)
                if rest is not None and rest.text not in [offer.text for offer in offers]:
                    offers.append(_offer(rest))
        state.answers.add(flight.answer())
        self._answer(ticket, offers, self._source(ticket, flight))
        if (rest := state.answers.find(ticket.place)) is not None:
            self._prefetch(ticket, state, rest)

    def _wants_more(self, ticket: Ticket, state: DocumentState, flight: Flight) -> bool:
        """Explicit invocation: further candidates, one after the other, while there is time."""
        if ticket.automatic or ticket.overdue or ticket.selected is not None:
            return False
        if ticket.candidates and not ticket.candidates[-1].done:
            return True
        number = len(ticket.candidates) + 1
        if number >= self.settings.candidates:
            return False
        candidate = self._flight(ticket, state, flight.base, number)
        ticket.candidates.append(candidate)
        self.service.submit(candidate.job)
        return True

    def _on_deadline(self, ticket: Ticket) -> None:
        ticket.overdue = True
        if ticket.flight is not None:
            self._consider(ticket, self._states[ticket.uri])

    def _cut_short(self, ticket: Ticket, state: DocumentState, flight: Flight, typed: str) -> None:
        """The deadline has passed: answers what makes sense of the text so far; the flight goes on."""
        cleaned = flight.cleaned()
        text = deadline_cut(cleaned.text[len(typed) :])
        if cleaned.reason or not text.strip():
            return
        answer = flight.answer(len(typed) + len(text))
        state.answers.add(answer)
        self.service.set_priority(flight.job, Priority.BACKGROUND)
        rest = reused(answer, ticket.place)
        if rest is not None:
            self._answer(ticket, [_offer(rest)], self._source(ticket, flight, "deadline"))

    def _relaunch(self, ticket: Ticket, state: DocumentState) -> None:
        self._stop_flights(state)
        ticket.joined = None
        self._launch(ticket)

    def _prefetch(self, ticket: Ticket, state: DocumentState, shown: Reused) -> None:
        """Prepares what comes next, as if the answer just given were accepted."""
        if not self.settings.prefetch or ticket.selected is not None or not self.service.ready:
            return
        if state.prefetched_for == shown.answer.id or state.flight is not None:
            return
        state.prefetched_for = shown.answer.id
        self._stop(state.prefetch)
        place = ticket.place.with_inserted(shown.text, shown.replaced)
        state.prefetch = self._flight(ticket, state, place, 0, shown)
        self.service.submit(state.prefetch.job)

    # what ends a ticket or a flight

    def _settle(self, state: DocumentState, place: Place | None) -> None:
        """After an edit: keeps the flights that agree with it, stops the others."""
        if place is not None:
            state.outcome.edited(place)
        if state.flight is not None and (place is None or state.flight.typed_at(place) is None):
            if place is None:
                state.flight.job.pause()
            else:
                self._stop(state.flight)
                state.flight = None
        prefetch = state.prefetch
        if prefetch is not None and place is not None:
            assert prefetch.plan.parent is not None
            if prefetch.typed_at(place) is None and not prefetch.plan.parent.remainder(place):
                self._stop(prefetch)
                state.prefetch = None

    def _supersede(self, uri: str, reason: str) -> None:
        state = self._states.get(uri)
        if state is not None and state.ticket is not None:
            self._drop(state.ticket, reason)

    def _drop(self, ticket: Ticket, reason: str, source: Source | None = None) -> None:
        self._close_ticket(ticket)
        if not ticket.answer.done():
            ticket.answer.set_result(None)
        self.recorder.dropped(ticket, reason, source or self._source(ticket, ticket.flight))

    def _answer(self, ticket: Ticket, offers: Sequence[Offer], source: Source) -> None:
        built_s = time.perf_counter()
        if ticket.selected is None:
            items = [item(offer, ticket.place, self.encoding) for offer in offers]
        else:
            items = [
                item_for_selected(offer, ticket.selected)
                for offer in (without_replaced(offer, ticket.place) for offer in offers)
                if offer.text.strip()
            ]
        self._close_ticket(ticket)
        if not ticket.answer.done():
            ticket.answer.set_result(result(items))
        self.recorder.answered(ticket, offers, source, built_s)
        if offers and (state := self._states.get(ticket.uri)) is not None:
            state.outcome.offered(offers[0].id, ticket.place, offers[0].text)

    def _close_ticket(self, ticket: Ticket) -> None:
        for timer in ticket.timers:
            timer.cancel()
        for candidate in ticket.candidates:
            self._stop(candidate)
        self._tickets.pop(ticket.request_id, None)
        state = self._states.get(ticket.uri)
        if state is not None and state.ticket is ticket:
            state.ticket = None

    def _forget(self, uri: str) -> None:
        self._supersede(uri, "superseded")
        if (state := self._states.pop(uri, None)) is not None:
            self._stop_flights(state)

    def _stop_flights(self, state: DocumentState) -> None:
        self._stop(state.flight)
        self._stop(state.prefetch)
        state.flight = state.prefetch = None

    @staticmethod
    def _stop(flight: Flight | None) -> None:
        if flight is not None:
            flight.job.cancel()

    def _failed(self, state: DocumentState, flight: Flight) -> None:
        ticket = state.ticket
        if flight is state.flight:
            state.flight = None
        if flight is state.prefetch:
            state.prefetch = None
        if ticket is not None and ticket.flight is flight:
            self._drop(ticket, "failed")
        message = f"{type(flight.error).__name__}: {flight.error}"
        if message != self._failing:
            self._failing = message
            self.client.status(Status("error", f"The model failed: {message}"))

    def _recovered(self) -> None:
        if self._failing:
            self._failing = ""
            self.client.status(self.service.status)

    def _tell_inactive(self, state: DocumentState, uri: str, reason: str) -> None:
        if state.told_inactive != reason:
            state.told_inactive = reason
            self.client.status(inactive(reason, uri))

    def _later(self, ticket: Ticket, wait_ms: float, call: Callable[[Ticket], None]) -> None:
        if wait_ms <= 0:
            self._or_drop(ticket, call)
            return
        loop = asyncio.get_running_loop()
        ticket.timers.append(loop.call_later(wait_ms / 1000, self._or_drop, ticket, call))

    def _or_drop(self, ticket: Ticket, call: Callable[[Ticket], None]) -> None:
        """A fault of our own must not leave a request without its answer."""
        try:
            call(ticket)
        except Exception:
            logger.exception("a request failed")
            if not ticket.answer.done():
                self._drop(ticket, "failed")

    @staticmethod
    def _source(ticket: Ticket, flight: Flight | None, finish_reason: str = "") -> Source:
        if flight is None:
            return Source("dropped")
        route: Route = "generated" if ticket.joined is None else "continued"
        return Source(route, flight, finish_reason or flight.finish_reason or "")


def _goes_further(flight: Flight, rest: Reused, place: Place) -> bool:
    """Whether a flight says more at a place than what is kept."""
    typed = flight.typed_at(place) or ""
    return len(flight.cleaned().text) - len(typed) > len(rest.text)


def _offer(rest: Reused) -> Offer:
    return Offer(rest.answer.id, rest.text, rest.replaced)
