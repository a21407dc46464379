"""From a document and a cursor to what the engine is asked.

Made on the event loop, where the documents are; built on the worker thread, where joining a long text costs
nobody a keystroke.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lsp_server.anchor import Anchor, Held
from lsp_server.brackets import only_closes
from lsp_server.documents import Document, Place
from lsp_server.gate import path_of, root_of, why_not
from lsp_server.neighbours import neighbours
from lsp_server.settings import Settings
from speculation.request import CompletionRequest, FrozenPrompt

if TYPE_CHECKING:
    from speculation.sampling import SamplingParameters


@dataclass(frozen=True, slots=True)
class RequestBuilder:
    """Everything a request needs but the place and the candidate's number."""

    path: str
    root: str
    language: str
    settings: Settings
    anchor: Anchor
    context: tuple[tuple[str, tuple[str, ...]], ...]
    previous_answer: Sequence[int]
    forced_ids: Sequence[int]

    @classmethod
    def of(
        cls,
        document: Document,
        others: Iterable[Document],
        roots: Sequence[str],
        settings: Settings,
        anchor: Anchor,
        previous_answer: Sequence[int],
        forced_ids: Sequence[int],
    ) -> RequestBuilder:
        """For requests in ``document``, with the other documents as they are now.

        ``forced_ids``: ids of the last generation's middle; they count as far as they spell what was typed.
        """
        path = path_of(document.uri)
        characters = settings.context_characters if settings.context_files else 0
        context = neighbours(document, others, roots, lambda other: not why_not(other, settings), characters)
        return cls(
            path,
            root_of(path, roots),
            document.language,
            settings,
            anchor,
            context,
            previous_answer,
            forced_ids,
        )

    def build(self, place: Place, candidate: int, speculation: bool) -> CompletionRequest:
        """The request of the i-th candidate at a place.

        Text after the cursor means that one line is wanted.
        """
        return self._request(place, self.anchor.at(place), candidate, speculation)

    def prompt_from(self, held: Held) -> CompletionRequest:
        """What evaluates the prompt of an anchor that is not the document's yet, and no more."""
        anchor = (held.place.line, held.frozen)
        request = self._request(held.place, anchor, 0, speculation=False)
        return replace(request, forced_ids=(), prompt_only=True)

    def _request(
        self, place: Place, anchor: tuple[int, FrozenPrompt], candidate: int, speculation: bool
    ) -> CompletionRequest:
        anchor_line, frozen = anchor
        return CompletionRequest(
            text=place.text(),
            offset=place.offset(),
            path=self.path,
            root=self.root,
            language=self.language,
            anchor_line=anchor_line,
            max_tokens=self.settings.max_tokens,
            stop="block" if only_closes(place.after) else "line",
            speculation=speculation,
            sampling=self._sampling(candidate),
            frozen_prompt=frozen,
            previous_answer=self.previous_answer,
            forced_ids=self.forced_ids,
            context=[(path, "\n".join(lines)) for path, lines in self.context],
        )

    def _sampling(self, candidate: int) -> SamplingParameters | None:
        values = self.settings.active_sampling(candidate)
        if values is None:
            return None
        from speculation.sampling import SamplingParameters  # brings torch, which the engine has loaded

        return SamplingParameters(**values)
