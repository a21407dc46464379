"""Re-alignment: after a drafted token was refused, where in the same source to go on.

An edit changes a few tokens and then follows the old text again. So the source stays in view: the next place where
the new token occurs there, the place after a token that was replaced, the place before which one was inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speculation.draft import DraftRequest
from speculation.evidence import FAMILIES, KIND, KINDS, REALIGNMENTS
from speculation.proposers.base import BREAK, TAIL, Context, Continuation

WINDOW = 48  # tokens looked through for the new token
HITS = 3
_FAMILY = {
    "request": "request",
    "below": "request",
    "suffix": "request",
    "deleted": "deleted",
    "answer": "deleted",
}


@dataclass(slots=True)
class Alignment:
    """A source that was being followed: where it stands now."""

    tokens: list[int]
    at: int  # the token that was expected
    synced: int  # tokens followed without a fault since the last one; 0 after a fault


class RealignProposer:
    """Keeps the source that was last followed, one of each family, and suggests how to go on in it."""

    name = "realigned"

    def __init__(self) -> None:
        self._alignments: dict[str, Alignment] = {}

    def start(self, request: DraftRequest) -> None:
        """A new request begins: nothing is followed yet."""
        self._alignments = {}

    def commit(self, tokens: Sequence[int]) -> None:
        """Moves along in every source that is being followed."""
        for alignment in self._alignments.values():
            if alignment.synced:
                source, at = alignment.tokens, alignment.at
                for token in tokens:
                    if at >= len(source) or source[at] != token:
                        alignment.synced = 0
                        break
                    at += 1
                    alignment.synced += 1
                alignment.at = at

    def follow(self, place: Continuation, depth: int, failed: bool) -> None:
        """``depth`` tokens after ``place`` were right, the next one was not (``failed``) or is yet to come."""
        family = FAMILY_OF[place.kind]
        if depth or family == "deleted":
            synced = 0 if failed else place.length + depth
            self._alignments[family] = Alignment(place.tokens, place.start + depth, synced)

    def propose(self, context: Context, limit: int) -> list[Continuation]:
        """Where each source may go on."""
        found: list[Continuation] = []
        for family, alignment in self._alignments.items():
            tokens, at = alignment.tokens, alignment.at
            if alignment.synced:
                found.append(Continuation(_KINDS_OF[family]["synced"], alignment.synced, tokens, at, True))
            elif context.tokens:
                found += _next_occurrences(context.tokens, tokens, at, family) or [
                    Continuation(_KINDS_OF[family]["skipped"], 0, tokens, at + 1),
                    Continuation(_KINDS_OF[family]["inserted"], 0, tokens, at),
                ]
        return found


def _family(name: str) -> str:
    """How a source is re-aligned with: all indexes are alike."""
    first, _, rest = name.partition("-")
    return _FAMILY.get(first) or (rest if rest in FAMILIES else "indexed")


FAMILY_OF = tuple(map(_family, KINDS))
_KINDS_OF = {family: {how: KIND[f"{how}-{family}"] for how in REALIGNMENTS} for family in FAMILIES}


def _next_occurrences(context: list[int], tokens: list[int], at: int, family: str) -> list[Continuation]:
    """Places after the next few occurrences of the last committed token."""
    window = tokens[at : min(at + WINDOW, len(tokens) - 1)]
    if BREAK in window:
        del window[window.index(BREAK) :]
    last = context[-1]
    kinds = _KINDS_OF[family]
    found: list[Continuation] = []
    place = -1
    for _ in range(min(HITS, window.count(last))):
        place = window.index(last, place + 1)
        length = 1
        most = min(TAIL, len(context), at + place + 1)
        while length < most and tokens[at + place - length] == context[-1 - length]:
            length += 1
        kind = kinds["later" if found else "next"]
        found.append(Continuation(kind, length, tokens, at + place + 1, not found))
    return found
