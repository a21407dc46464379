"""Settings: one definition, four sources, and values that do not fit."""

import json
import subprocess
import sys

import pytest

from lsp_server.settings import Settings, as_json, from_environment, from_file, merged, resolve, schema


def test_defaults_are_greedy_and_documented():
    assert Settings().temperature == 0
    properties = schema()["properties"]
    assert all(row["description"] and "default" in row for row in properties.values())
    assert set(properties) == set(as_json(Settings()))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"maxTokens": "many"}, "maxTokens must be a whole number"),
        ({"maxTokens": 0}, "at least 1"),
        ({"maxTokens": 1.5}, "whole number"),
        ({"enabled": 1}, "true or false"),
        ({"disabledLanguages": "python"}, "list of texts"),
        ({"trace": "all"}, "one of"),
        ({"topP": 0}, "more than 0"),
        ({"seed": 2**63 + 1}, "at most"),
        ({"temperature": float("nan")}, "must be a number"),
        ({"seed": float("inf")}, "must be a whole number"),
        ({"idleExitMinutes": float("-inf")}, "must be a number"),
        ({"maxTokns": 3}, "unknown setting 'maxTokns'"),
        ([1], "must be an object"),
    ],
)
def test_a_bad_value_falls_back_with_a_message(values, problem):
    settings, problems = merged(Settings(), values, "here")
    assert settings == Settings()
    assert len(problems) == 1 and problems[0].startswith("here: ") and problem in problems[0]


def test_a_bad_value_does_not_cost_the_good_ones():
    settings, problems = merged(Settings(), {"maxTokens": 7, "seed": -1}, "here")
    assert settings.max_tokens == 7 and settings.seed == 0 and len(problems) == 1


def test_environment_values_are_read_by_type():
    environment = {
        "SPEC_COMPLETE_MAX_TOKENS": "12",
        "SPEC_COMPLETE_ENABLED": "off",
        "SPEC_COMPLETE_TOP_P": "0.9",
        "SPEC_COMPLETE_SECRET_PATTERNS": "*.vault, keys/*",
        "SPEC_COMPLETE_SEED": "three",
    }
    settings, problems = from_environment(Settings(), environment)
    assert (settings.max_tokens, settings.enabled, settings.top_p) == (12, False, 0.9)
    assert settings.secret_patterns == ("*.vault", "keys/*")
    assert len(problems) == 1 and "seed" in problems[0]


def test_later_sources_win(tmp_path, monkeypatch):
    path = tmp_path / "settings.json"
    path.write_text('{"maxTokens": 1, "seed": 1, "deadlineMs": 100, "candidates": 1}')
    monkeypatch.setenv("SPEC_COMPLETE_SETTINGS", str(path))
    monkeypatch.setenv("SPEC_COMPLETE_SEED", "4")
    settings, problems = resolve(
        ("options", {"deadlineMs": 200, "candidates": 2}), ("client", {"candidates": 3})
    )
    assert not problems
    assert (settings.max_tokens, settings.deadline_ms, settings.candidates, settings.seed) == (1, 200, 3, 4)


@pytest.mark.parametrize("text", ["{", "[]", b"\xff\xfe\x00"])
def test_an_unreadable_file_is_a_message(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    settings, problems = from_file(Settings(), path)
    assert settings == Settings() and len(problems) == 1


def test_candidates_after_the_first_are_warm_and_seeded():
    settings = Settings()
    assert settings.active_sampling(0) is None
    assert settings.active_sampling(2)["temperature"] == 0.4
    assert settings.active_sampling(2)["seed"] == 2
    assert merged(settings, {"temperature": 0.8}, "")[0].active_sampling(1)["temperature"] == 0.8


def test_the_schema_is_printed():
    run = [sys.executable, "-I", "-m", "lsp_server", "settings", "--schema"]
    printed = subprocess.run(run, capture_output=True, check=True)
    assert json.loads(printed.stdout) == json.loads(json.dumps(schema()))
