"""Which paths of a workspace its ``.gitignore`` and ``.ignore`` files exclude.

As git has it: a deeper file's rules come before a higher one's, the last matching line of a file decides,
and what lies in an excluded directory cannot be brought back. ``.ignore`` comes before its ``.gitignore``.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from pathspec import GitIgnoreSpec

RULE_FILES = (".ignore", ".gitignore")
EXCLUDE = PurePath(".git", "info", "exclude")
MAX_RULE_BYTES = 1 << 20
MOST_STARS = 4  # groups of them in a line: each more multiplies the time a path may take


class IgnoreRules:
    """The rules in force in one directory: its own, then those of the directories above it."""

    def __init__(self, base: str, specs: tuple[GitIgnoreSpec, ...], above: IgnoreRules | None) -> None:
        self._base = base  # absolute, with "/" at its end
        self._specs = specs
        self._above = above

    @classmethod
    def for_root(cls, root: Path) -> IgnoreRules | None:
        """The rules of a workspace root, with those of the repository it is part of."""
        chain = [root]
        while not (chain[-1] / ".git").exists():
            if chain[-1].parent == chain[-1]:
                chain = [root]  # no repository: what lies above the root has no say
                break
            chain.append(chain[-1].parent)
        rules = None
        if spec := _read(chain[-1] / EXCLUDE):
            rules = cls(_slashed(chain[-1]), (spec,), None)
        for directory in reversed(chain):
            rules = cls.below(rules, directory)
        return rules

    @classmethod
    def below(cls, rules: IgnoreRules | None, directory: Path) -> IgnoreRules | None:
        """The rules in a directory whose parent has ``rules``."""
        specs = tuple(spec for name in RULE_FILES if (spec := _read(directory / name)))
        return cls(_slashed(directory), specs, rules) if specs else rules

    def ignores(self, path: str, is_directory: bool) -> bool:
        """Whether the rules exclude an absolute path (with "/" as separator) in this directory."""
        shown = path + "/" if is_directory else path
        rules: IgnoreRules | None = self
        while rules is not None:
            for spec in rules._specs:
                verdict = spec.check_file(shown[len(rules._base) :]).include
                if verdict is not None:
                    return bool(verdict)
            rules = rules._above
        return False


def _slashed(directory: Path) -> str:
    return directory.as_posix().rstrip("/") + "/"


def _read(path: Path) -> GitIgnoreSpec | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_RULE_BYTES:
            return None
        lines = path.read_bytes().decode("utf-8-sig", "replace").split("\n")
    except OSError:
        return None
    specs = []
    for line in (line.removesuffix("\r") for line in lines):
        if len(re.findall(r"\*+", line)) > MOST_STARS:
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error):  # git, too, passes over a line it does not understand
            continue
        specs.append(line)
    return GitIgnoreSpec.from_lines(specs) if specs else None
