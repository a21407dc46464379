"""Suffix matches in token sequences: the shape every store answers in.

A match says "the last ``length`` tokens of the context also stand here"; what follows there is a candidate
continuation. The longest matches come first, the most recent first among equals: oldest-first, as the usual
prompt lookup has it, is wrong for edits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MAX_MATCH = 32  # tokens; longer agreement says nothing more about what follows


class Match(NamedTuple):
    """A place where the end of the context occurs. ``place`` and ``at`` are the store's own business."""

    length: int  # tokens that agree, counted back from the end of the context
    document: str  # document id or path, "" where there is none
    place: Any
    at: int  # index of the last agreeing token


class Region(NamedTuple):
    """Part of a document, the whole by default; offsets in code points."""

    document: str
    start: int = 0
    end: int = 1 << 62
