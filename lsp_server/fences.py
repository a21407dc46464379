"""The end of a Markdown block in the middle of code: what a model says that takes its answer for a chat's.

In languages where such a line is text, in files that have some, and inside a long string it may be meant.
"""

from __future__ import annotations

import re

from lsp_server.documents import Place

# language ids of editors
FENCED_LANGUAGES = frozenset(
    {
        *(
            "markdown",
            "mdx",
            "markdown.mdx",
            "quarto",
            "rmd",
            "rmarkdown",
            "pandoc",
            "juliamarkdown",
            "typst",
        ),
        *("plaintext", "text", "restructuredtext", "rst", "asciidoc", "org", "norg", "vimwiki", "help"),
        *("git-commit", "gitcommit", "julia", "yaml", "dockercompose", "yaml.docker-compose"),
    }
)
LONG_STRINGS = ('"""', "'''")
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*[\w+#.-]*[ \t]*")
_GROWING_FENCE = re.compile(r"[ \t]*(?:`{1,3}|~{1,3})")
_GLUED_FENCE = re.compile(r"(?<=[\w)\]};,])```[ \t]*$")


def without_fence(text: str, place: Place, language: str, complete: bool = True) -> str:
    """``text`` up to the first fence in it.

    Not ``complete``: it is still growing; what its last line begins may become one.
    """
    if not ("`" in text or "~" in text) or language in FENCED_LANGUAGES:
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if (cut := _kept_of(line, number < len(lines) - 1 or complete)) is None:
            continue
        if number == 0 and place.before.strip() and not cut:
            continue  # the user began it
        above = "\n".join([*place.lines[: place.line], place.before, *lines[:number]])
        if _is_meant(above, place):
            return text
        return "\n".join([*lines[:number], cut] if cut else lines[:number])
    return text


def _kept_of(line: str, is_whole: bool) -> str | None:
    """What stands before the fence on a line; None where there is none."""
    if _FENCE.fullmatch(line) or (not is_whole and _GROWING_FENCE.fullmatch(line)):
        return ""
    if (glued := _GLUED_FENCE.search(line)) and line.count("`") == 3:
        return line[: glued.start()]
    return None


def _is_meant(above: str, place: Place) -> bool:
    if any(above.count(quotes) % 2 for quotes in LONG_STRINGS):
        return True
    return any(("```" in line or "~~~" in line) and _FENCE.search(line) for line in place.lines)
