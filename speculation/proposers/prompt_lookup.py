"""The request's own text as a source: what stands before the cursor, what was generated, and the suffix.

Prompt lookup (Saxena 2023) with two changes that edits need: long matches count more than short ones, and among
equals the most recent comes first. Looking for a gram is `str.rfind` on a string of one character per token: there
is no index to build while the user types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from speculation.draft import DraftRequest
from speculation.evidence import KIND
from speculation.proposers.base import BREAK, TAIL, Context, Continuation

PLACES = 24  # looked at per gram, most recent first
_ABOVE, _BELOW = KIND["request"], KIND["below"]
_BREAK_CHARACTER = "\U0010ffff"  # no token id is that high


class SearchableText:
    """Token ids with a string beside them in which grams are found at C speed."""

    def __init__(self, stretches: Sequence[Sequence[int]] = ()) -> None:
        """``stretches`` do not follow each other; the last one may grow."""
        self.tokens: list[int] = [BREAK]
        self._text = _BREAK_CHARACTER
        for number, stretch in enumerate(stretches):
            if number:
                self.tokens.append(BREAK)
                self._text += _BREAK_CHARACTER
            self.extend(stretch)

    def extend(self, tokens: Sequence[int]) -> None:
        """Appends tokens to the last stretch."""
        self.tokens += tokens
        self._text += "".join(map(chr, tokens))

    def places(self, context: Sequence[int]) -> list[tuple[int, int]]:
        """(match length, index of the next token) of the most recent places that end like ``context``.

        Places where two tokens agree; only where there are none, places where one does.
        """
        if not context:
            return []
        last = chr(context[-1])
        if last not in self._text:
            return []
        tokens = self.tokens
        find = self._text.rfind
        found: list[tuple[int, int]] = []
        grams = (chr(context[-2]) + last, last) if len(context) > 1 else (last,)
        for wanted in grams:
            size = len(wanted)
            stop = len(tokens) - 1  # a place must have a token after it
            before: Sequence[int] | None = None
            for _ in range(PLACES):
                at = find(wanted, 0, stop)
                if at < 0:
                    break
                if tokens[at + size] != BREAK:
                    if before is None:
                        before = context[-size - 1 : -TAIL - 1 : -1]
                    length, back = size, at - 1
                    for token in before:
                        if tokens[back] != token:  # the BREAK at the front ends every match
                            break
                        length += 1
                        back -= 1
                    found.append((length, at + size))
                stop = at + size - 1
            if found:
                break
        return found


class PromptLookupProposer:
    """Continuations of what the request itself holds."""

    name = "request"

    def __init__(self) -> None:
        self._text = SearchableText()
        self._below = range(0)  # where the suffix is

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._text = SearchableText([request.context, request.suffix, [*request.prefix, *request.middle]])
        first = len(request.context) + 2
        self._below = range(first, first + len(request.suffix))

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens were committed at the end of the context."""
        self._text.extend(tokens)

    def propose(self, context: Context, limit: int) -> list[Continuation]:
        """Every recent place that ends like the context; the most recent of the longest is the newest."""
        places = self._text.places(context.tokens)
        if not places:
            return []
        best = max(places)
        tokens, below = self._text.tokens, self._below
        return [
            Continuation(_BELOW if at in below else _ABOVE, length, tokens, at, at == best[1])
            for length, at in places
        ]


class SuffixStartProposer:
    """Where a line has ended, the text below the cursor may be what comes next: models like to repeat it."""

    name = "suffix"

    def __init__(self, ends_line: Callable[[int], bool]) -> None:
        """``ends_line``: whether the text of a token ends a line."""
        self._ends_line = ends_line
        self._suffix: list[int] = []

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._suffix = list(request.suffix)

    def commit(self, tokens: Sequence[int]) -> None:
        """The suffix stays what it is."""

    def propose(self, context: Context, limit: int) -> list[Continuation]:
        """The beginning of the suffix, after a line's end."""
        if not self._suffix or not context.tokens or not self._ends_line(context.tokens[-1]):
            return []
        return [Continuation(KIND["suffix"], 1, self._suffix, 0, True)]
