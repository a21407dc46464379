"""The mirror of the editor's open documents.

Line ends are ``\\n``, ``\\r\\n`` and ``\\r`` and nothing else (`str.splitlines` also splits at form feeds and
U+2028, which shifts every later line). An edit costs what it touched; a snapshot shares the line strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lsp_server.positions import Encoding, to_index

_LINE_END = re.compile(r"\r\n|\n|\r")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class ChangeError(ValueError):
    """A change that cannot be applied: the mirror no longer equals the editor's text."""


def split_lines(text: str) -> tuple[list[str], list[str]]:
    """Line contents and line ends of ``text``; both lists have the same length, the last end is empty."""
    if "\r" not in text:
        lines = text.split("\n")
        return lines, ["\n"] * (len(lines) - 1) + [""]
    return _LINE_END.split(text), [*_LINE_END.findall(text), ""]


def normal_line_ends(text: str) -> str:
    """``text`` with `\\n` for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@dataclass(frozen=True, slots=True)
class Place:
    """An immutable text with a cursor: what a request is about.

    ``line`` and ``column`` count code points, from 0.
    """

    lines: Sequence[str]
    line: int
    column: int

    @property
    def before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.lines[self.line][: self.column]

    @property
    def after(self) -> str:
        """The cursor's line from the cursor on."""
        return self.lines[self.line][self.column :]

    def text(self) -> str:
        """The whole text with ``\\n`` line ends; lone surrogates, which no tokenizer takes, become U+FFFD."""
        return _LONE_SURROGATE.sub("�", "\n".join(self.lines))

    def offset(self) -> int:
        """The cursor as an offset into `text`."""
        return sum(map(len, self.lines[: self.line])) + self.line + self.column

    def with_inserted(self, text: str, replaced: int = 0) -> Place:
        """The place after inserting ``text`` at the cursor over ``replaced`` characters.

        Cursor at its end.
        """
        pieces = text.split("\n")
        tail = self.after[replaced:]
        middle = [self.before + pieces[0], *pieces[1:]]
        line, column = self.line + len(pieces) - 1, len(middle[-1])
        middle[-1] += tail
        return Place((*self.lines[: self.line], *middle, *self.lines[self.line + 1 :]), line, column)


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of a text that was replaced; lines and columns count code points, from 0."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str  # with ``\\n`` line ends

    def offsets(self, before: Sequence[str]) -> tuple[int, int]:
        """Where it began and ended in the text that it was made in."""
        above = sum(map(len, before[: self.start[0]])) + self.start[0]
        between = sum(map(len, before[self.start[0] : self.end[0]])) + self.end[0] - self.start[0]
        return above + self.start[1], above + between + self.end[1]

    def place_in(self, after: Sequence[str]) -> Place:
        """Where the cursor is in the edited text after typing this."""
        pieces = self.text.split("\n")
        line = self.start[0] + len(pieces) - 1
        column = len(pieces[-1]) + (self.start[1] if len(pieces) == 1 else 0)
        return Place(after, min(line, len(after) - 1), column)

    def removed(self, before: Sequence[str]) -> str:
        """What was there."""
        (first, begin), (last, end) = self.start, self.end
        if first == last:
            return before[first][begin:end]
        return "\n".join([before[first][begin:], *before[first + 1 : last], before[last][:end]])


