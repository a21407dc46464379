"""The summary: every aggregate against a log made by hand, and logs that are not as they should be."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import tracemalloc
from datetime import datetime, timezone

import numpy as np
import pytest

from benchmarks.telemetry import simulated_log
from lsp_server import stats, stats_group, stats_log
from lsp_server.cli import main
from lsp_server.stats import summarise
from lsp_server.stats_log import StatsError, since_stamp
from lsp_server.telemetry import costs_record, outcome_record, request_record
from speculation.request import CompletionMetrics
from tests.lsp_server import latency_log as log


@pytest.fixture
def summary(tmp_path):
    return summarise([log.whole(tmp_path / "log.jsonl")])


@pytest.fixture
def local_time(monkeypatch):
    """Sets the time zone for one test."""

    def set_zone(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


def group(summary, key):
    return next(group for group in summary["groups"] if group["key"] == key)


def test_counts_of_the_log(summary):
    assert summary["log"] == {
        "files": 1, "lines": 16, "truncated": 0, "foreign": 0, "lost": 0,
        "requests": 5, "outcomes": 10, "outcomes_without_request": 1,
        "first": "2026-03-01T09:00:00.000Z", "last": "2026-03-01T10:30:00.000Z",
    }  # fmt: skip


def test_latencies_have_n_mean_and_numpy_s_percentiles(summary):
    totals = [105.0, 50.0, 1.0, 10.0, 46.0]
    spread = summary["overall"]["total_ms"]
    assert (spread["n"], spread["mean"]) == (5, pytest.approx(42.4))
    assert [spread["p50"], spread["p95"], spread["p99"]] == list(np.percentile(totals, [50, 95, 99]))
    assert spread["p50"] == 46.0
    filled = {(b["from"], b["to"]): b["n"] for b in spread["histogram"] if b["n"]}
    assert filled == {(1, 2): 1, (10, 20): 1, (20, 50): 1, (50, 100): 1, (100, 200): 1}
    ttft, tpot = summary["overall"]["ttft_ms"], summary["overall"]["tpot_ms"]
    assert (ttft["n"], ttft["p50"]) == (2, 37.5)  # where a first token was generated for this request
    assert (tpot["n"], tpot["p50"]) == (3, 9.0)


def test_groups_by_route_come_largest_first_and_add_up(summary):
    assert [(g["key"], g["n"]) for g in summary["groups"]] == [
        ("generated", 2), ("typed-through", 1), ("dropped", 1), ("continued", 1),
    ]  # fmt: skip
    assert group(summary, "generated")["total_ms"]["p50"] == 77.5
    assert summary["overall"]["routes"] == {"generated": 2, "typed-through": 1, "dropped": 1, "continued": 1}
    assert summary["overall"]["reasons"] == {"superseded": 1}


def test_stage_means_and_shares(summary):
    stages = group(summary, "generated")["stages"]
    assert stages["prefill_ms"]["mean_ms"] == 15.0
    assert stages["verify_ms"] == {"mean_ms": 60.0, "share": pytest.approx(120 / 155)}
    assert sum(stage["share"] for stage in summary["overall"]["stages"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("total_ms", "verify_ms", "unbalanced"),
    [(10.0, 9.1, 0), (10.0, 8.9, 1), (1000.0, 985.0, 0), (1000.0, 975.0, 1), (100.0, 103.0, 1)],
)
def test_stages_that_miss_the_total_by_more_than_2_percent_and_1_ms_are_counted(
    tmp_path, total_ms, verify_ms, unbalanced
):
    record = log.request("1", "2026-03-01T09:00:00.000Z", "generated", total_ms, verify_ms=verify_ms)
    assert summarise([log.write(tmp_path / "log", record)])["overall"]["unbalanced"] == unbalanced


def test_drafting_figures(summary):
    drafting = summary["overall"]["drafting"]
    assert (drafting["forwards"], drafting["committed"]) == (6, 15)
    assert drafting["tokens_per_forward"] == 2.5
    assert (drafting["drafted"], drafting["accepted"], drafting["acceptance_rate"]) == (12, 9, 0.75)
    assert drafting["alpha"] == 0.9  # nine accepted, one looked at and rejected
    per_round = 1 + 0.9 + 0.81 + 0.729 + 0.6561
    assert drafting["expected_tokens_per_forward"] == pytest.approx((3 * 1 + 3 * per_round) / 6)
    assert (drafting["drafts"], drafting["drafts_failed"]) == (3, 1)
    assert (drafting["mean_draft_length"], drafting["mean_accepted_length"]) == (4.0, 3.0)
    assert drafting["rejected_depth"] == {"1": 1}
    assert drafting["passes_by_positions"] == {"1": 3, "5": 3}
    spent = 105 + 50 + 1 + 10 + 46
    assert drafting["draft_share"] == pytest.approx(2 / spent)
    assert drafting["verify_share"] == pytest.approx(165 / spent)


def test_acceptance_by_source_and_match_length(summary):
    overall = summary["overall"]
    assert overall["by_source"] == {
        "request": {"drafted": 8, "accepted": 5, "acceptance_rate": 0.625},
        "open": {"drafted": 4, "accepted": 4, "acceptance_rate": 1.0},
    }
    assert overall["by_match"] == {
        "open": {"16": {"drafted": 4, "accepted": 4, "acceptance_rate": 1.0}},
        "request": {
            "2": {"drafted": 4, "accepted": 4, "acceptance_rate": 1.0},
            "8": {"drafted": 4, "accepted": 1, "acceptance_rate": 0.25},
        },
    }


@pytest.mark.parametrize(
    ("length", "bucket"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (40, 32), (1024, 1024), (9999, 1024)],
)
def test_match_lengths_are_counted_in_powers_of_two(tmp_path, length, bucket):
    record = log.DRAFTED | {"by_match": {"open": {str(length): [8, 5]}}}
    by_match = summarise([log.write(tmp_path / "log", record)])["overall"]["by_match"]
    assert by_match == {"open": {str(bucket): {"drafted": 8, "accepted": 5, "acceptance_rate": 0.625}}}


def test_outcomes_count_each_answer_once_under_its_best(summary):
    outcomes = summary["overall"]["outcomes"]
    assert outcomes == {
        "offered": 4, "shown": 3, "accepted": 1, "partial": 0, "rejected": 1, "superseded": 1, "undecided": 1,
        "shown_share": 0.75, "taken_share_of_shown": pytest.approx(1 / 3), "offered_characters": 84,
        "taken_characters": 30, "kept_share": 0.8,
    }  # fmt: skip
    assert group(summary, "generated")["outcomes"]["accepted"] == 1
    assert group(summary, "typed-through")["outcomes"]["superseded"] == 1


def test_an_answer_that_is_typed_through_is_offered_once_where_it_was_first_returned(tmp_path):
    along = [log.TYPED | {"id": f"t{n}", "answer": "1"} for n in range(3)]
    prepared = log.TYPED | {"id": "p", "answer": "prepared ahead"}
    events = [log.outcome("1", "accepted", 30), log.outcome("prepared ahead", "rejected")]
    summary = summarise([log.write(tmp_path / "log", log.DRAFTED, *along, prepared, *events)])
    assert summary["log"]["outcomes_without_request"] == 0
    generated, typed = (group(summary, key)["outcomes"] for key in ("generated", "typed-through"))
    assert (generated["offered"], generated["accepted"]) == (1, 1)
    assert (typed["offered"], typed["rejected"]) == (1, 1)


def test_a_worse_outcome_does_not_replace_a_better_one(tmp_path):
    events = [log.outcome("1", kind, n) for kind, n in (("partial", 4), ("partial", 9), ("superseded", 0))]
    outcomes = summarise([log.write(tmp_path / "log", log.DRAFTED, *events)])["overall"]["outcomes"]
    assert (outcomes["partial"], outcomes["superseded"], outcomes["taken_characters"]) == (1, 0, 9)


def test_an_answer_that_goes_on_and_is_accepted_again_adds_up(tmp_path):
    events = [log.outcome("1", kind, n) for kind, n in (("partial", 3), ("accepted", 8), ("accepted", 5))]
    events += [log.outcome("1", "kept", 8), log.outcome("1", "kept", 4)]
    outcomes = summarise([log.write(tmp_path / "log", log.DRAFTED, *events)])["overall"]["outcomes"]
    assert (outcomes["accepted"], outcomes["partial"], outcomes["taken_characters"]) == (1, 0, 13)
    assert outcomes["kept_share"] == pytest.approx(12 / 13)  # each acceptance by what it inserted


def test_an_answer_that_was_taken_was_seen(tmp_path):
    requests = [log.DRAFTED | {"id": id_} for id_ in "1234"]
    events = [log.outcome("1", "accepted", 30), log.outcome("2", "partial", 3), log.outcome("2", "shown")]
    events += [log.outcome("3", "shown"), log.outcome("4", "superseded")]
    outcomes = summarise([log.write(tmp_path / "log", *requests, *events)])["overall"]["outcomes"]
    assert outcomes["shown"] == 3
    assert outcomes["taken_share_of_shown"] == pytest.approx(2 / 3)


def test_no_more_is_kept_than_was_inserted(tmp_path):
    events = [log.outcome("1", "accepted", 30), log.outcome("1", "kept", 300)]
    outcomes = summarise([log.write(tmp_path / "log", log.DRAFTED, *events)])["overall"]["outcomes"]
    assert outcomes["kept_share"] == 1


def test_output_lengths(summary):
    lengths = summary["overall"]["output_tokens"]
    assert (lengths["n"], lengths["p50"]) == (3, 5.0)
    assert lengths["histogram"] == [{"from": 2, "to": 3, "n": 1}, {"from": 4, "to": 7, "n": 2}]


def test_sampling_batch_size_memory_and_out_of_memory(summary):
    overall = summary["overall"]
    assert overall["sampling"] == {
        "greedy": 2,
        "temperature 0.5, top_k 20": 1,
    }  # of the decoded ones, without seed
    assert overall["batch_size"] == {"1": 3}
    assert overall["oom_count"] == 1
    assert overall["device_memory_bytes"] == 900_000_000
    assert overall["prompt"] == {"reused_tokens": 290, "new_tokens": 110}


def test_the_counterfactual_follows_the_cost_table_and_the_load(summary):
    saving = summary["overall"]["saving"]
    assert saving["estimated_requests"] == 3
    assert saving["with_ms"] == 105 + 50 + 46
    drafted, plain, continued = 105 - 81 + 8 * 20, 50, 46 - 46 + 5 * 20 * 1.5
    assert saving["without_ms"] == pytest.approx(drafted + plain + continued)
    assert saving["saved_ms"] == pytest.approx(384 - 201)
    assert saving["speedup"] == pytest.approx(384 / 201)
    assert saving["decode_speedup"] == pytest.approx((160 + 40 + 150) / (81 + 40 + 46))
    assert saving["total_ms_without"]["p50"] == pytest.approx(np.percentile([184, 50, 150], 50))


def test_without_a_cost_table_nothing_is_estimated(tmp_path):
    saving = summarise([log.write(tmp_path / "log", *log.REQUESTS)])["overall"]["saving"]
    assert (saving["estimated_requests"], saving["speedup"], saving["decode_speedup"]) == (0, None, None)


def test_a_cost_table_that_comes_later_serves_what_was_logged_before_any(tmp_path):
    paths = [log.write(tmp_path / "old", log.DRAFTED), log.write(tmp_path / "new", log.COSTS)]
    assert summarise(paths)["overall"]["saving"]["estimated_requests"] == 1


@pytest.mark.parametrize("wrong", [{"positions": []}, {"positions": [1]}, {"pass_ms": [0.0] * 4}])
def test_a_cost_table_that_makes_no_sense_estimates_nothing(tmp_path, wrong):
    summary = summarise([log.write(tmp_path / "log", log.COSTS | wrong, log.DRAFTED)])
    assert summary["overall"]["saving"]["estimated_requests"] == 0 and summary["costs"] == []


def test_a_newer_cost_table_is_used_from_its_line_on(tmp_path):
    dearer = log.COSTS | {"pass_ms": [40.0, 44.0, 60.0, 80.0]}
    again = log.PLAIN | {"verify_ms": 80.0, "total_ms": 90.0}
    saving = summarise([log.write(tmp_path / "log", log.COSTS, log.PLAIN, dearer, again)])["overall"][
        "saving"
    ]
    assert saving["decode_speedup"] == pytest.approx(1.0)  # two passes of one position each, by both tables


def test_break_even_acceptance_follows_from_the_cost_table(summary):
    (table,) = summary["costs"]
    assert (table["positions"], table["pass_ms"]) == ([1, 2, 5, 9], [20.0, 22.0, 30.0, 40.0])
    assert table["break_even_alpha"]["1"] == pytest.approx(0.1)  # 1 + α = 22 / 20
    alpha = table["break_even_alpha"]["4"]
    assert 1 + alpha + alpha**2 + alpha**3 + alpha**4 == pytest.approx(1.5)
    assert set(table["break_even_alpha"]) == {"1", "2", "3", "4", "8"}  # not beyond what was measured


def test_sampled_requests_check_the_estimate(tmp_path):
    rng = random.Random(1)
    records = [log.COSTS]
    for n in range(400):
        speculation = n % 4 != 0
        passes = {"1": 2, "5": 2} if speculation else {"1": 8}
        verify_ms = (100.0 if speculation else 160.0) * rng.uniform(0.9, 1.1)
        records.append(
            log.request(
                str(n),
                "2026-03-01T09:00:00.000Z",
                "generated",
                verify_ms,
                verify_ms=verify_ms,
                forwards=sum(passes.values()),
                committed=8,
                speculation=speculation,
                off_fraction=0.25,
                passes_by_positions=passes,
                drafted=8 * speculation,
                accepted=4 * speculation,
            )
        )
    sampled = summarise([log.write(tmp_path / "log", *records)])["overall"]["saving"]["sampled"]
    assert (sampled["on"], sampled["off"]) == (300, 100)
    measured = sampled["measured_decode_speedup"]
    assert measured["low"] < 1.6 < measured["high"]
    assert measured["high"] - measured["low"] < 0.06
    assert sampled["estimated_decode_speedup"] == pytest.approx(1.6)


def test_requests_without_speculation_do_not_dilute_the_drafting_figures(tmp_path):
    off = log.PLAIN | {"id": "9", "speculation": False}
    drafting = summarise([log.write(tmp_path / "log", log.DRAFTED, off)])["overall"]["drafting"]
    assert drafting["tokens_per_forward"] == pytest.approx(8 / 3)
    assert drafting["unspeculated_requests"] == 1


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("source", ["(no draft)", "request", "open"]),
        ("language", ["python", "rust"]),
        ("model", ["m · int8 · cpu"]),
        ("hour", ["2026-03-01 09:00", "2026-03-01 10:00"]),
    ],
)
def test_other_groupings(tmp_path, by, keys, local_time):
    local_time("UTC")
    summary = summarise([log.whole(tmp_path / "log")], by)
    assert [g["key"] for g in summary["groups"]] == keys
    assert sum(g["n"] for g in summary["groups"]) == 5


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_times_at_the_ends_of_the_calendar_have_no_hour(tmp_path, local_time, zone):
    local_time(zone)
    ends = [log.PLAIN | {"at": at} for at in ("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:00.000Z")]
    wrong = [log.PLAIN | {"at": at} for at in ("", "2026-02-30T00:00:00.000Z", "<hour>")]
    summary = summarise([log.write(tmp_path / "log", *ends, *wrong)], "hour")
    assert group(summary, stats_group.OTHER)["n"] == 4  # one end has a local hour
    assert summary["overall"]["n"] == 5


def test_since_leaves_out_what_is_older_but_keeps_the_cost_table(tmp_path):
    summary = summarise([log.whole(tmp_path / "log")], since="2026-03-01T10:00:00.000Z")
    assert summary["overall"]["n"] == 2
    assert summary["overall"]["saving"]["estimated_requests"] == 1


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("30m", "2026-03-01T11:30:00.000Z"),
        ("6h", "2026-03-01T06:00:00.000Z"),
        ("7d", "2026-02-22T12:00:00.000Z"),
        ("2w", "2026-02-15T12:00:00.000Z"),
        ("2026-02-28T10:00:00+02:00", "2026-02-28T08:00:00.000Z"),
        ("2026-02-28T10:00:00Z", "2026-02-28T10:00:00.000Z"),
    ],
)
def test_since_takes_ages_and_dates(text, stamp):
    assert since_stamp(text, datetime(2026, 3, 1, 12, tzinfo=timezone.utc)) == stamp


@pytest.mark.parametrize(
    "text", ["yesterday", "", "99999999999d", "999999w", "1" * 5_000 + "d", "9" * 5_000, "2026-02-30"]
)
def test_a_wrong_since_says_what_is_right(text):
    with pytest.raises(StatsError, match="30m, 6h, 7d") as error:
        since_stamp(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("zone", "text"), [("Asia/Tokyo", "0001-01-01"), ("America/New_York", "9999-12-31T23:00")]
)
def test_a_since_without_a_universal_time_says_what_is_right(local_time, zone, text):
    local_time(zone)
    with pytest.raises(StatsError, match="30m, 6h, 7d"):
        since_stamp(text)


def test_percentiles_equal_numpy_s_on_many_records(tmp_path):
    rng = random.Random(5)
    totals = [round(rng.lognormvariate(4, 1.5), 3) for _ in range(5_001)]
    records = (log.request(str(n), "2026-03-01T09:00:00.000Z", rng.choice(["generated", "continued"]), total)
               for n, total in enumerate(totals))  # fmt: skip
    spread = summarise([log.write(tmp_path / "log", *records)])["overall"]["total_ms"]
    assert [spread["p50"], spread["p95"], spread["p99"]] == pytest.approx(
        np.percentile(totals, [50, 95, 99]), rel=1e-12
    )


def test_truncated_and_foreign_lines_are_counted_and_skipped(tmp_path):
    path = tmp_path / "log"
    good = json.dumps(log.DRAFTED).encode()
    lines = [
        good[: len(good) // 2],  # cut short by a full disk
        b"\xff\xfe\x00 binary",
        b"not json at all",
        b'{"v":1,"kind":"request","x":' + b"[" * 100_000,  # deeper than any parser's stack
        b"[" * 100_000,
        b'{"level":"info"}',
        b"[1,2]",
        json.dumps(log.DRAFTED | {"v": 2}).encode(),  # a later version
        json.dumps(log.DRAFTED | {"route": "teleported"}).encode(),
        json.dumps(log.DRAFTED | {"total_ms": "105"}).encode(),
        json.dumps(log.DRAFTED | {"forwards": -1}).encode(),
        b"",
        b"   ",
        b'{"v":1,"kind":"lost","count":3}',
        json.dumps(log.DRAFTED | {"new_field": [1, {"a": 2}]}).encode(),  # a later minor version: read
        good,  # no line end: the writer is still at it
    ]
    path.write_bytes(b"\n".join(lines))
    summary = summarise([path])
    assert summary["overall"]["n"] == 2
    counts = summary["log"]
    assert (counts["truncated"], counts["foreign"], counts["lost"]) == (4, 7, 3)
    assert counts["lines"] == 14  # blank ones are no lines


def test_memory_grows_by_a_few_numbers_a_request_only(tmp_path, monkeypatch):
    monkeypatch.setattr(stats, "JOIN_WINDOW", 200)

    def peak(records: int) -> int:
        path = tmp_path / f"{records}.jsonl"
        path.write_bytes(b"".join(simulated_log(records)))
        tracemalloc.start()
        summarise([path])
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert (peak(8_000) - peak(2_000)) / 6_000 < 100  # bytes; a record as an object takes over 1,000


def test_a_log_full_of_strange_keys_does_not_fill_the_memory(tmp_path):
    records = [
        log.DRAFTED | {"id": str(n), "language": f"l{n}", "by_match": {f"s{n}": {"3": [8, 5]}}}
        for n in range(1_000)
    ]
    summary = summarise([log.write(tmp_path / "log", *records)], by="language")
    assert len(summary["groups"]) == stats.GROUP_LIMIT + 1
    assert group(summary, stats_group.OTHER)["n"] == 1_000 - stats.GROUP_LIMIT
    one_group = summarise([tmp_path / "log"])
    assert len(one_group["overall"]["by_source"]) == stats_group.DISTINCT_LIMIT + 1
    assert one_group["overall"]["drafting"]["drafted"] == 8_000


def test_outcomes_are_joined_within_a_window_and_counted_beyond_it(tmp_path, monkeypatch):
    monkeypatch.setattr(stats, "JOIN_WINDOW", 10)
    requests = [log.TYPED | {"id": str(n)} for n in range(35)]
    summary = summarise(
        [log.write(tmp_path / "log", *requests, *(log.outcome(str(n), "shown") for n in range(35)))]
    )
    assert summary["overall"]["outcomes"]["shown"] >= 10
    assert summary["overall"]["outcomes"]["shown"] + summary["log"]["outcomes_without_request"] == 35


def test_a_log_full_of_engines_does_not_fill_the_memory(tmp_path):
    tables = [log.COSTS | {"engine": f"e{n % 200}", "pass_ms": [20.0 + n, 22.0 + n, 30.0 + n, 40.0 + n]}
              for n in range(1_000)]  # fmt: skip
    path = log.write(tmp_path / "log", *tables)
    summary = summarise([path])
    assert len(summary["costs"]) == stats_log.DISTINCT_LIMIT
    assert summary["costs"][0]["pass_ms"][0] == 820.0  # the newest of those kept
    _, first = stats_log.survey([path])
    assert [table(1) for table in first.values()] == [20.0 + n for n in range(stats_log.DISTINCT_LIMIT)]


def test_the_first_cost_table_that_makes_sense_serves_what_was_logged_before_any(tmp_path):
    senseless, dearer = log.COSTS | {"positions": [1]}, log.COSTS | {"pass_ms": [40.0, 44.0, 60.0, 80.0]}
    paths = [
        log.write(tmp_path / "old", log.PLAIN),
        log.write(tmp_path / "new", senseless, log.COSTS, dearer),
    ]
    assert summarise(paths)["overall"]["saving"]["decode_speedup"] == pytest.approx(1.0)


def test_an_empty_log_has_a_summary(tmp_path):
    summary = summarise([log.write(tmp_path / "log")])
    assert summary["overall"]["n"] == 0
    assert summary["overall"]["total_ms"]["p50"] is None


def test_what_is_written_can_be_read_back_without_loss(tmp_path):
    metrics = CompletionMetrics(verify_ms=9.5, forwards=1, committed=1, by_match={"a": {3: [1, 0]}})
    record = request_record(
        id="a", trigger="invoked", route="generated", total_ms=9.5, metrics=metrics, characters=3
    )
    costs = costs_record(model="", engine="", device="", positions=[1], pass_ms=[9.5])
    summary = summarise([log.write(tmp_path / "log", costs, record, outcome_record("a", "shown"))])
    counts = summary["log"]
    assert (counts["truncated"], counts["foreign"], counts["requests"], counts["outcomes"]) == (0, 0, 1, 1)
    assert summary["overall"]["saving"]["decode_speedup"] == pytest.approx(1.0)


def test_the_summary_needs_no_torch():
    code = "import sys, lsp_server.stats, lsp_server.stats_html; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


def test_numbers_that_are_no_measurements_make_a_line_foreign(tmp_path):
    wrong = [{"total_ms": 1e300}, {"forwards": 10**30}, {"passes_by_positions": {"-1": 2}}, {"oom_count": -1}]
    path = log.write(tmp_path / "log", log.DRAFTED, *(log.DRAFTED | fields for fields in wrong))
    summary = summarise([path])
    assert (summary["log"]["foreign"], summary["overall"]["n"]) == (4, 1)


class TestCommand:
    def test_json_is_the_summary(self, tmp_path, capsys):
        path = log.whole(tmp_path / "log")
        assert main(["stats", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(summarise([path])))

    def test_the_terminal_view_has_the_figures(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")
        assert main(["stats", str(log.whole(tmp_path / "log"))]) == 0
        shown = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
        for figure in (
            "46.0 / 94.0 / 103",
            "2.50",
            "2.55",
            "1.91 ×",
            "2.10 ×",
            "62 %",
            "dropped for: superseded (1)",
        ):
            assert figure in shown, figure

    def test_the_user_s_log_is_the_default(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", str(tmp_path))
        assert main(["stats"]) == 2
        assert "no log yet" in capsys.readouterr().err
        assert main(["stats", "--html", str(tmp_path / "empty.html")]) == 0
        assert "<html" in (tmp_path / "empty.html").read_text()
        log.whole(tmp_path / "log" / "telemetry.jsonl")
        assert main(["stats", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["overall"]["n"] == 5

    def test_a_missing_log_is_one_clear_line(self, tmp_path, capsys):
        assert main(["stats", str(tmp_path / "none")]) == 2
        assert (
            capsys.readouterr().err
            == f"spec-complete: cannot read {tmp_path / 'none'}: No such file or directory\n"
        )

    @pytest.mark.parametrize("arguments", [["--since", "yesterday"], ["--json"]])
    def test_bad_input_is_exit_code_2_and_one_clear_line(self, tmp_path, capsys, arguments):
        assert main(["stats", str(tmp_path), *arguments]) == 2  # a directory is no log
        captured = capsys.readouterr()
        assert not captured.out and captured.err.startswith("spec-complete: ")
        assert captured.err.count("\n") == 1

    def test_an_empty_log_and_foreign_lines_are_no_error(self, tmp_path, capsys):
        empty = tmp_path / "empty"
        empty.touch()
        assert main(["stats", str(empty)]) == 0
        assert capsys.readouterr().out.startswith("0 requests and 0 outcomes")
        foreign = tmp_path / "foreign"
        foreign.write_bytes(b"not json\n\xff\x00\n{}\n")
        assert main(["stats", str(foreign)]) == 0
        assert "left out: cut short or not JSON 2, of another kind or version 1" in (
            capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
        )

    def test_the_schema_is_printed(self, capsys):
        assert main(["stats", "--schema"]) == 0
        assert json.loads(capsys.readouterr().out)["$schema"].endswith("2020-12/schema")
