"""The requests of one client that are not answered yet; each is answered exactly once.

All on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from lsp_server.flight import Flight
from lsp_server.items import Offer, item, item_for_selected, result
from lsp_server.records import Recorder, Source
from lsp_server.selection import without_replaced
from lsp_server.telemetry import Route
from lsp_server.ticket import DocumentState, Ticket

logger = logging.getLogger(__name__)


class Tickets:
    """Answers what is open, with items or with nothing, and records it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: dict[int | str, Ticket] = {}

    def add(self, ticket: Ticket) -> None:
        """A new request; the one before it on the same document was superseded."""
        self._open[ticket.request_id] = ticket
        ticket.state.ticket = ticket

    def get(self, request_id: int | str) -> Ticket | None:
        return self._open.get(request_id)

    def answer(self, ticket: Ticket, offers: Sequence[Offer], source: Source) -> None:
        """Answers with items; none of them is nothing."""
        built_s = time.perf_counter()
        if ticket.selected is None:
            items = [item(offer, ticket.place, ticket.encoding) for offer in offers]
        else:
            items = [
                item_for_selected(offer, ticket.selected)
                for offer in (without_replaced(offer, ticket.place) for offer in offers)
                if offer.text.strip()
            ]
        self._close(ticket)
        if not ticket.answer.done():
            ticket.answer.set_result(result(items))
        self._recorder.answered(ticket, offers, source, built_s)
        if offers:
            ticket.state.outcome.offered(offers[0].id, ticket.place, offers[0].text)

    def drop(self, ticket: Ticket, reason: str, source: Source | None = None) -> None:
        """Answers with nothing, for a reason of `status.REASONS`."""
        self._close(ticket)
        if not ticket.answer.done():
            ticket.answer.set_result(None)
        self._recorder.dropped(ticket, reason, source or source_of(ticket, ticket.flight))

    def supersede(self, state: DocumentState) -> None:
        """A newer request or edit came first."""
        if state.ticket is not None:
            self.drop(state.ticket, "superseded")

    def later(self, ticket: Ticket, wait_ms: float, call: Callable[[Ticket], None]) -> None:
        """Calls in a while, unless the ticket is answered by then."""
        if wait_ms <= 0:
            self.guarded(ticket, call)
            return
        loop = asyncio.get_running_loop()
        ticket.timers.append(loop.call_later(wait_ms / 1000, self.guarded, ticket, call))

    def guarded(self, ticket: Ticket, call: Callable[[Ticket], None]) -> None:
        """A fault of our own must not leave a request without its answer."""
        try:
            call(ticket)
        except Exception:
            logger.exception("a request failed")
            if not ticket.answer.done():
                self.drop(ticket, "failed")

    def _close(self, ticket: Ticket) -> None:
        for timer in ticket.timers:
            timer.cancel()
        for candidate in ticket.candidates:
            candidate.job.cancel()
        self._open.pop(ticket.request_id, None)
        if ticket.state.ticket is ticket:
            ticket.state.ticket = None


def source_of(ticket: Ticket, flight: Flight | None, finish_reason: str = "") -> Source:
    """Where a ticket's answer came from."""
    if flight is None:
        return Source("dropped")
    route: Route = "generated" if ticket.joined is None else "continued"
    return Source(route, flight, finish_reason or flight.finish_reason or "")
