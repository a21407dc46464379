"""When a completion ends, checked on every committed token: end tokens, line or block end, repetition of the text
that follows the cursor, the token limit. What lies past the end is trimmed, to the byte."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from speculation.request import FinishReason, StopMode

# a line at the block's own indentation that begins like this still belongs to it
CONTINUES_BLOCK = (
    "}",
    ")",
    "]",
    "else",
    "elif",
    "except",
    "finally",
    "catch",
    "case",
    "end",
    "until",
    "</",
    "*/",
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the block rules need to know of the document."""

    line_before: str = ""  # the cursor's line up to the cursor
    next_line: str = ""  # the first line below the cursor's that is not blank, without its line end


class StopRules:
    """Collects the committed bytes and finds where the text ends."""

    def __init__(
        self,
        mode: StopMode,
        end_ids: Collection[int],
        max_tokens: int,
        surroundings: Surroundings = Surroundings(),
    ) -> None:
        """``max_tokens``: committed tokens at most, the end token included."""
        self._mode = mode
        self._end_ids = frozenset(end_ids)
        self._max_tokens = max_tokens
        before = surroundings.line_before
        self._indent = _indent(before) if before.strip() else len(before.expandtabs(4))
        self._line_before = before
        self._next_line = surroundings.next_line
        self._bytes = bytearray()
        self._starts: list[int] = []  # where each token's new text begins, in bytes
        self._checked_lines = 0
        self._went_deeper = False
        self.committed = 0
        self.end: int | None = None  # bytes of text when a rule has cut it
        self.reason: FinishReason | None = None

    def commit(self, token: int, piece: bytes) -> bool:
        """Takes one committed token and the bytes of it that are new text; False when generation must stop."""
        self.committed += 1
        if token in self._end_ids:
            self.reason = "end"
            return False
        self._starts.append(len(self._bytes))
        self._bytes += piece
        if self._mode != "none" and b"\n" in piece:
            self._check_lines()
        if self.reason is None and self.committed >= self._max_tokens:
            self.reason = "length"
        return self.reason is None

    @property
    def remaining(self) -> int:
        """Tokens that may still be committed."""
        return self._max_tokens - self.committed

    def kept_tokens(self) -> int:
        """Committed tokens that the text needs: without the end token and what a rule trimmed."""
        return sum(start < self.end for start in self._starts) if self.end is not None else len(self._starts)

    @property
    def text(self) -> str:
        """The text so far, cut where a rule cut it; an incomplete last character is left out."""
        return bytes(self._bytes[: self.end]).decode("utf-8", errors="ignore")

    def _check_lines(self) -> None:
        if self._mode == "line":
            first = self._bytes.find(b"\n")
            self.cut(first, "line")
            return
        lines = bytes(self._bytes).split(b"\n")
        start = sum(len(line) + 1 for line in lines[: self._checked_lines])
        for number in range(self._checked_lines, len(lines) - 1):  # complete lines only
            line = lines[number].decode("utf-8", errors="replace")
            if reason := self._ends_before(number, line):
                self.cut(max(0, start - 1), reason)
                return
            start += len(lines[number]) + 1
        self._checked_lines = len(lines) - 1

    def _ends_before(self, number: int, line: str) -> FinishReason | None:
        whole = self._line_before + line if number == 0 else line
        if self._next_line and whole.rstrip() == self._next_line.rstrip():
            return "suffix"
        if number == 0:
            return None
        if not line.strip():
            return "block"
        indent = _indent(line)
        closed = (
            indent == self._indent and self._went_deeper and not line.lstrip().startswith(CONTINUES_BLOCK)
        )
        self._went_deeper |= indent > self._indent
        return "block" if closed or indent < self._indent else None

    def cut(self, length: int, reason: FinishReason) -> None:
        """The text ends after ``length`` bytes, for this reason."""
        self.end = length
        self.reason = reason


def _indent(line: str) -> int:
    """Width of the leading white space, a tab counting to the next multiple of four."""
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())
