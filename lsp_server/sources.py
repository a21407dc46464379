"""What drafts are copied from, as the event loop sees it: a queue of what the editors do.

Events are worked on by one thread of our own; the worker thread only queries. Importing this brings no engine:
the stores themselves need the model's tokenizer, and are made when it is there.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lsp_server.documents import Edit
from lsp_server.settings import Settings

if TYPE_CHECKING:
    from lsp_server.stores import RootedStores
    from speculation.completion import Completer

logger = logging.getLogger(__name__)


class Sources:
    """All stores of a process. Made when the engine is loaded; events that came before wait for it."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Callable[[RootedStores], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def attach(self, engine: Completer, tokenizer_file: Path) -> None:
        """Gives the engine its drafter and starts to work on events. Called once, by the worker thread."""
        from lsp_server.stores import RootedDrafter, RootedStores
        from speculation.policy import GainPolicy

        stores = RootedStores(engine.tokenizer, tokenizer_file)
        engine.drafter = RootedDrafter(stores, GainPolicy(engine.costs))
        self._thread = threading.Thread(target=self._run, args=(stores,), name="sources", daemon=True)
        self._thread.start()

    def open(self, owner: object, path: str, root: str, lines: Sequence[str]) -> None:
        """A document is there, or new as a whole. ``owner``: the client; two may have one file open."""
        self._put(lambda stores: stores.open(owner, path, root, "\n".join(lines)))

    def edit(self, owner: object, path: str, root: str, before: Sequence[str], edit: Edit) -> None:
        """A document's text ``before`` was edited."""
        self._put(lambda stores: stores.edit(owner, path, root, before, edit))

    def close(self, owner: object, path: str) -> None:
        """A client closed a document."""
        self._put(lambda stores: stores.close(owner, path))

    def accepted(self, path: str, root: str, text: str) -> None:
        """A completion was accepted."""
        self._put(lambda stores: stores.remember("completion", path, root, text))

    def add_root(self, root: str, others: Iterable[str], settings: Settings, owner: object = None) -> None:
        """A workspace folder is open in a client, the ``owner``."""
        neighbours = tuple(others)
        self._put(lambda stores: stores.add_root(root, neighbours, settings, owner))

    def remove_root(self, root: str, owner: object = None) -> None:
        """A client closed a workspace folder; it is forgotten when none has it open."""
        self._put(lambda stores: stores.remove_root(root, owner))

    def leave(self, owner: object) -> None:
        """A client is gone; its workspace folders stay, in case it comes back."""
        self._put(lambda stores: stores.leave(owner))

    def files_changed(self, paths: Sequence[str]) -> None:
        """Files on disk were made, changed or removed."""
        self._put(lambda stores: stores.files_changed(paths))

    def stop(self) -> None:
        """Ends the thread and the indexers' children; what they finished stays."""
        self._stopped = True
        self._events.put(None)
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _put(self, event: Callable[[RootedStores], None]) -> None:
        if not self._stopped:
            self._events.put(event)

    def _run(self, stores: RootedStores) -> None:
        while (event := self._next(stores)) is not None:
            try:
                event(stores)
            except Exception:  # drafts are a help: without one of them completions go on
                logger.exception("an index event failed")
        stores.stop()

    def _next(self, stores: RootedStores) -> Callable[[RootedStores], None] | None:
        try:
            return self._events.get(timeout=stores.quiet_in_s())
        except queue.Empty:
            return lambda stores: stores.settle_edits()
