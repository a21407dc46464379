"""The settings: one typed definition with documentation and defaults, and the places they are read from.

Later sources win: settings file, initialization options, `workspace/configuration`, environment. A value that
does not fit falls back to what an earlier source said, and the reader is told why.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

ENVIRONMENT_PREFIX = "SPEC_COMPLETE_"
FILE_VARIABLE = "SPEC_COMPLETE_SETTINGS"
LIMITS = ("minimum", "exclusiveMinimum", "maximum")


def _setting(default: Any, doc: str, of_process: bool = False, **limits: Any) -> Any:
    """A field with its documentation; ``minimum``, ``maximum`` and ``exclusiveMinimum`` bound numbers.

    ``of_process``: the process that owns the model lives by it from its start, not each client by its own.
    """
    return field(default=default, metadata={"doc": doc, "of_process": of_process, **limits})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a user can set.

    Names are camelCase in JSON, upper case with the prefix in the environment.
    """

    enabled: bool = _setting(True, "Offer completions at all.")
    disabled_languages: tuple[str, ...] = _setting((), "Language ids that get no completions.")
    automatic: bool = _setting(True, "Answer automatic requests; off: only explicit ones.")
    model: str | None = _setting(
        None, "Model name or path; unset: the default for this device.", of_process=True
    )
    device: str = _setting("auto", "Where the model runs: auto, cpu, cuda or cuda:N.", of_process=True)
    engine: str = _setting("auto", "Verifier engine: auto, eager, int8 or graphs.", of_process=True)
    dtype: str = _setting("auto", "Number format of the weights: auto, float32 or bfloat16.", of_process=True)
    speculation: bool = _setting(True, "Draft from the workspace; the text is the same without, only slower.")
    max_tokens: int = _setting(64, "Longest completion, in tokens.", minimum=1, maximum=1024)
    deadline_ms: int = _setting(
        1500,
        "Latency budget: what is there by then is answered, decoding goes on. Unset, it is 300 for editors that"
        " ask again when there is more.",
        minimum=10,
        maximum=60_000,
    )
    client_debounce_ms: int = _setting(
        0, "What the editor itself waits before it asks; taken off our own wait.", minimum=0, maximum=5000
    )
    max_debounce_ms: int = _setting(
        150, "Longest wait before an automatic request is worked on.", minimum=0, maximum=5000
    )
    prefetch: bool = _setting(
        True, "Prepare the next completion as if the one shown were accepted, in idle time."
    )
    candidates: int = _setting(3, "Completions offered on explicit invocation.", minimum=1, maximum=8)
    temperature: float = _setting(0.0, "0 always takes the likeliest token.", minimum=0, maximum=5)
    top_k: int = _setting(0, "Sample among the k likeliest tokens; 0: all.", minimum=0)
    top_p: float = _setting(
        1.0, "Sample among the likeliest tokens of this total probability.", exclusiveMinimum=0, maximum=1
    )
    min_p: float = _setting(0.0, "Drop tokens below this share of the likeliest one.", minimum=0, maximum=1)
    repetition_penalty: float = _setting(
        1.0, "Penalty on tokens already there; 1: none.", minimum=0.01, maximum=10
    )
    seed: int = _setting(0, "Seed of sampling.", minimum=0, maximum=2**63)
    context_files: bool = _setting(True, "Put other open files of the same root into the prompt.")
    context_characters: int = _setting(
        6000, "Most text of other files in a prompt.", minimum=0, maximum=200_000
    )
    max_lines: int = _setting(100_000, "Longer documents get no completions.", minimum=1)
    max_characters: int = _setting(4_000_000, "Larger documents get no completions.", minimum=1)
    max_line_length: int = _setting(20_000, "No completions in lines longer than this.", minimum=1)
    secret_patterns: tuple[str, ...] = _setting(
        (), "Files that are never completed, prompted or indexed, beside the built-in list (glob patterns)."
    )
    index: bool = _setting(True, "Index the workspace's files for drafts.")
    history: bool = _setting(True, "Remember accepted completions and lines you wrote on disk, for drafts.")
    telemetry_log: bool = _setting(
        True, "Write one line per request to the latency log (no source text).", of_process=True
    )
    speculation_off_share: float = _setting(
        0.0,
        "Share of completions made without drafts, so that the estimated saving can be checked.",
        minimum=0,
        maximum=1,
    )
    prometheus_port: int = _setting(
        0,
        "Port of a Prometheus endpoint on 127.0.0.1; 0: none. Needs the extra 'telemetry'.",
        of_process=True,
        minimum=0,
        maximum=65535,
    )
    otlp_endpoint: str = _setting(
        "",
        "Send OpenTelemetry metrics to this collector on this machine, as http://localhost:4318.",
        of_process=True,
    )
    trace: Literal["off", "text"] = _setting(
        "off", '"text" also logs prompts\' documents and texts. For debugging.'
    )
    idle_exit_minutes: float = _setting(
        30,
        "The shared process ends after this long without a client.",
        of_process=True,
        minimum=0.01,
        maximum=10_000,
    )

    def active_sampling(self, candidate: int = 0) -> dict[str, Any] | None:
        """Sampling parameters of the i-th candidate; None where that is plain greedy."""
        temperature = self.temperature if candidate == 0 else max(self.temperature, 0.4)
        if temperature == 0 and self.repetition_penalty == 1:
            return None
        return {
            "temperature": temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "seed": self.seed + candidate,
        }


