"""One client's completions: from a request's receipt to its one answer.

Everything here runs on the event loop; nothing waits. A request becomes a ticket, which is answered from an
earlier answer, from a flight (a generation in the making) that agrees with what was typed, or from a new
flight after the debounce. An edit, a newer request or a cancellation answers the ticket with nothing at once.
Answering is in `tickets`, what concerns generations in `flights`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsp_server.builder import RequestBuilder
from lsp_server.debounce import Debounce
from lsp_server.documents import ChangeError, Document, Documents, Edit
from lsp_server.feed import SourceFeed
from lsp_server.flights import Flights, goes_further, offer_of
from lsp_server.gate import line_too_long, why_not
from lsp_server.kept import NEARBY_LINES
from lsp_server.messages import InlineCompletionParams
from lsp_server.positions import Encoding
from lsp_server.records import Recorder, Source
from lsp_server.selection import is_around, with_selected
from lsp_server.service import CompletionService
from lsp_server.settings import Settings
from lsp_server.status import Client, inactive
from lsp_server.ticket import DocumentState, Result, Ticket
from lsp_server.tickets import Tickets

if TYPE_CHECKING:
    from lsp_server.sources import Sources


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
        self._tickets = Tickets(recorder)
        self._flights = Flights(
            service, client, self._tickets, self.debounce, lambda: self.settings, self._builder
        )

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
        state = self._states[uri]
        self._tickets.supersede(state)
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
        self._flights.settle(state, edit.place_in(document.snapshot()) if edit and typed_here else None)

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

    def _forget(self, uri: str) -> None:
        if (state := self._states.pop(uri, None)) is not None:
            self._tickets.supersede(state)
            self._flights.stop(state)

    # requests

    def request(self, request_id: int | str, params: InlineCompletionParams) -> asyncio.Future[Result]:
        """`textDocument/inlineCompletion`; the text is the one at this very moment."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        received_s = time.perf_counter()
        document = self.documents.get(params.uri)
        if document is None:
            answer.set_result(None)
            return answer
        state = self._states[params.uri]
        self._tickets.supersede(state)
        self.documents.touch(params.uri)
        place = document.place(params.position.line, params.position.character, self.encoding)
        selected = params.selected
        if selected is not None and not is_around(selected, params.position, place):
            selected = None
        if selected is not None:
            place = with_selected(place, selected, self.encoding)
        ticket = Ticket(
            request_id,
            self._flights.next_id(),
            params.uri,
            state,
            document.language,
            self.encoding,
            place,
            not params.invoked,
            selected,
            answer,
            received_s,
        )
        self._tickets.add(ticket)
        self._tickets.guarded(ticket, lambda ticket: self._dispatch(ticket, document))
        return answer

    def cancel(self, request_id: int | str) -> None:
        """`$/cancelRequest`: answered with nothing, and no further forward pass."""
        if (ticket := self._tickets.get(request_id)) is not None:
            state = ticket.state
            self._tickets.drop(ticket, "cancelled")
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

    # how a request is answered

    def _dispatch(self, ticket: Ticket, document: Document) -> None:
        state = ticket.state
        if reason := self._inactive_reason(ticket, document):
            self._tickets.drop(ticket, reason)
            self._tell_inactive(ticket, reason)
            return
        state.told_inactive = ""
        flight = self._flights.agreeing(state, ticket.place)
        rest = state.answers.find(ticket.place)
        if rest is not None and (flight is None or not goes_further(flight, rest, ticket.place)):
            self._tickets.answer(ticket, [offer_of(rest)], Source("typed-through"))
            self._flights.prefetch(ticket, rest)
            return
        if not self.service.ready:
            self._tickets.drop(ticket, "no_engine" if self.service.status.kind == "error" else "not_ready")
        elif flight is not None:
            self._flights.join(ticket, flight)
        else:
            self._flights.stop(state)
            wait_ms = 0.0
            if ticket.automatic:
                wait_ms = self.debounce.wait_ms(
                    self.settings.client_debounce_ms, self.settings.max_debounce_ms
                )
            self._tickets.later(ticket, wait_ms, self._flights.launch)
            self._tickets.later(ticket, self.settings.deadline_ms, self._flights.overdue)

    def _inactive_reason(self, ticket: Ticket, document: Document) -> str:
        if reason := why_not(document, self.settings):
            return reason
        if line_too_long(document, ticket.place.line, self.settings):
            return "line_too_long"
        return "automatic_off" if ticket.automatic and not self.settings.automatic else ""

    def _tell_inactive(self, ticket: Ticket, reason: str) -> None:
        if ticket.state.told_inactive != reason:
            ticket.state.told_inactive = reason
            self.client.status(inactive(reason, ticket.uri))

    def _builder(self, ticket: Ticket) -> RequestBuilder:
        document = self.documents.get(ticket.uri)
        assert document is not None
        return RequestBuilder.of(
            document,
            self.documents,
            self.feed.roots,
            self.settings,
            ticket.state.anchor,
            ticket.state.answers.last_ids(),
            ticket.state.middle_ids,
        )
