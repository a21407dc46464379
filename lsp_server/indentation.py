"""Indentation of a file, and of a completion that has to fit into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

OPENS_BLOCK = (":", "{", "(", "[", "=>", "->", "then", "do")
NEARBY_LINES = 400
USUAL_WIDTHS = (2, 3, 4, 8)


def unit_of(lines: Sequence[str]) -> str | None:
    """One level of indentation in these lines: a tab, some spaces, or None where none is indented."""
    indented = [(line[: len(line) - len(line.lstrip(" \t"))], line) for line in lines if line.strip()]
    tabs = sum(indent.startswith("\t") for indent, _ in indented)
    spaces = sum(indent.startswith("  ") for indent, _ in indented)
    if tabs > spaces:
        return "\t"
    if not spaces:
        return None
    steps: Counter[int] = Counter()
    for (above, line), (below, _) in pairwise(indented):
        step = len(below) - len(above)
        if step > 1 and "\t" not in above + below:
            steps[step] += 2 if line.rstrip().endswith(OPENS_BLOCK) else 1
    return " " * steps.most_common(1)[0][0] if steps else None


def adapted(text: str, lines: Sequence[str], line: int, before: str) -> str:
    """The completion with its continuation lines indented in the file's unit.

    Args:
        lines, line: the document and the cursor's line.
        before: the cursor's line up to the cursor.
    """
    if "\n" not in text:
        return text
    unit = unit_of(lines[max(0, line - NEARBY_LINES) : line + NEARBY_LINES])
    if unit is None:
        return text
    first, *rest = text.split("\n")
    if unit == "\t":
        return "\n".join([first, *_to_tabs(before + first, rest)])
    rest = [_without_tabs(piece, unit) for piece in rest]
    return "\n".join([first, *_scaled(before + first, rest, len(unit))])


def indent_of(line: str) -> str:
    """The leading white space of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _to_tabs(first: str, rest: list[str]) -> list[str]:
    """Spaces at the lines' starts as tabs."""
    step = _spaces_for_a_tab(first, rest)
    result = []
    for piece in rest:
        indent = indent_of(piece)
        spaces = indent.count(" ")
        tabs = indent.count("\t")
        if tabs and spaces < step:  # tabs for levels, spaces for alignment: a style of its own
            result.append(piece)
        else:
            result.append("\t" * (tabs + spaces // step) + " " * (spaces % step) + piece[len(indent) :])
    return result


def _spaces_for_a_tab(first: str, rest: list[str]) -> int:
    """How many spaces the model uses for a level.

    By the depth its first spaced line must have, or its steps.
    """
    widths = [len(indent_of(piece)) for piece in rest if piece.strip() and indent_of(piece).strip("\t")]
    depth = indent_of(first).count("\t") + first.rstrip().endswith(OPENS_BLOCK)
    if widths and depth and widths[0] % depth == 0 and widths[0] // depth in USUAL_WIDTHS:
        return widths[0] // depth
    return _own_step(first, rest) or 4


def _without_tabs(piece: str, unit: str) -> str:
    indent = indent_of(piece)
    return indent.replace("\t", unit) + piece[len(indent) :]


def _scaled(first: str, rest: list[str], unit: int) -> list[str]:
    """Lines of a completion that steps by another width than the file.

    Left alone where the steps are mixed.
    """
    step = _own_step(first, rest)
    base = len(indent_of(first))
    relative = [len(indent_of(piece)) - base for piece in rest]
    told = [r for r, piece in zip(relative, rest, strict=True) if piece.strip()]
    if not step or step == unit or any(r % step for r in told):
        return rest
    return [
        " " * (base + r // step * unit) + piece.lstrip(" ") if piece.strip() else piece
        for r, piece in zip(relative, rest, strict=True)
    ]


def _own_step(first: str, rest: list[str]) -> int:
    """The one width by which the completion indents after lines that open a block; 0 where there is none."""
    told = [first, *(piece for piece in rest if piece.strip())]
    steps = {
        len(indent_of(below)) - len(indent_of(above))
        for above, below in pairwise(told)
        if above.rstrip().endswith(OPENS_BLOCK) and "\t" not in indent_of(above) + indent_of(below)
    }
    return steps.pop() if len(steps) == 1 and min(steps) > 0 else 0