def merged(base: Settings, values: object, source: str) -> tuple[Settings, list[str]]:
    """``base`` with the values of one source, and a message for each value that was not taken.

    Unknown names are reported too; null means "not set".
    """
    if values is None:
        return base, []
    if not isinstance(values, Mapping):
        return base, [f"{source}: settings must be an object, not {type(values).__name__}; ignored"]
    known = {field_.name: field_ for field_ in fields(Settings)}
    hints = get_type_hints(Settings)
    accepted: dict[str, Any] = {}
    problems = []
    for name, value in values.items():
        key = snake_case(str(name))
        if key not in known:
            problems.append(f"{source}: unknown setting {name!r}; ignored")
            continue
        if value is None:
            continue
        try:
            accepted[key] = _checked(value, hints[key], known[key].metadata)
        except ValueError as error:
            problems.append(f"{source}: {camel_case(key)} {error}; {getattr(base, key)!r} is used")
    return replace(base, **accepted), problems


def from_environment(
    base: Settings, environment: Mapping[str, str] = os.environ
) -> tuple[Settings, list[str]]:
    """``base`` with `SPEC_COMPLETE_<NAME>` variables; lists are separated by commas."""
    hints = get_type_hints(Settings)
    values: dict[str, Any] = {}
    for field_ in fields(Settings):
        raw = environment.get(ENVIRONMENT_PREFIX + field_.name.upper())
        if raw is not None and raw != "":
            values[field_.name] = _from_text(raw, hints[field_.name])
    return merged(base, values, "environment")


def from_file(base: Settings, path: Path | None = None) -> tuple[Settings, list[str]]:
    """``base`` with the values of the settings file, where there is one."""
    path = path or settings_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return base, []
    except (OSError, UnicodeDecodeError) as error:
        return base, [f"{path}: cannot be read ({error}); ignored"]
    try:
        values = json.loads(text)
    except ValueError as error:
        return base, [f"{path}: not JSON ({error}); ignored"]
    return merged(base, values, str(path))


def own_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of an environment that are meant for us."""
    return {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT_PREFIX)}


def process_variables() -> list[str]:
    """The names of the variables that a process lives by from its start."""
    return [
        ENVIRONMENT_PREFIX + field_.name.upper()
        for field_ in fields(Settings)
        if field_.metadata["of_process"]
    ]


def settings_path() -> Path:
    """The user's settings file."""
    import platformdirs

    chosen = os.environ.get(FILE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_config_dir("spec-complete", appauthor=False)) / "settings.json"


def resolve(
    *client_sources: tuple[str, object], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, list[str]]:
    """The settings in force: file, then each (name, values) of the client, then the environment."""
    settings, problems = from_file(Settings())
    for source, values in client_sources:
        settings, more = merged(settings, values, source)
        problems += more
    settings, more = from_environment(settings, environment)
    return settings, problems + more


def schema() -> dict[str, Any]:
    """The JSON Schema of the settings file."""
    hints = get_type_hints(Settings)
    properties = {}
    for field_ in fields(Settings):
        row: dict[str, Any] = {"description": field_.metadata["doc"], **_json_type(hints[field_.name])}
        row["default"] = list(field_.default) if isinstance(field_.default, tuple) else field_.default
        row |= {limit: field_.metadata[limit] for limit in LIMITS if limit in field_.metadata}
        properties[camel_case(field_.name)] = row
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "spec-complete settings",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def as_json(settings: Settings) -> dict[str, Any]:
    """The settings as they would stand in the file."""
    values = {camel_case(field_.name): getattr(settings, field_.name) for field_ in fields(Settings)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower().replace("-", "_")


def camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _checked(value: Any, kind: Any, limits: Mapping[str, Any]) -> Any:
    """``value`` as the field's type; raises ValueError that says what is wrong."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"must be one of {', '.join(map(repr, get_args(kind)))}, not {value!r}")
        return value
    if get_origin(kind) is tuple:
        if (
            not isinstance(value, Sequence)
            or isinstance(value, str)
            or not all(isinstance(x, str) for x in value)
        ):
            raise ValueError(f"must be a list of texts, not {value!r}")
        return tuple(value)
    kind = get_args(kind)[0] if get_args(kind) else kind  # "str | None": None was dealt with
    if kind is bool or kind is str:
        if not isinstance(value, kind):
            raise ValueError(f"must be {'true or false' if kind is bool else 'a text'}, not {value!r}")
        return value
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or (isinstance(value, float) and not math.isfinite(value))
        or (kind is int and value != int(value))
    ):
        raise ValueError(f"must be {'a whole number' if kind is int else 'a number'}, not {value!r}")
    for limit, wrong in (
        ("minimum", value < limits.get("minimum", value)),
        ("maximum", value > limits.get("maximum", value)),
    ):
        if wrong:
            raise ValueError(
                f"must be at {'least' if limit == 'minimum' else 'most'} {limits[limit]}, not {value!r}"
            )
    if "exclusiveMinimum" in limits and value <= limits["exclusiveMinimum"]:
        raise ValueError(f"must be more than {limits['exclusiveMinimum']}, not {value!r}")
    return kind(value)


def _from_text(raw: str, kind: Any) -> Any:
    """An environment variable's value as JSON would have it."""
    if get_origin(kind) is tuple:
        return [part.strip() for part in raw.split(",") if part.strip()]
    if kind is bool:
        return {
            "1": True,
            "true": True,
            "on": True,
            "yes": True,
            "0": False,
            "false": False,
            "off": False,
            "no": False,
        }.get(raw.lower(), raw)
    if kind in (int, float):
        try:
            return float(raw) if kind is float or "." in raw else int(raw)
        except ValueError:
            return raw
    return raw


def _json_type(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": {"type": "string"}}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if get_args(kind):
        return {"type": [names[get_args(kind)[0]], "null"]}
    return {"type": names[kind]}
