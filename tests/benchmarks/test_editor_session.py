"""The session in an editor without the editor: what is typed, and what counts as not adding up."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks import editor_session
from benchmarks.editor_session import cut, faults_of
from benchmarks.telemetry import simulated_log
from lsp_server.stats import summarise

SOURCE = "import a\n\n\nclass B:\n    def first(self):\n        return 1\n\n    def second(self):\n        return 2\n"


@pytest.fixture
def told(tmp_path):
    """A log's summary, as JSON gives it, and its request records."""
    log = tmp_path / "log"
    log.write_bytes(b"".join(simulated_log(150)))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    summary = json.loads(json.dumps(summarise([log])))
    return summary, [line for line in lines if line["kind"] == "request"]


def test_a_summary_that_follows_from_its_log_has_no_fault(told):
    assert list(faults_of(*told)) == []


@pytest.mark.parametrize(
    "wrong", ["one record too few", "a percentile", "a stage", "a lost line", "an imbalance"]
)
def test_what_does_not_follow_is_told(told, wrong):
    summary, records = told
    if wrong == "one record too few":
        records.pop()
    elif wrong == "a percentile":
        summary["overall"]["total_ms"]["p95"] += 1
    elif wrong == "a stage":
        summary["overall"]["stages"]["verify_ms"]["mean_ms"] += 1
    elif wrong == "a lost line":
        summary["log"]["lost"] = 1
    else:
        for record in records:
            record["post_ms"] += 100
    assert list(faults_of(summary, records))


def test_a_log_without_records_is_a_fault(tmp_path):
    empty = tmp_path / "log"
    empty.touch()
    assert list(faults_of(summarise([empty]), [])) == ["there is no record"]


def test_the_part_to_be_typed_is_whole_lines_behind_a_function_s_head():
    before, target, after = cut(SOURCE, 10)
    assert before + target + after == SOURCE
    assert before.splitlines()[-1] == "    def first(self):"
    assert target == "        return 1\n"


@pytest.mark.parametrize(
    ("rest", "ghost", "key", "kind"),
    [
        ("total)\n", "total)", "<Tab>", "accept"),
        ("total + 1", "total - 1", "<M-w>", "accept word"),
        ("total", "other", "t", "character"),
        ("\nnext", "", "<CR>", "enter"),
        ("<b", "", "<lt>", "character"),
    ],
)
def test_what_is_offered_is_accepted_where_it_is_what_comes_next(rest, ghost, key, kind, monkeypatch):
    monkeypatch.setattr(editor_session, "ACCEPT_SHARE", 1.0)
    assert editor_session._next_key(rest, ghost, random.Random(0)) == (key, kind)
