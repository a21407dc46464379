"""Records: what is in them, what never is, and what a continuing request owes."""

from __future__ import annotations

import json
import time
from dataclasses import fields

import pytest
from jsonschema import Draft202012Validator

from lsp_server.telemetry import (
    STAGES,
    costs_record,
    metrics_since,
    outcome_record,
    request_record,
    snapshot,
    summary_line,
    unattributed_ms,
)
from lsp_server.telemetry_schema import VERSION, schema
from speculation.request import CompletionMetrics
from speculation.sampling import SamplingParameters

METRICS = CompletionMetrics(
    tokenise_ms=1.0,
    prefill_ms=20.0,
    draft_ms=0.5,
    verify_ms=100.0,
    sample_ms=2.0,
    post_ms=0.25,
    ttft_ms=45.0,
    tpot_ms=12.5,
    prompt_tokens=300,
    reused_tokens=290,
    new_tokens=10,
    prefill_passes=1,
    forwards=4,
    drafted=12,
    accepted=5,
    committed=9,
    text_tokens=8,
    end_tokens=1,
    rejected_depth={0: 1, 2: 1},
    drafted_by_source={"request": 12},
    accepted_by_source={"request": 5},
    by_match={"request": {3: [12, 5]}},
    passes_by_positions={1: 1, 5: 3},
)


def a_record(**changes):
    known = {"id": "a", "trigger": "automatic", "route": "generated", "total_ms": 125.0, "metrics": METRICS}
    return request_record(**(known | {"queue_ms": 1.0, "post_ms": 0.25} | changes))


def valid(record) -> None:
    Draft202012Validator(schema()).validate(json.loads(json.dumps(record)))


def test_every_kind_of_record_is_valid_by_the_printed_schema():
    valid(a_record())
    valid(a_record(metrics=None, route="dropped", reason="superseded"))
    valid(a_record(metrics=CompletionMetrics(oom_count=1), route="dropped", reason="failed"))
    valid(a_record(sampling=SamplingParameters(temperature=0.7, seed=3), trace={"text": "x"}))
    valid(outcome_record("a", "partial", characters=4, units=1, unit="word"))
    valid(outcome_record("a", "kept", after_ms=30_000, characters=12))
    valid(costs_record(model="m", engine="int8", device="cpu", positions=[1, 2], pass_ms=[20.0, 22.0]))
    valid({"v": VERSION, "kind": "lost", "count": 2})


def test_the_schema_refuses_a_record_with_a_missing_field_or_a_wrong_type():
    record = a_record()
    validator = Draft202012Validator(schema())
    for name in record:
        assert not validator.is_valid({key: value for key, value in record.items() if key != name}), name
    assert not validator.is_valid(record | {"forwards": "4"})
    assert not validator.is_valid(record | {"route": "guessed"})


def test_the_schema_documents_every_field_of_every_record():
    for kind in schema()["oneOf"]:
        for name, field in kind["properties"].items():
            assert "description" in field or name == "kind", name
    documented = schema()["oneOf"][0]["properties"]
    assert set(a_record(trace={})) == set(documented)
    assert {field.name for field in fields(CompletionMetrics)} <= set(documented)


def test_a_record_carries_the_engine_s_metrics_and_the_callers_share():
    record = a_record()
    assert record["verify_ms"] == 100.0
    assert record["post_ms"] == 0.5  # the engine's and the caller's
    assert record["total_ms"] == 125.0  # the caller's clock, not the engine's
    assert record["rejected_depth"] == {"0": 1, "2": 1}
    assert record["by_match"] == {"request": {"3": [12, 5]}}
    assert sum(record[stage] for stage in STAGES) == record["total_ms"]
    assert unattributed_ms(record) == pytest.approx(0, abs=1e-9)


def test_a_record_is_a_copy_that_a_running_generation_does_not_change():
    metrics = CompletionMetrics(by_match={"request": {1: [2, 1]}}, rejected_depth={0: 1})
    record = a_record(metrics=metrics)
    metrics.by_match["request"][1][0] = 99
    metrics.rejected_depth[0] = 99
    assert record["by_match"] == {"request": {"1": [2, 1]}}
    assert record["rejected_depth"] == {"0": 1}


