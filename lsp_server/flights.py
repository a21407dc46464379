"""The generations of one client's documents, and what they answer.

A ticket joins a flight that agrees with what was typed, or gets a new one; flights report as they grow, and
are answered from when they are done or the deadline has passed. All on the event loop; nothing waits.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
import uuid
from collections.abc import Callable

from lsp_server.builder import RequestBuilder
from lsp_server.cleanup import SPECIAL_TOKENS, deadline_cut, says_no_more
from lsp_server.debounce import Debounce
from lsp_server.documents import Place
from lsp_server.flight import Flight, Plan
from lsp_server.items import Offer
from lsp_server.records import copied
from lsp_server.reuse import Reused, reused
from lsp_server.service import CompletionService, Job, Priority, Update
from lsp_server.settings import Settings
from lsp_server.status import Client, Status
from lsp_server.ticket import DocumentState, Ticket
from lsp_server.tickets import Tickets, source_of

logger = logging.getLogger(__name__)


class Flights:
    """Starts, joins and stops generations, and answers tickets from them."""

    def __init__(
        self,
        service: CompletionService,
        client: Client,
        tickets: Tickets,
        debounce: Debounce,
        settings: Callable[[], Settings],
        builder: Callable[[Ticket], RequestBuilder],
    ) -> None:
        """``builder``: what makes the requests about a document, as it is now."""
        self._service = service
        self._client = client
        self._tickets = tickets
        self._debounce = debounce
        self._settings = settings
        self._builder = builder
        self._failing = ""  # the error that was told last
        self._ids = (f"{uuid.uuid4().hex[:8]}-{number}" for number in itertools.count(1))

    def next_id(self) -> str:
        """The id of the next request or candidate, as the log and the items have it."""
        return next(self._ids)

    def agreeing(self, state: DocumentState, place: Place) -> Flight | None:
        """A flight on its way that says what was typed up to ``place``."""
        for flight in (state.flight, state.prefetch):
            if flight is not None and not flight.done and flight.typed_at(place) is not None:
                return flight
        return None

    def join(self, ticket: Ticket, flight: Flight) -> None:
        """The ticket waits for a flight that is on its way."""
        if flight is ticket.state.prefetch:
            _stop(ticket.state.flight)
            ticket.state.flight, ticket.state.prefetch = flight, None
        ticket.flight, ticket.joined = flight, copied(flight.metrics)
        self._service.set_priority(flight.job, Priority.ASKED)
        self._service.submit(flight.job)
        age_ms = (time.perf_counter() - flight.submitted_s) * 1000
        self._tickets.later(ticket, max(0.0, self._settings().deadline_ms - age_ms), self.overdue)

    def launch(self, ticket: Ticket) -> None:
        """The ticket gets a flight of its own."""
        state = ticket.state
        ticket.waited_until_s = time.perf_counter()
        ticket.flight = state.flight = self._flight(ticket, ticket.place, candidate=0)
        self._service.submit(state.flight.job)

    def prefetch(self, ticket: Ticket, shown: Reused) -> None:
        """Prepares what comes next, as if the answer just given were accepted."""
        if not self._settings().prefetch or ticket.selected is not None or not self._service.ready:
            return
        if ticket.state.prefetched_for == shown.answer.id or ticket.state.flight is not None:
            return
        ticket.state.prefetched_for = shown.answer.id
        _stop(ticket.state.prefetch)
        place = ticket.place.with_inserted(shown.text, shown.replaced)
        ticket.state.prefetch = self._flight(ticket, place, 0, shown)
        self._service.submit(ticket.state.prefetch.job)

    def move_anchor(self, ticket: Ticket) -> None:
        """In idle time, in chunks: evaluates the prompt from the cursor's line where the anchor is far above it."""
        state, place = ticket.state, ticket.place
        if not state.anchor.due(place) or not self._service.ready:
            return
        if state.moving is not None:
            state.moving.cancel()
        builder, held = self._builder(ticket), state.anchor.ahead(place)

        def moved(update: Update) -> None:
            if update.finish_reason is not None:
                state.anchor.adopt(held)
            if update.done:
                state.moving = None

        state.moving = Job(lambda: builder.prompt_from(held), Priority.IDLE, moved)
        self._service.submit(state.moving)

    def settle(self, state: DocumentState, place: Place | None) -> None:
        """After an edit: keeps the flights that agree with it, stops the others."""
        if place is not None:
            state.outcome.edited(place)
        if state.flight is not None and (place is None or state.flight.typed_at(place) is None):
            if place is None:
                state.flight.job.pause()
            else:
                _stop(state.flight)
                state.flight = None
        prefetch = state.prefetch
        if prefetch is not None and place is not None:
            assert prefetch.plan.parent is not None
            if prefetch.typed_at(place) is None and not prefetch.plan.parent.remainder(place):
                _stop(prefetch)
                state.prefetch = None

    def stop(self, state: DocumentState) -> None:
        """No flight of the document makes a further pass."""
        _stop(state.flight)
        _stop(state.prefetch)
        state.flight = state.prefetch = None

    def overdue(self, ticket: Ticket) -> None:
        """The deadline has passed: what there is will do."""
        ticket.overdue = True
        if ticket.flight is not None:
            self._consider(ticket)

    def _flight(
        self,
        ticket: Ticket,
        place: Place,
        candidate: int,
        prefetch: Reused | None = None,
    ) -> Flight:
        builder = self._builder(ticket)
        speculation = (
            self._settings().speculation and random.random() >= self._settings().speculation_off_share
        )
        plan = Plan(
            id=ticket.id if candidate == 0 and prefetch is None else next(self._ids),
            base=place,
            purpose="asked" if prefetch is None else "prefetch",
            markers=SPECIAL_TOKENS,
            language=ticket.language,
            automatic=ticket.automatic or prefetch is not None,
            build=lambda: builder.build(place, candidate, speculation),
            speculation=speculation,
            parent=None if prefetch is None else prefetch.answer,
        )
        return Flight(
            plan,
            lambda flight: self._progress_or_drop(ticket.uri, ticket.state, flight),
            lambda text: says_no_more(text, place, ticket.language),
        )

    def _progress_or_drop(self, uri: str, state: DocumentState, flight: Flight) -> None:
        """A fault of our own ends the flight; whoever waits for it is answered."""
        try:
            self._progress(uri, state, flight)
        except Exception:
            logger.exception("an answer could not be made")
            _stop(flight)
            state.flight = None if state.flight is flight else state.flight
            state.prefetch = None if state.prefetch is flight else state.prefetch
            ticket = state.ticket
            if ticket is not None and (ticket.flight is flight or flight in ticket.candidates):
                self._tickets.drop(ticket, "failed")

    def _progress(self, uri: str, state: DocumentState, flight: Flight) -> None:
        if flight.error is not None:
            self._failed(state, flight)
            return
        self._recovered()
        if flight.done:
            self._landed(uri, state, flight)
        ticket = state.ticket
        if ticket is not None and (ticket.flight is flight or flight in ticket.candidates):
            self._consider(ticket)

    def _landed(self, uri: str, state: DocumentState, flight: Flight) -> None:
        """A flight is complete."""
        if flight.plan.purpose == "asked":
            state.middle_ids = flight.middle_ids
        if flight.plan.purpose == "prefetch":
            if not flight.cleaned().reason:
                state.answers.add(flight.answer())
        else:
            self._debounce.answered((flight.updated_s - flight.started_s) * 1000)
            waited_for = state.ticket is not None and state.ticket.flight is flight
            if flight is state.flight and not waited_for and not flight.cleaned().reason:
                state.answers.add(flight.answer())
                self._client.more_available(uri)
        if flight is state.prefetch:
            state.prefetch = None

    def _consider(self, ticket: Ticket) -> None:
        """Answers a ticket if what there is suffices."""
        flight = ticket.flight
        assert flight is not None
        typed = flight.typed_at(ticket.place)
        if typed is None and ticket.joined is not None and not flight.cleaned().reason:
            self._relaunch(ticket)  # the user typed ahead; the model went another way or stopped short
        elif flight.done:
            self._finish(ticket, flight, typed)
        elif ticket.overdue and typed is not None:
            self._cut_short(ticket, flight, typed)

    def _finish(self, ticket: Ticket, flight: Flight, typed: str | None) -> None:
        cleaned = flight.cleaned()
        if cleaned.reason or typed is None:
            ticket.state.flight = None
            self._tickets.drop(ticket, cleaned.reason or "blank", source_of(ticket, flight))
            self.move_anchor(ticket)
            return
        if self._wants_more(ticket, flight):
            return
        ticket.state.flight = None
        offers: list[Offer] = []
        for number, candidate in enumerate([flight, *ticket.candidates]):
            text = candidate.cleaned().text
            if candidate.done and not candidate.cleaned().reason and text.startswith(typed):
                if number:
                    ticket.state.answers.add(candidate.answer())
                rest = reused(candidate.answer(), ticket.place)
                if rest is not None and rest.text not in [offer.text for offer in offers]:
                    offers.append(offer_of(rest))
        ticket.state.answers.add(flight.answer())
        self._tickets.answer(ticket, offers, source_of(ticket, flight))
        self.move_anchor(ticket)
        if (rest := ticket.state.answers.find(ticket.place)) is not None:
            self.prefetch(ticket, rest)

    def _wants_more(self, ticket: Ticket, flight: Flight) -> bool:
        """Explicit invocation: further candidates, one after the other, while there is time."""
        if ticket.automatic or ticket.overdue or ticket.selected is not None:
            return False
        if ticket.candidates and not ticket.candidates[-1].done:
            return True
        number = len(ticket.candidates) + 1
        if number >= self._settings().candidates:
            return False
        candidate = self._flight(ticket, flight.base, number)
        ticket.candidates.append(candidate)
        self._service.submit(candidate.job)
        return True

    def _cut_short(self, ticket: Ticket, flight: Flight, typed: str) -> None:
        """The deadline has passed: answers what makes sense of the text so far; the flight goes on."""
        cleaned = flight.cleaned()
        text = deadline_cut(cleaned.text[len(typed) :])
        if cleaned.reason or not text.strip():
            return
        answer = flight.answer(len(typed) + len(text))
        ticket.state.answers.add(answer)
        self._service.set_priority(flight.job, Priority.BACKGROUND)
        rest = reused(answer, ticket.place)
        if rest is not None:
            self._tickets.answer(ticket, [offer_of(rest)], source_of(ticket, flight, "deadline"))

    def _relaunch(self, ticket: Ticket) -> None:
        self.stop(ticket.state)
        ticket.joined = None
        self.launch(ticket)

    def _failed(self, state: DocumentState, flight: Flight) -> None:
        ticket = state.ticket
        if flight is state.flight:
            state.flight = None
        if flight is state.prefetch:
            state.prefetch = None
        if ticket is not None and ticket.flight is flight:
            self._tickets.drop(ticket, "failed")
        message = f"{type(flight.error).__name__}: {flight.error}"
        if message != self._failing:
            self._failing = message
            self._client.status(Status("error", f"The model failed: {message}"))

    def _recovered(self) -> None:
        if self._failing:
            self._failing = ""
            self._client.status(self._service.status)


def goes_further(flight: Flight, rest: Reused, place: Place) -> bool:
    """Whether a flight says more at a place than what is kept."""
    typed = flight.typed_at(place) or ""
    return len(flight.cleaned().text) - len(typed) > len(rest.text)


def offer_of(rest: Reused) -> Offer:
    """What is left of an answer, as something to offer."""
    return Offer(rest.answer.id, rest.text, rest.replaced)


def _stop(flight: Flight | None) -> None:
    if flight is not None:
        flight.job.cancel()
