"""Fill-in-the-middle formats, one row per model family in `families.json`.

What a tokenizer has decides; the model's name only tells apart families that share their markers. A marker that is
not one known id rules its family out, and a model without a family gets the prefix only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from speculation.tokenizer import Tokenizer

Order = Literal["psm", "spm", "prefix"]


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the table: exact marker strings, and the order of prefix, suffix and middle."""

    name: str
    order: Order
    stop: tuple[str, ...] = ()
    prefix: str | None = None
    suffix: str | None = None
    middle: str | None = None
    start: str | None = None  # once, at the very front
    start_optional: bool = False  # use the start token where the vocabulary has it
    repository: str | None = None
    repository_end: str = ""  # text after the repository's name
    always_file: bool = False  # the file's own path comes first even where no other files do
    file: str | None = None  # marker before each file's path
    file_text: str | None = None  # plain text before each file's path, for families without a marker
    prefix_lead: str = ""  # text between the prefix marker and the prefix
    required: tuple[str, ...] = ()  # further markers that tell this family
    names: tuple[str, ...] = ()  # parts of model names this row is limited to


@dataclass(frozen=True, slots=True)
class Markers:
    """A family's markers as ids of one tokenizer; None where the family has none."""

    family: Family
    start: int | None
    prefix: int | None
    suffix: int | None
    middle: int | None
    repository: int | None
    file: int | None
    end_ids: frozenset[int]  # a completion ends before any of these


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """The table, in the order in which rows are tried."""
    rows = json.loads((files("speculation") / "families.json").read_text(encoding="utf-8"))["families"]
    return tuple(_family(row) for row in rows)


def _family(row: dict[str, Any]) -> Family:
    lists = ("stop", "required", "names")
    values: dict[str, Any] = {**row, **{key: tuple(row.get(key, ())) for key in lists}}
    return Family(**values)


def markers_for(tokenizer: Tokenizer, model_name: str = "") -> Markers:
    """The first family whose every marker is one id of this tokenizer; the last row fits any tokenizer."""
    return next(
        found for family in families() if (found := _resolve(family, tokenizer, model_name)) is not None
    )


def _resolve(family: Family, tokenizer: Tokenizer, model_name: str) -> Markers | None:
    if family.names and not any(name in model_name.lower() for name in family.names):
        return None
    start = tokenizer.marker(family.start) if family.start else None
    needed = [m for m in (family.prefix, family.suffix, family.middle, *family.required) if m]
    if family.start and not family.start_optional:
        needed.append(family.start)
    if any(tokenizer.marker(marker) is None for marker in needed):
        return None

    def marker(name: str | None) -> int | None:
        return tokenizer.marker(name) if name else None

    prefix, suffix, middle = marker(family.prefix), marker(family.suffix), marker(family.middle)
    repository, file = marker(family.repository), marker(family.file)
    ends = {start, prefix, suffix, middle, repository, file, *(marker(name) for name in family.stop)}
    # other added tokens (chat roles, padding) are never text either
    end_ids = frozenset(i for i in ends if i is not None) | tokenizer.added_ids
    return Markers(family, start, prefix, suffix, middle, repository, file, end_ids)