def test_a_snapshot_does_not_change_with_the_engine_s_metrics():
    metrics = CompletionMetrics(forwards=3, by_match={"request": {1: [2, 1]}}, passes_by_positions={1: 3})
    taken = snapshot(metrics)
    assert taken == metrics
    metrics.forwards = 4
    metrics.by_match["request"][1][0] = 9
    metrics.passes_by_positions[1] = 4
    assert taken == CompletionMetrics(
        forwards=3, by_match={"request": {1: [2, 1]}}, passes_by_positions={1: 3}
    )


def test_neither_text_nor_path_is_recorded_unless_trace_is_on():
    secret = "/home/someone/secret-project/main.py"
    written = json.dumps(a_record(document=secret))
    assert "secret-project" not in written and "someone" not in written
    traced = a_record(document=secret, trace={"path": secret, "text": "def f"})
    assert traced["trace"] == {"path": secret, "text": "def f"}


def test_the_same_document_has_the_same_hash_and_another_one_another():
    one, again, other = (a_record(document=name)["document"] for name in ("a.py", "a.py", "b.py"))
    assert one == again != other
    assert a_record(document="")["document"] == ""
    assert a_record(document="\ud800")["document"]  # file names need not be Unicode


def test_greedy_requests_have_no_sampling_parameters():
    assert a_record(sampling=SamplingParameters())["sampling"] is None
    drawn = a_record(sampling=SamplingParameters(temperature=0.5, top_k=20, seed=7))["sampling"]
    assert drawn["temperature"] == 0.5 and drawn["top_k"] == 20 and drawn["seed"] == 7


def test_a_continuing_request_is_charged_only_what_was_spent_since():
    before = CompletionMetrics(
        verify_ms=100.0, forwards=4, committed=9, ttft_ms=45.0, by_match={"a": {3: [12, 5]}},
        passes_by_positions={1: 1, 5: 3}, prompt_tokens=300,
    )  # fmt: skip
    after = CompletionMetrics(
        verify_ms=130.0, forwards=5, committed=12, ttft_ms=45.0,
        by_match={"a": {3: [14, 6]}, "b": {1: [1, 0]}},
        passes_by_positions={1: 1, 3: 1, 5: 3}, prompt_tokens=300,
    )  # fmt: skip
    owed = metrics_since(after, before)
    assert (owed.verify_ms, owed.forwards, owed.committed) == (30.0, 1, 3)
    assert owed.by_match == {"a": {3: [2, 1]}, "b": {1: [1, 0]}}
    assert owed.passes_by_positions == {3: 1}
    assert owed.prompt_tokens == 300 and owed.ttft_ms == 0.0  # the first token came before
    assert metrics_since(after, CompletionMetrics()) == after


def test_the_readable_line_has_the_record_s_numbers():
    line = summary_line(a_record())
    assert line == (
        "generated 125 ms: first token 45 ms, 9 tokens in 4 passes (2.3 a pass), drafts 5/12 accepted,"
        " prompt 290 reused + 10 new"
    )
    assert (
        summary_line(a_record(metrics=None, route="dropped", reason="no-worth"))
        == "dropped 125 ms (no-worth)"
    )


@pytest.mark.parametrize(
    ("total_ms", "shown"), [(0.5, "1"), (12.5, "13"), (12.499, "12"), (1.15, "1"), (3, "3")]
)
def test_halves_go_up_as_in_the_plugins_languages(total_ms, shown):
    line = summary_line({**a_record(metrics=None, route="dropped", reason=""), "total_ms": total_ms})
    assert line == f"dropped {shown} ms"


def test_time_stamps_are_utc_and_ordered_as_text():
    first = a_record()["at"]
    time.sleep(0.003)
    assert first < a_record()["at"]
    assert first.endswith("Z") and len(first) == len("2026-01-31T12:00:00.000Z")
