"""Languages besides Python: upgrades of published packages whose archives carry sources in them.

``python -m benchmarks.replay --language NAME`` replays one of them; which packages stand for a language is in
``languages.json``, and what their archives must hash to in ``packages.json``. All come as npm tarballs, which are
read and never run (a source distribution from the Python index would run its build script to be fetched).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.packages import Release
from benchmarks.replay_hunks import WIDE, Window
from benchmarks.replay_tasks import Encode, Workload, edits


@dataclass(frozen=True, slots=True)
class Language:
    """The packages that stand for a language, and how its files end."""

    name: str
    suffixes: tuple[str, ...]
    releases: tuple[Release, ...]


@cache
def languages() -> dict[str, Language]:
    """Every language by name."""
    table = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
    return {
        name: Language(name, tuple(row["suffixes"]), tuple(map(Release.parse, row["packages"])))
        for name, row in table.items()
    }


def language_tasks(language: str, encode: Encode, window: Window = WIDE) -> Workload:
    """The hunks of a language's upgrades, by the definition that Python's follow.

    Raises:
        KeyError: the language is not in the table.
        benchmarks.packages.DownloadError: a package could not be fetched.
    """
    row = languages()[language]
    return edits(encode, row.releases, window, row.suffixes)
