"""The latency log's schema: version, JSON Schema, and the one place that decides which lines are ours."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

VERSION = 1  # raised when a field changes its meaning; new fields don't raise it


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of one line of the log (draft 2020-12), with a description of every field."""
    text = files(__package__).joinpath("telemetry_schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
