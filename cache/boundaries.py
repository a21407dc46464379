"""Where a text can be cut so that tokenising the pieces gives the tokens of the whole.

A byte-pair tokenizer first cuts text into pre-tokens by a regular expression. Two kinds of cut never lie
inside a pre-token of the families in use, and nothing on either side of them looks across:

* before a line with something on it. Qwen2, Llama 3 and their like match line ends with ``\\s*[\\r\\n]+`` or
  as the tail of punctuation, always up to the last line end of a run of white space, and go on no further.
* before a line end that follows something visible. GPT-2, StarCoder2 and SmolLM2 put line ends only in
  ``\\s+``, which begins where the visible text ends.

Line ends compose with nothing under Unicode normalisation, so normalising in pieces is safe too. Which rule a
tokenizer follows is found by trying, since only ``encode`` is known of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

Encode = Callable[[str], Sequence[int]]
Boundary = re.Pattern[str]

LINE_START = re.compile(r"(?<=\n)(?=[ \t]*\S)")
LINE_END = re.compile(r"(?<=\S)(?=\n)")
RULES: tuple[Boundary, ...] = (LINE_START, LINE_END)

# one character of every class that pre-tokenizer expressions tell apart
_LEFT = ("a", "1", ")", " ", "\t", "\n", "'", "\u0301", "\u00a0", "\u4e2d", "\u2581")
_RIGHT = ("a", "s", "1", "(", "'", "#", "\u0301", "\u4e2d", "\u2581", "\U0001f600")
_GAPS = ("", " ", "    ", "\t")


@lru_cache(maxsize=8)
def find_boundary(encode: Encode) -> Boundary | None:
    """The first rule that held in every trial, or None: then only the whole text can be tokenised."""
    tried = lru_cache(maxsize=None)(lambda text: tuple(encode(text)))
    return next((rule for rule in RULES if _holds(rule, tried)), None)


def _holds(rule: Boundary, encode: Callable[[str], tuple[int, ...]]) -> bool:
    for text in _trials():
        for cut in rule.finditer(text):
            left, right = text[: cut.start()], text[cut.start() :]
            if encode(left) + encode(right) != encode(text):
                return False
    return True


def _trials() -> Iterator[str]:
    for one, two, gap, first in itertools.product(_LEFT, _LEFT, _GAPS, _RIGHT):
        yield f"{one}{two}\n{gap}{first}b"
    for lines in (1, 2, 3):
        yield "def f(x):" + "\n" * lines + "    return x;" + "\n" * lines + "}"


def split(text: str, boundary: Boundary | None, target: int) -> list[str]:
    """Cuts ``text`` at boundaries into pieces of at least ``target`` characters (the last may be shorter)."""
    if boundary is None or len(text) <= target:
        return [text] if text else []
    pieces = []
    start = 0
    while cut := boundary.search(text, start + target):
        pieces.append(text[start : cut.start()])
        start = cut.start()
    pieces.append(text[start:])
    return pieces


def joins(left: str, right: str, boundary: Boundary | None) -> bool:
    """Whether the seam between two neighbouring pieces is a boundary."""
    return boundary is not None and boundary.match(left[-1:] + right, len(left[-1:])) is not None
