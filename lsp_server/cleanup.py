"""From what the model said to what the editor is offered: a table of pure rules, each with a reason code.

A rule takes the text and what is around it and returns the text it leaves. A rule that leaves nothing is the
reason why there is no item. Golden cases: `tests/lsp_server/cleanup_cases/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.brackets import only_closes, replaced_after
from lsp_server.documents import Place
from lsp_server.fences import without_fence
from lsp_server.indentation import adapted, indent_of
from speculation.families import families

# special tokens of all model families but those that stand in ordinary text, such as <s> in HTML; an engine
# never makes text of its own model's, this is for models that spell them
SPECIAL_TOKENS = tuple(
    sorted(
        {
            token
            for family in families()
            for token in (
                family.prefix,
                family.suffix,
                family.middle,
                family.repository,
                family.file,
                *family.stop,
            )
            if token and ("|" in token or "｜" in token or "fim" in token)
        }
        | {"<|im_start|>", "<|fim_pad|>"}
    )
)
SUFFIX_LINES = 40  # how far below the cursor a repeated line is looked for past blank ones
LOOP_LETTERS = 3
REPEATS = 3  # this many times the same lines in a row are a loop


@dataclass(frozen=True, slots=True)
class Around:
    """What the rules need to know beside the text."""

    place: Place
    markers: Sequence[str] = ()  # the model's special tokens
    automatic: bool = True
    complete: bool = True  # False: the text was cut by a limit or is still growing, its last line may go on
    language: str = ""  # as the editor calls it

    def one_line(self) -> bool:
        """Whether the cursor is in the middle of a line's text: then only that line is completed."""
        return not only_closes(self.place.after)

    def next_line(self) -> str:
        """The first line below the cursor's that is not blank."""
        below = self.place.lines[self.place.line + 1 : self.place.line + 1 + SUFFIX_LINES]
        return next((line.rstrip() for line in below if line.strip()), "")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What is left of a completion."""

    text: str
    replaced: int = 0  # characters after the cursor that the text stands for
    reason: str = ""  # why there is no item; empty: there is one
    applied: tuple[str, ...] = ()  # codes of the rules that changed the text


def clean(text: str, around: Around) -> Cleaned:
    """Applies the rules in order."""
    applied: list[str] = []
    for code, rule in RULES:
        left = rule(text, around)
        if left != text:
            applied.append(code)
        if not left.strip():
            return Cleaned("", 0, code if text.strip() else "blank", tuple(applied))
        text = left
    for code, is_worthless in CHECKS:
        if is_worthless(text, around):
            return Cleaned(text, 0, code, tuple(applied))
    return Cleaned(text, replaced_after(around.place.before, text, around.place.after), "", tuple(applied))


def says_no_more(text: str, place: Place, language: str = "") -> bool:
    """Whether generation may stop: all that follows is cut.

    A complete line of the text is the line that follows the cursor, or ends a Markdown block in code.
    """
    next_line = Around(place).next_line()
    whole = text.rpartition("\n")[0]
    lines = (place.before + text).split("\n")[:-1]
    if next_line and any(line.rstrip() == next_line for line in lines):
        return True
    return without_fence(whole, place, language) != whole


def deadline_cut(text: str) -> str:
    """What of an unfinished text is worth showing: its first complete line, else whole words.

    Always a prefix of the text.
    """
    body = len(text) - len(text.lstrip())
    if (end := text.find("\n", body)) >= 0:
        return text[:end]
    if not text or not _is_word(text[-1]):
        return text
    start = len(text)
    while start and _is_word(text[start - 1]):
        start -= 1
    head = text[:start].rstrip(" \t.([{,=<>+-*/%&|!~^:")
    return head if head.strip() else text


def _line_ends(text: str, around: Around) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _special_tokens(text: str, around: Around) -> str:
    """Cuts at the first special token, and before the beginning of one at the end of a growing text."""
    for marker in around.markers:
        if (at := text.find(marker)) >= 0:
            text = text[:at]
    least = 2 if not around.complete else 4
    for marker in around.markers:
        for length in range(min(len(marker) - 1, len(text)), least - 1, -1):
            if text.endswith(marker[:length]):
                text = text[:-length]
                break
    return text


def _fence(text: str, around: Around) -> str:
    return without_fence(text, around.place, around.language, around.complete)


def _doubled_space(text: str, around: Around) -> str:
    before = around.place.before
    if before.strip() and before[-1] in " \t":
        first, newline, rest = text.partition("\n")
        return first.lstrip(" \t") + newline + rest
    return text


def _one_line(text: str, around: Around) -> str:
    return text.partition("\n")[0] if around.one_line() else text


def _repeats_suffix(text: str, around: Around) -> str:
    """Cuts where a whole line repeats the next line of the document.

    Also where the last, unfinished one begins to.
    """
    next_line = around.next_line()
    if not next_line:
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        whole = (around.place.before + line if number == 0 else line).rstrip()
        unfinished = not around.complete and number == len(lines) - 1
        begins = unfinished and number > 0 and whole.strip() and next_line.startswith(whole)
        if whole == next_line or begins:
            return "\n".join(lines[:number])
    return text


def _repeats_rest(text: str, around: Around) -> str:
    """A completion that only says what stands after the cursor anyway."""
    rest = around.place.after.strip()
    return "" if rest and text.strip() == rest else text


def _repeats_itself(text: str, around: Around) -> str:
    lines = text.split("\n")
    for size in range(1, 5):
        for start in range(len(lines) - REPEATS * size + 1):
            piece = lines[start : start + size]
            following = lines[start + size : start + REPEATS * size]
            if following == piece * (REPEATS - 1) and any(_is_word(c) for c in "".join(piece)):
                return "\n".join(lines[: start + size])
    for loop in _LOOP_IN_LINE.finditer(text):
        if sum(c.isalpha() for c in loop[1]) >= LOOP_LETTERS:  # rules of dashes and rows of numbers are none
            return text[: loop.end(1)]
    return text


def _block_end(text: str, around: Around) -> str:
    """Cuts where the text leaves the block that the cursor is in."""
    before = around.place.before
    base = len(indent_of(before).expandtabs(4))
    lines = text.split("\n")
    for number, line in enumerate(lines[1:], 1):
        if line.strip() and len(indent_of(line).expandtabs(4)) < base:
            return "\n".join(lines[:number])
    return text


def _indentation(text: str, around: Around) -> str:
    return adapted(text, around.place.lines, around.place.line, around.place.before)


def _trailing_blank(text: str, around: Around) -> str:
    return text.rstrip() if around.complete or "\n" in text[len(text.rstrip()) :] else text


def _too_little(text: str, around: Around) -> bool:
    """Not worth a flash of ghost text: nothing but punctuation."""
    return around.automatic and not any(_is_word(c) for c in text)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_LOOP_IN_LINE = re.compile(r"([^\n]{8,80}?)\1{3,}")

Rule = Callable[[str, Around], str]
RULES: tuple[tuple[str, Rule], ...] = (
    ("line_ends", _line_ends),
    ("special_token", _special_tokens),
    ("fence", _fence),
    ("doubled_space", _doubled_space),
    ("one_line", _one_line),
    ("repeats_suffix", _repeats_suffix),
    ("repeats_rest", _repeats_rest),
    ("repeats_itself", _repeats_itself),
    ("block_end", _block_end),
    ("indentation", _indentation),
    ("trailing_blank", _trailing_blank),
)
CHECKS: tuple[tuple[str, Callable[[str, Around], bool]], ...] = (("too_little", _too_little),)
