"""The stores behind the drafts, one set for each workspace root, and the drafter that goes by the request's root.

Each root has its own drafter over its own stores, so that nothing of one root shows up in another; what was
learned about sources, and the cost table, is shared.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cache.background_indexer import BackgroundIndexer
from cache.boundaries import Encode
from cache.frozen_index import MANIFEST, FrozenIndex, directory_for
from cache.history import History, Kind
from cache.hot_index import HotIndex
from cache.ngrams import Match
from cache.paths import history_dir, index_dir
from cache.replaced_text import ReplacedText
from cache.short_grams import FrozenWithShortGrams
from cache.workspace import Workspace, concerns
from lsp_server.documents import Edit
from lsp_server.settings import Settings
from lsp_server.settled_edits import SettledEdits
from speculation.draft import Draft, DraftRequest, Round
from speculation.drafting import Stores, WorkspaceDrafter, build_drafter
from speculation.evidence import Evidence
from speculation.policy import GainPolicy
from speculation.tokenizer import Tokenizer, load_encode

logger = logging.getLogger(__name__)

PASSAGES = 8  # of deleted text that a request looks at
SLICE = 1_000  # characters that the open documents take at once: a query waits for no more
_YIELD_S = 0.0002  # between two slices


class RootedDrafter:
    """Implements `draft.Drafter`: hands each request to the drafter of its root."""

    def __init__(self, stores: RootedStores, policy: GainPolicy) -> None:
        self._stores = stores
        self._policy = policy
        self._evidence = Evidence()
        self._drafters: dict[str, tuple[_Root, WorkspaceDrafter]] = {}
        self._current: WorkspaceDrafter | None = None

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        root = self._stores.root(request.root)
        root.refresh()
        known = self._drafters.get(request.root)
        if known is None or known[0] is not root:
            made = build_drafter(self._stores.of_root(root), self._policy, evidence=self._evidence)
            known = self._drafters[request.root] = (root, made)
        self._current = known[1]
        self._current.start(request)

    def draft(self, limit: int) -> Draft:
        """The draft worth verifying now."""
        assert self._current is not None
        return self._current.draft(limit)

    def observe(self, round_: Round) -> None:
        """What became of it."""
        assert self._current is not None
        self._current.observe(round_)


@dataclass(slots=True, eq=False)
class _Root:
    """What belongs to one workspace root ("" is all that lies in none)."""

    path: str
    history: History
    deleted: ReplacedText
    wanted: tuple[object, ...] = ()  # the settings and neighbours that it was made for
    workspace: Workspace | None = None
    frozen: FrozenIndex | None = None
    indexer: BackgroundIndexer | None = None

    def refresh(self) -> None:
        """Drops what another process cleared; costs two looks at the file system."""
        self.history.refresh()
        frozen = self.frozen
        if frozen is not None and frozen.segments and not (frozen.directory / MANIFEST).exists():
            frozen.refresh()

    def keeps(self, path: str) -> bool:
        """Whether texts of a document may be remembered: not where its file would not be indexed."""
        return self.workspace is None or self.workspace.keeps(path)


class RootedStores:
    """Changed by the sources' thread only; the worker thread queries."""

    def __init__(self, tokenizer: Tokenizer, tokenizer_file: Path) -> None:
        self._tokenizer = tokenizer
        self._tokenizer_file = tokenizer_file
        self._hot = HotIndex(tokenizer.encode)
        self._owners: dict[str, object] = {}  # of open documents: the client that fed them last
        self._root_owners: dict[str, set[object]] = {}  # the clients that have a root open
        self._roots: dict[str, _Root] = {}
        self._lock = threading.Lock()  # of `_roots`
        self._written = SettledEdits(partial(self.remember, "edit"))

    def root(self, path: str) -> _Root:
        """The stores of a root, made without index and history where no client has it open."""
        with self._lock:
            if path not in self._roots:
                self._roots[path] = self._make(path, history=False)
            return self._roots[path]

    def of_root(self, root: _Root) -> Stores:
        """What a root's drafter may copy from."""
        return Stores(
            open_documents=_OpenDocuments(self._hot, root.path),
            workspace=FrozenWithShortGrams(root.frozen) if root.frozen is not None else None,
            history=root.history,
            deleted=lambda request: root.deleted.passages(request.document, PASSAGES),
            ends_line=partial(_ends_line, self._tokenizer),
        )

    def add_root(self, path: str, others: Sequence[str], settings: Settings, owner: object = None) -> None:
        self._root_owners.setdefault(path, set()).add(owner)
        wanted = (settings.history, settings.index, tuple(settings.secret_patterns), frozenset(others))
        with self._lock:
            known = self._roots.get(path)
        if known is not None and known.wanted == wanted:
            return
        if known is not None and known.indexer is not None:
            known.indexer.stop()  # first: it must not write what is not wanted any more
        root = self._make(path, settings.history, settings.secret_patterns)
        root.wanted = wanted
        root.history.load()
        if Path(path).is_dir():
            self._watch(root, others, settings)
        with self._lock:  # complete: a drafter made for it keeps what it then has
            self._roots[path] = root
        self._override()

    def remove_root(self, path: str, owner: object = None) -> None:
        owners = self._root_owners.get(path, set())
        owners.discard(owner)
        if owners:
            return
        self._written.settle_all()  # while there is a history to write it to
        self._root_owners.pop(path, None)
        with self._lock:
            root = self._roots.pop(path, None)
        if root is not None and root.indexer is not None:
            root.indexer.stop()
        self._hot.remove_root(path)

    def leave(self, owner: object) -> None:
        """A client is gone; the roots it had open stay until another one removes them."""
        for owners in self._root_owners.values():
            owners.discard(owner)

    def open(self, owner: object, path: str, root: str, text: str) -> None:
        self._written.settle(owner, path)
        self._take(owner, path, root, text)

    def edit(self, owner: object, path: str, root: str, before: Sequence[str], edit: Edit) -> None:
        self._written.edit(owner, path, root, before, edit)
        start, end = edit.offsets(before)
        if start < end:
            self.root(root).deleted.add(path, start, edit.removed(before))
        count = len(self._hot)
        if self._owners.get(path) is owner and self._edit_hot(path, start, end, edit.text):
            if len(self._hot) != count:  # it grew, and others were evicted
                self._override()
            return
        text = "\n".join(before)  # another client has the file open too, or it was evicted
        self._take(owner, path, root, text[:start] + edit.text + text[end:])

    def remember(self, kind: Kind, path: str, root: str, text: str) -> None:
        """Puts what was accepted or written into the history, if it may be kept."""
        known = self.root(root)
        if known.history.enabled and known.keeps(path):
            known.history.record(kind, path, text)

    def settle_edits(self) -> None:
        """Remembers what was written and has been left alone since."""
        self._written.settle_quiet()

    def quiet_in_s(self) -> float | None:
        """In how many seconds that is to be called; None: not before the next edit."""
        return self._written.quiet_in_s()

    def close(self, owner: object, path: str) -> None:
        self._written.settle(owner, path)
        if self._owners.get(path) is owner:
            del self._owners[path]
            self._hot.close(path)
            self._override()

    def files_changed(self, paths: Sequence[str]) -> None:
        with self._lock:
            roots = list(self._roots.values())
        for root in roots:
            if root.indexer is not None:
                inside = [path for path in paths if concerns(root.path, path)]
                if inside:
                    root.indexer.changed(inside)

    def stop(self) -> None:
        self._written.settle_all()
        for root in list(self._roots.values()):
            if root.indexer is not None:
                root.indexer.stop()

    def _take(self, owner: object, path: str, root: str, text: str) -> None:
        self._owners[path] = owner
        self._hot.open(path, text, root)
        self._override()

    def _edit_hot(self, path: str, start: int, end: int, text: str) -> bool:
        """A long edit in slices: the index is locked while it takes one."""
        for number, (first, last, piece) in enumerate(_slices(start, end, text)):
            if number:
                time.sleep(_YIELD_S)  # a lock that is taken again at once is never another's
            if not self._hot.edit(path, first, last, piece):
                return False
        return True

    def _watch(self, root: _Root, others: Sequence[str], settings: Settings) -> None:
        try:
            root.workspace = Workspace(root.path, others, settings.secret_patterns)
            if not settings.index:
                return
            directory = directory_for(index_dir(), root.path, self._tokenizer.hash)
        except OSError as error:
            logger.warning("no index of %s: %s", root.path, error)
            return
        root.frozen = FrozenIndex(directory)
        encode = partial(load_encode, self._tokenizer_file)
        root.indexer = BackgroundIndexer(root.frozen, root.workspace, encode)
        root.indexer.start()

    def _override(self) -> None:
        """Open files are found as they are in the editor, not as they are on disk: each in one of both."""
        with self._lock:
            roots = list(self._roots.values())
        for root in roots:
            if root.frozen is not None:
                paths = (Path(path) for path in self._hot.documents(root.path))
                inside = (path for path in paths if path.is_relative_to(root.path))
                root.frozen.override({path.relative_to(root.path).as_posix() for path in inside})

    def _make(self, path: str, history: bool, secret_patterns: Sequence[str] = ()) -> _Root:
        encode: Encode = self._tokenizer.encode
        directory, enabled = Path(), history and bool(path)
        if enabled:
            try:
                directory = history_dir()
            except OSError as error:
                logger.warning("history is off: %s", error)
                enabled = False
        kept = History(directory, path, encode, enabled, secret_patterns)
        return _Root(path, kept, ReplacedText(encode))


class _OpenDocuments:
    """The open documents of one root as a source; implements `indexed.Index`."""

    def __init__(self, hot: HotIndex, root: str) -> None:
        self._hot = hot
        self._root = root

    def query(self, context: Sequence[int], max_hits: int) -> list[Match]:
        """The longest, then most recent, places where the end of ``context`` occurs."""
        return self._hot.query(context, max_hits, root=self._root)

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""
        return self._hot.continuation(match, count)


def _slices(start: int, end: int, text: str) -> Iterator[tuple[int, int, str]]:
    """Edits that together replace ``start`` to ``end`` by ``text``: what goes from its end on, then what comes."""
    while end - start > SLICE:
        yield end - SLICE, end, ""
        end -= SLICE
    yield start, end, text[:SLICE]
    for at in range(SLICE, len(text), SLICE):
        yield start + at, start + at, text[at : at + SLICE]


def _ends_line(tokenizer: Tokenizer, token: int) -> bool:
    return b"\n" in tokenizer.bytes_of(token)
