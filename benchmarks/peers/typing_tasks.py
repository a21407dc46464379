"""Real changes to be typed: hunks of a few lines, with the lines they replace deleted first, as a person does."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.keystrokes_typist import Typist
from benchmarks.replay_hunks import Hunk

LINES = (2, 8)  # of a change
LEAST_CHARACTERS = 80
GAP_MS = (60, 240)  # between two keystrokes
PAUSE_EVERY, PAUSE_MS = 12, 900  # a look at the screen
ACCEPT_SHARE = 0.5  # of the times that the right text is showing
LEAST_ACCEPTED = 4  # characters: less is typed sooner than accepted


@dataclass(frozen=True, slots=True)
class Change:
    """A file as it is before, and the lines that are typed into it."""

    name: str
    workspace: str
    path: str
    text: str  # with the typed lines
    first: int  # the first typed line
    last: int  # the line after the last typed one
    replaced: str  # lines that stand there at first, and are deleted

    def typist(self) -> Typist:
        """Someone who has deleted the replaced lines, and types."""
        return Typist(self.text, self.first, self.last)

    def text_before(self) -> str:
        """The file before anything is deleted."""
        lines = self.text.split("\n")
        return "\n".join([*lines[: self.first], *self.replaced.split("\n")[:-1], *lines[self.last :]])


def changes(hunks: Sequence[tuple[str, Hunk]], count: int) -> list[Change]:
    """A fixed random choice of changes, each from another file, the packages mixed."""
    fit = [(key, hunk) for key, hunk in hunks if _fits(hunk)]
    random.Random(1).shuffle(fit)
    by_path: dict[str, Change] = {}
    for key, hunk in fit:
        by_path.setdefault(hunk.path, change_of(key, hunk))
    return list(by_path.values())[:count]


def change_of(workspace: str, hunk: Hunk) -> Change:
    """A hunk as something to type."""
    first = hunk.before.count("\n")
    return Change(
        name=hunk.name,
        workspace=workspace,
        path=hunk.path,
        text=hunk.before + hunk.written + hunk.after,
        first=first,
        last=first + hunk.written.count("\n"),
        replaced=hunk.replaced,
    )


def gap_ms(number: int, state: str) -> float:
    """How long the typist waits after keystroke ``number`` at a state of the file: the same for every peer."""
    if number % PAUSE_EVERY == PAUSE_EVERY - 1:
        return PAUSE_MS
    return random.Random(f"gap {state}").uniform(*GAP_MS)


def accepts(state: str) -> bool:
    """Whether the typist takes a right text that is showing at a state of the file: the same for every peer."""
    return random.Random(f"accept {state}").random() < ACCEPT_SHARE


def _fits(hunk: Hunk) -> bool:
    lines = hunk.written.count("\n")
    whole = hunk.written.endswith("\n") and hunk.before.endswith("\n") and hunk.after
    return bool(whole) and LINES[0] <= lines <= LINES[1] and len(hunk.written.strip()) >= LEAST_CHARACTERS


def files_of(workspaces: Mapping[str, Mapping[str, str]], wanted: Sequence[Change]) -> dict[str, str]:
    """Path below one directory to text: every file of the workspaces that the changes are in."""
    keys = dict.fromkeys(change.workspace for change in wanted)
    return {f"{key}/{path}": text for key in keys for path, text in workspaces[key].items()}
