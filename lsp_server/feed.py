"""One client's part in the sources: what it opened, edited, closed and accepted, as far as that is indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from lsp_server.documents import Document, Edit
from lsp_server.gate import is_on_disk, path_of, reasons, root_of
from lsp_server.settings import Settings

if TYPE_CHECKING:
    from lsp_server.sources import Sources

NOT_INDEXED = frozenset({"scheme", "secret", "out_of_step", "too_many_lines", "too_large"})


class SourceFeed:
    """Passes a client's events on; to nobody where the process has no sources."""

    def __init__(
        self,
        sources: Sources | None,
        settings: Callable[[], Settings],
        documents: Iterable[Document] = (),
    ) -> None:
        """``documents``: those that are open, whenever it is asked."""
        self._documents = documents
        self._sources = sources
        self._settings = settings
        self._roots: list[str] = []
        self._fed: set[str] = set()  # paths

    @property
    def roots(self) -> list[str]:
        """The client's workspace folders."""
        return self._roots

    def set_roots(self, roots: Sequence[str]) -> None:
        """The client's workspace folders, from now on; one that went away is forgotten.

        All is judged again: open documents may lie in another root now.
        """
        gone = [root for root in self._roots if root not in roots]
        self._roots = list(roots)
        if self._sources is None:
            return
        for root in gone:
            self._sources.remove_root(root, self)
        for root in self._roots:
            others = [other for other in roots if other != root]
            self._sources.add_root(root, others, self._settings(), self)
        for document in self._documents:
            self.opened(document)

    def settings_changed(self) -> None:
        """What is indexed is judged again."""
        self.set_roots(self._roots)

    def opened(self, document: Document) -> None:
        """A document was opened or replaced as a whole."""
        if self._sources is None or not self._is_indexed(document):
            self.closed(document)
            return
        path = path_of(document.uri)
        self._fed.add(path)
        self._sources.open(self, path, root_of(path, self._roots), document.snapshot())

    def edited(self, document: Document, before: Sequence[str], edit: Edit) -> None:
        """A document's text ``before`` was edited."""
        path = path_of(document.uri)
        if self._sources is not None and path in self._fed:
            self._sources.edit(self, path, root_of(path, self._roots), before, edit)

    def closed(self, document: Document) -> None:
        """A document was closed, or is not to be indexed any more."""
        path = path_of(document.uri)
        if self._sources is not None and path in self._fed:
            self._fed.discard(path)
            self._sources.close(self, path)

    def accepted(self, document: Document, text: str) -> None:
        """A completion was accepted in a document."""
        path = path_of(document.uri)
        if self._sources is not None and path in self._fed:
            self._sources.accepted(path, root_of(path, self._roots), text)

    def files_changed(self, uris: Sequence[str]) -> None:
        """Files on disk were made, changed or removed."""
        if self._sources is not None:
            self._sources.files_changed([path_of(uri) for uri in uris if is_on_disk(uri)])

    def end(self) -> None:
        """The client is gone; its roots stay, in case it comes back."""
        if self._sources is not None:
            for path in self._fed:
                self._sources.close(self, path)
            self._sources.leave(self)
        self._fed.clear()

    def _is_indexed(self, document: Document) -> bool:
        return is_on_disk(document.uri) and NOT_INDEXED.isdisjoint(reasons(document, self._settings()))
