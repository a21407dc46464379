"""What was deleted or replaced in this session: likely to be written again near by. In memory only."""

from __future__ import annotations

from cache.boundaries import Encode

MAX_PASSAGE = 2_000  # characters of one replaced text: a draft is never as long
GROWN = 250  # a passage that grows by single characters is complete at this length


class ReplacedText:
    """The passages of all documents, the most recent ones.

    One thread adds, and tokenises what is complete; another asks.
    """

    def __init__(self, encode: Encode, max_passages: int = 64) -> None:
        self._encode = encode
        self._max_passages = max_passages
        self._passages: list[_Passage] = []  # oldest first; only the last may not be tokenised yet

    def add(self, document: str, start: int, text: str) -> None:
        """``text`` was removed at offset ``start``; characters deleted one after another make one passage."""
        if not text:
            return
        last = self._passages[-1] if self._passages else None
        if last is not None and not (last.tokens is None and last.grow(document, start, text)):
            self._complete(last)
            last = None
        passage = last or _Passage(document, start, text[:MAX_PASSAGE])
        if len(passage.text) > GROWN:
            self._complete(passage)
        if passage is not last:
            self._passages.append(passage)
            del self._passages[: -self._max_passages]

    def passages(self, document: str, count: int = 8) -> list[list[int]]:
        """The most recent passages as tokens, the likeliest last: those of ``document`` after all others."""
        chosen = sorted(self._passages, key=lambda passage: passage.document == document)[-count:]
        return [self._complete(passage) for passage in chosen]

    def clear(self) -> None:
        """Forgets everything."""
        self._passages.clear()

    def _complete(self, passage: _Passage) -> list[int]:
        if passage.tokens is None:
            passage.tokens = list(self._encode(passage.text))
        return passage.tokens


class _Passage:
    __slots__ = ("document", "start", "text", "tokens")

    def __init__(self, document: str, start: int, text: str) -> None:
        self.document = document
        self.start = start
        self.text = text
        self.tokens: list[int] | None = None  # once they are made the passage does not grow any more

    def grow(self, document: str, start: int, text: str) -> bool:
        """Adds what was removed just before or behind it; False when that was elsewhere."""
        if document != self.document:
            return False
        if start + len(text) == self.start:
            self.text, self.start = (text + self.text)[:MAX_PASSAGE], start
            return True
        if start == self.start:
            self.text = (self.text + text)[:MAX_PASSAGE]
            return True
        return False