class Document:
    """One open document. Only the event loop changes it."""

    def __init__(self, uri: str, language: str, version: int, text: str) -> None:
        self.uri = uri
        self.language = language
        self.version = version
        self.out_of_step = False  # a change could not be applied; cleared by the next full text
        self.changed_s = 0.0  # when it was last edited, by a monotonic clock; 0: never
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Replaces the whole text."""
        self._lines, self._ends = split_lines(text)
        self.size = len(text)
        self.out_of_step = False
        self._snapshot: tuple[str, ...] | None = None

    @property
    def text(self) -> str:
        """The exact text, line ends as the editor has them."""
        return "".join(part for pair in zip(self._lines, self._ends, strict=True) for part in pair)

    @property
    def line_count(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> str:
        """The content of a line, without its end."""
        return self._lines[number]

    def apply(self, change: object, encoding: Encoding) -> Edit | None:
        """Applies one `TextDocumentContentChangeEvent`; returns what it did, None where the text is new.

        Positions are clamped; raises `ChangeError` if malformed.
        """
        if not isinstance(change, dict) or not isinstance(change.get("text"), str):
            raise ChangeError("a change without text")
        span = change.get("range")
        if span is None:
            self.set_text(change["text"])
            return None
        if self.out_of_step:
            raise ChangeError("a change to a text that is no longer the editor's")
        try:
            numbers = [span[side][axis] for side in ("start", "end") for axis in ("line", "character")]
            if not all(type(number) is int for number in numbers):  # neither 1.5 nor true
                raise TypeError("a position that is no whole number")
            start = self._clamp(numbers[0], numbers[1], encoding)
            end = self._clamp(numbers[2], numbers[3], encoding)
        except (KeyError, TypeError) as error:
            raise ChangeError("a change with a malformed range") from error
        start, end, text = self._whole_characters(min(start, end), max(start, end), change["text"])
        return self._replace(start, end, text)

    def place(self, line: int, character: int, encoding: Encoding) -> Place:
        """The text as it is now with a cursor at a protocol position; past the end means the end."""
        return Place(self.snapshot(), *self._clamp(line, character, encoding))

    def snapshot(self) -> tuple[str, ...]:
        """The lines as they are now; later edits do not change it."""
        if self._snapshot is None:
            self._snapshot = tuple(self._lines)
        return self._snapshot

    def _clamp(self, line: int, character: int, encoding: Encoding) -> tuple[int, int]:
        if line < 0:
            return 0, 0
        if line >= len(self._lines):
            return len(self._lines) - 1, len(self._lines[-1])
        return line, to_index(self._lines[line], character, encoding)

    def _whole_characters(
        self, start: tuple[int, int], end: tuple[int, int], new: str
    ) -> tuple[tuple[int, int], tuple[int, int], str]:
        """The same edit where halves of a character come one after the other: together they are the character."""
        left = self._lines[start[0]][: start[1]][-1:]
        right = self._lines[end[0]][end[1] : end[1] + 1]
        if not _LONE_SURROGATE.search(left + new + right):
            return start, end, new
        if _SURROGATE_PAIR.match(left + (new + right)[:1]):
            start, new = (start[0], start[1] - 1), left + new
        if _SURROGATE_PAIR.match(new[-1:] + right):
            end, new = (end[0], end[1] + 1), new + right
        return start, end, new.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def _replace(self, start: tuple[int, int], end: tuple[int, int], new: str) -> Edit:
        """Puts ``new`` there. Where that joins a ``\\r`` to a ``\\n``, two line ends have become one."""
        shown = normal_line_ends(new)
        first, last = start[0], end[0]
        head, tail = self._lines[first][: start[1]], self._lines[last][end[1] :]
        removed = sum(
            len(line) + len(stop)
            for line, stop in zip(self._lines[first:last], self._ends[first:last], strict=True)
        )
        self.size += len(new) - removed - end[1] + start[1]
        lines, ends = split_lines(new)
        lines[0] = head + lines[0]
        lines[-1] += tail
        ends[-1] = self._ends[last]
        if len(lines) > 1 and ends[-2] == "\r" and not lines[-1] and ends[-1] == "\n":  # \r put before a \n
            del lines[-1], ends[-2]
            ends[-1] = "\r\n"
            shown = shown[:-1]
        if first and self._ends[first - 1] == "\r" and not lines[0] and ends[0] == "\n":  # \n put behind a \r
            first -= 1
            lines[0], ends[0] = self._lines[first], "\r\n"
            start = (first, len(lines[0]))
        self._lines[first : last + 1] = lines
        self._ends[first : last + 1] = ends
        self._snapshot = None
        return Edit(start, end, shown)


class Documents:
    """The open documents of one client, most recently used last."""

    def __init__(self) -> None:
        self._by_uri: dict[str, Document] = {}

    def open(self, uri: str, language: str, version: int, text: str) -> Document:
        """Starts (or restarts) mirroring a document."""
        self._by_uri.pop(uri, None)
        document = self._by_uri[uri] = Document(uri, language, version, text)
        return document

    def get(self, uri: str) -> Document | None:
        return self._by_uri.get(uri)

    def touch(self, uri: str) -> None:
        """Marks a document as the most recently used."""
        if (document := self._by_uri.pop(uri, None)) is not None:
            self._by_uri[uri] = document

    def close(self, uri: str) -> Document | None:
        return self._by_uri.pop(uri, None)

    def __iter__(self) -> Iterator[Document]:
        return iter(list(self._by_uri.values()))

    def __len__(self) -> int:
        return len(self._by_uri)
