"""Standard output and error of the command: readable in any encoding, and given up in one place."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys

PLAIN = {  # what we print beyond ASCII, in characters that every encoding has
    "\N{NO-BREAK SPACE}": " ", "–": "-", "—": "-", "−": "-", "·": "|", "×": "x", "α": "a", "≥": ">=", "→": "->",
    "…": "...", "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "#", "▍": " ", "▎": " ", "▏": " ",
}  # fmt: skip


def make_robust() -> None:
    """From now on characters that a stream's encoding lacks are replaced, where Python would raise an error."""
    codecs.register_error("spec-complete-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="spec-complete-plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in missing), error.end


def give_up() -> None:
    """Drops what could not be written to standard output, so that Python does not try again when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # one without a file needs nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
