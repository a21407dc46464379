"""The n-gram index of the open documents, kept in step with every edit.

Each document is a chain of small blocks, cut where the tokenizer provably has a boundary (``boundaries``). An
edit tokenises only the blocks it touches, so its cost follows the edit, not the document; the tokens always
equal those of the whole text. A hash from each 3-gram to the most recent places where it ends seeds the
search, and every seed is extended backwards. Costs: ``python -m benchmarks.index``.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise

from cache.boundaries import Boundary, Encode, find_boundary, joins, split
from cache.ngrams import MAX_MATCH, Match, Region

SEED = 3  # tokens
BLOCK_CHARS = 256  # smallest block: about six lines
MAX_BLOCK_CHARS = 16_384  # a longer piece without a boundary (minified text) is kept but not tokenised
MAX_PLACES = 32  # most recent places remembered of one 3-gram
MAX_TOKENS = 1_000_000  # of all documents together; about 170 bytes each

_INDEX_BITS = 20
_INDEX_MASK = (1 << _INDEX_BITS) - 1


class Block:
    """A piece of a document between two boundaries."""

    __slots__ = ("document", "next", "previous", "text", "tokens", "uid")

    def __init__(self, uid: int, document: Document, text: str, tokens: Sequence[int]) -> None:
        self.uid = uid
        self.document = document
        self.text = text
        self.tokens = array("I", tokens)
        self.previous: Block | None = None
        self.next: Block | None = None


class Document:
    """An open document: its blocks in order, and where each begins."""

    __slots__ = ("blocks", "id", "root", "starts")

    def __init__(self, document_id: str, root: str) -> None:
        self.id = document_id
        self.root = root
        self.blocks: list[Block] = []
        self.starts: list[int] = []  # code points before each block

    def text(self) -> str:
        return "".join(block.text for block in self.blocks)


class HotIndex:
    """All open documents. Edits come from one thread; queries may come from others."""

    def __init__(self, encode: Encode, max_tokens: int = MAX_TOKENS) -> None:
        self._encode = encode
        self._boundary: Boundary | None = find_boundary(encode)
        self._max_tokens = max_tokens
        self._documents: OrderedDict[str, Document] = OrderedDict()  # least recently touched first
        self._blocks: dict[int, Block] = {}
        self._seeds: dict[int, int | list[int]] = {}  # most grams have one place: no list
        self._next_uid = 0
        self._token_count = 0
        self._lock = threading.RLock()

    # -- documents

    def __contains__(self, document_id: str) -> bool:
        return document_id in self._documents

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def token_count(self) -> int:
        """Tokens of all documents together."""
        return self._token_count

    def documents(self, root: str | None = None) -> list[str]:
        """Ids, least recently touched first; those of one workspace root where one is given."""
        with self._lock:
            return [d.id for d in self._documents.values() if root is None or d.root == root]

    def text(self, document_id: str) -> str:
        """The text as the index has it; KeyError when the document is not here."""
        with self._lock:
            return self._documents[document_id].text()

    def tokens(self, document_id: str) -> list[int]:
        """The tokens of a document; KeyError when it is not here."""
        with self._lock:
            return [token for block in self._documents[document_id].blocks for token in block.tokens]

    def open(self, document_id: str, text: str, root: str = "") -> None:
        """Adds a document, or replaces what was known of it."""
        self.close(document_id)
        document = Document(document_id, root)
        self._documents[document_id] = document
        for piece in split(text, self._boundary, BLOCK_CHARS):
            tokens = self._tokenise(piece)
            with self._lock:  # taken block by block: a long document must not hold up a query
                self._place(
                    document,
                    len(document.blocks),
                    len(document.blocks),
                    [self._new_block(document, piece, tokens)],
                )
        self._measure(document, 0)
        self._evict()

    def edit(self, document_id: str, start: int, end: int, new_text: str) -> bool:
        """Replaces code points ``start`` to ``end``; False when the document is not here: open it then."""
        document = self._documents.get(document_id)
        if document is None:
            return False
        with self._lock:
            self._documents.move_to_end(document_id)
            self._edit(document, start, end, new_text)
        self._evict()
        return True

    def close(self, document_id: str) -> None:
        """Forgets a document."""
        document = self._documents.pop(document_id, None)
        while document is not None and document.blocks:
            with self._lock:
                count = len(document.blocks)
                self._place(document, max(0, count - 64), count, [])

    def remove_root(self, root: str) -> None:
        """Forgets all documents of a workspace root."""
        for document in list(self._documents.values()):
            if document.root == root:
                self.close(document.id)

    # -- queries

    def query(
        self,
        context: Sequence[int],
        max_hits: int = 8,
        exclude: Region | None = None,
        root: str | None = None,
    ) -> list[Match]:
        """The longest, then most recent, places where the end of ``context`` occurs; at least 3 tokens agree.

        ``exclude`` leaves out the blocks that overlap a region, for example around the cursor, where the
        context would find itself. ``root``: only documents of this workspace root.
        """
        if len(context) < SEED:
            return []
        with self._lock:
            places = self._seeds.get((context[-3] << 40) ^ (context[-2] << 20) ^ context[-1])
            if places is None:
                return []
            excluded = self._blocks_in(exclude) if exclude is not None else ()
            back = [*context[-MAX_MATCH:]][::-1]
            hits = []
            for recency, place in enumerate(reversed(places) if isinstance(places, list) else (places,)):
                block = self._blocks[place >> _INDEX_BITS]
                if block.uid in excluded or (root is not None and block.document.root != root):
                    continue
                index = place & _INDEX_MASK
                length = _agreement(block, index, back)
                if length >= SEED:
                    hits.append((-length, recency, block, index))
        hits.sort(key=lambda hit: hit[:2])
        return [
            Match(-length, block.document.id, block, index) for length, _, block, index in hits[:max_hits]
        ]

    def continuation(self, match: Match, count: int) -> list[int]:
        """At most ``count`` tokens that follow a match."""
        block: Block | None = match.place
        start = match.at + 1
        out: list[int] = []
        with self._lock:
            while block is not None and len(out) < count and not _is_gap(block):
                out += block.tokens[start : start + count - len(out)]
                start = 0
                block = block.next
        return out

    # -- inside

    def _tokenise(self, text: str) -> Sequence[int]:
        return self._encode(text) if len(text) <= MAX_BLOCK_CHARS else ()

    def _new_block(self, document: Document, text: str, tokens: Sequence[int]) -> Block:
        self._next_uid += 1
        return Block(self._next_uid, document, text, tokens)

    def _edit(self, document: Document, start: int, end: int, new_text: str) -> None:
        blocks, starts = document.blocks, document.starts
        first = max(0, bisect_right(starts, start) - 1)
        last = max(first, bisect_right(starts, end) - 1) + 1  # one past
        last = min(last, len(blocks))
        old = "".join(block.text for block in blocks[first:last])
        origin = starts[first] if starts else 0
        text = old[: start - origin] + new_text + old[end - origin :]
        while True:  # a seam that is no boundary any more pulls the neighbour in
            if not text and first > 0 and last < len(blocks):
                if joins(blocks[first - 1].text, blocks[last].text, self._boundary):
                    break
                text, last = blocks[last].text, last + 1
            elif first > 0 and text and not joins(blocks[first - 1].text, text, self._boundary):
                first -= 1
                text = blocks[first].text + text
            elif last < len(blocks) and text and not joins(text, blocks[last].text, self._boundary):
                text += blocks[last].text
                last += 1
            else:
                break
        new = [
            self._new_block(document, piece, self._tokenise(piece))
            for piece in split(text, self._boundary, BLOCK_CHARS)
        ]
        self._place(document, first, last, new)
        self._measure(document, first)

    def _place(self, document: Document, first: int, last: int, new: list[Block]) -> None:
        """Puts ``new`` in the place of blocks ``first`` to ``last`` and brings the seeds up to date."""
        blocks = document.blocks
        old = blocks[first:last]
        before = blocks[first - 1] if first > 0 else None
        after = blocks[last] if last < len(blocks) else None
        for block in old:
            self._forget(block, len(block.tokens))
            del self._blocks[block.uid]
            self._token_count -= len(block.tokens)
        touched = list(_heads(after))  # their first grams reach back into what is replaced
        for block, count in touched:
            self._forget(block, count)
        blocks[first:last] = new
        chain = [before, *new, after]
        for left, right in pairwise(chain):
            if left is not None:
                left.next = right
            if right is not None:
                right.previous = left
        for block in new:
            self._blocks[block.uid] = block
            self._token_count += len(block.tokens)
            self._remember(block, len(block.tokens))
        for block, count in touched:
            self._remember(block, count)

    def _measure(self, document: Document, first: int) -> None:
        """Brings the block offsets up to date from block ``first`` on."""
        origin = document.starts[first] if first < len(document.starts) else 0
        if first and first >= len(document.starts):
            first, origin = 0, 0
        lengths = [len(block.text) for block in document.blocks[first:]]
        document.starts[first:] = list(accumulate(lengths, initial=origin))[:-1]

    def _remember(self, block: Block, count: int) -> None:
        """Enters the 3-grams that end in the first ``count`` tokens of a block."""
        seeds = self._seeds
        base = block.uid << _INDEX_BITS
        for index, key in _grams(block, count):
            places = seeds.get(key)
            if places is None:
                seeds[key] = base + index
            elif isinstance(places, int):
                seeds[key] = [places, base + index]
            else:
                places.append(base + index)
                if len(places) > MAX_PLACES:
                    del places[0]

    def _forget(self, block: Block, count: int) -> None:
        seeds = self._seeds
        base = block.uid << _INDEX_BITS
        for index, key in _grams(block, count):
            places = seeds.get(key)
            if isinstance(places, list):
                if base + index in places:
                    places.remove(base + index)
                    if not places:
                        del seeds[key]
            elif places == base + index:
                del seeds[key]

    def _blocks_in(self, region: Region) -> Collection[int]:
        document = self._documents.get(region.document)
        if document is None:
            return ()
        first = max(0, bisect_right(document.starts, region.start) - 1)
        last = bisect_right(document.starts, region.end)
        return {block.uid for block in document.blocks[first:last]}

    def _evict(self) -> None:
        while self._token_count > self._max_tokens and len(self._documents) > 1:
            self.close(next(iter(self._documents)))


def _is_gap(block: Block) -> bool:
    """Whether a block stands for text that was too long to tokenise: nothing matches across it."""
    return not block.tokens and bool(block.text)


def _tail(block: Block, count: int) -> list[int]:
    """The last tokens before a block, at most ``count``."""
    out: list[int] = []
    previous = block.previous
    while previous is not None and len(out) < count and not _is_gap(previous):
        out[:0] = previous.tokens[-(count - len(out)) :]
        previous = previous.previous
    return out


def _heads(block: Block | None) -> Iterator[tuple[Block, int]]:
    """The blocks whose first tokens end a gram that begins before ``block``, with how many of them do."""
    left = SEED - 1
    while block is not None and left > 0:
        yield block, min(left, len(block.tokens))
        if _is_gap(block):
            return
        left -= len(block.tokens)
        block = block.next


def _grams(block: Block, count: int) -> Iterator[tuple[int, int]]:
    """(index, key) of the 3-grams that end in the first ``count`` tokens of a block."""
    tail = _tail(block, SEED - 1)
    tokens = [*tail, *block.tokens[:count]]
    first = SEED - 1 - len(tail)
    return enumerate(
        [(a << 40) ^ (b << 20) ^ c for a, b, c in zip(tokens, tokens[1:], tokens[2:], strict=False)], first
    )


def _agreement(block: Block, index: int, back: list[int]) -> int:
    """How many tokens of ``back`` (the context, last token first) stand at ``index`` and before it."""
    length = 0
    tokens = block.tokens
    for token in back:
        while index < 0:
            if block.previous is None or _is_gap(block.previous):
                return length
            block = block.previous
            tokens = block.tokens
            index = len(tokens) - 1
        if tokens[index] != token:
            return length
        length += 1
        index -= 1
    return length
