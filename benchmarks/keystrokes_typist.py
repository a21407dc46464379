"""Someone who types lines back into a file, in an editor that closes brackets and indents by itself."""

from __future__ import annotations

from lsp_server.documents import Place

CLOSERS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
INDENT = 4


class Typist:
    """Types the lines ``[first, last)`` of a text, which are missing at the start, one keystroke at a time."""

    def __init__(self, text: str, first: int, last: int) -> None:
        lines = text.split("\n")
        self.wanted = "\n".join(lines[first:last])
        self.place = Place((*lines[:first], "", *lines[last:]), first, 0)
        self._typed = 0  # characters of `wanted` that are there
        self._closed: list[str] = []  # closers that the editor put behind the cursor, the next one last

    @property
    def rest(self) -> str:
        """What is still to be typed."""
        return self.wanted[self._typed :]

    @property
    def in_step(self) -> bool:
        """Whether the text at the cursor is the wanted one (else its indentation is being mended)."""
        return self._surplus() == 0

    def press(self) -> str:
        """One keystroke; says which."""
        if self._surplus() > 0:
            return self._backspace()
        key = self.rest[0]
        if key == "\n":
            return self._enter()
        if key == " " and not self.place.before.strip() and self.rest.startswith(" " * INDENT):
            return self._insert(" " * INDENT, "tab")
        if self._closed and key == self._closed[-1] and self.place.after.startswith(key):
            self._closed.pop()
            self._move(1)
            return "over"
        if key in CLOSERS and self._closes_itself(key):
            self._insert(key, "open")
            self._put_behind(CLOSERS[key])
            self._closed.append(CLOSERS[key])
            return "open"
        return self._insert(key, "key")

    def accept(self, text: str, replaced: int) -> None:
        """Takes an answer that is what was going to be typed; ``replaced`` characters behind the cursor go."""
        assert self.rest.startswith(text)
        self.place = self.place.with_inserted(text, replaced)
        self._typed += len(text)
        del self._closed[len(self._closed) - replaced :]

    def _enter(self) -> str:
        """A new line with the indentation of the old one, one step deeper after a colon or an opener."""
        before = self.place.before
        indent = len(before) - len(before.lstrip())
        if before.rstrip().endswith((":", "(", "[", "{")):
            indent += INDENT
        self._insert("\n", "enter")
        self.place = self.place.with_inserted(" " * indent)
        wanted = len(self.rest) - len(self.rest.lstrip(" "))
        self._typed += min(indent, wanted)
        return "enter"

    def _surplus(self) -> int:
        """Characters of indentation before the cursor that are not wanted."""
        column = self._typed - (self.wanted.rfind("\n", 0, self._typed) + 1)
        return self.place.column - column

    def _backspace(self) -> str:
        line, column = self.place.lines[self.place.line], self.place.column
        count = min(INDENT, self._surplus())
        lines = list(self.place.lines)
        lines[self.place.line] = line[: column - count] + line[column:]
        self.place = Place(tuple(lines), self.place.line, column - count)
        return "backspace"

    def _closes_itself(self, key: str) -> bool:
        after, before = self.place.after, self.place.before
        if after and not after[0].isspace() and after[0] not in ")]}":
            return False
        return key not in "\"'" or not (before and (before[-1].isalnum() or before[-1] in "\"'"))

    def _insert(self, text: str, key: str) -> str:
        self.place = self.place.with_inserted(text)
        self._typed += len(text)
        return key

    def _put_behind(self, text: str) -> None:
        place = self.place.with_inserted(text)
        self.place = Place(place.lines, place.line, place.column - len(text))

    def _move(self, characters: int) -> None:
        self.place = Place(self.place.lines, self.place.line, self.place.column + characters)
        self._typed += characters
