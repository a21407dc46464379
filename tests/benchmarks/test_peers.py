"""The comparison's own machinery, with scripted peers: order, resuming, cutting, ratios, bounds."""

from __future__ import annotations

import io
import json
import sys

import pytest

from benchmarks.peers import bounds, figures, plan, report, tables, worker
from benchmarks.peers.process import PeerError, Worker
from benchmarks.peers.results import Results, code_hash, key_of
from benchmarks.peers.run import Part, Runner, first_line, peers_at, rotated, similarity
from benchmarks.peers.tasks import PeerTask, Workload, blocks


class ScriptedPeer:
    """Answers with given ids at a given pace, and remembers what it was asked."""

    def __init__(self, name, log, encode, ids=(), ms_per_token=1.0, prefill_ms=10.0):
        self.name, self.log, self.encode = name, log, encode
        self.ids, self.ms, self.prefill_ms = list(ids), ms_per_token, prefill_ms

    def ask(self, op, **request):
        if op == "tokenize":
            return {"ids": [self.encode(text) for text in request["texts"]]}
        self.log.append((self.name, op, request["task"]["name"] if op == "complete" else request["key"]))
        if op == "workspace":
            return {"files": len(request["texts"])}
        ids = self.ids[: request["task"]["max_tokens"]]
        events = [[self.ms * (n + 1), n + 1] for n in range(len(ids))]
        modes = {mode: {"ids": list(ids), "events": events} for mode in request["modes"]}
        return {"prefill_ms": self.prefill_ms, "modes": modes, "peak_bytes": 5}


def tasks(tokenizer, count):
    return [
        PeerTask(f"t{n}", [1, 2, 3], 8, ("text",), written="    return a\n", workspace="w")
        for n in range(count)
    ]


def runner(tokenizer, tmp_path, log, **peers):
    made = {name: ScriptedPeer(name, log, tokenizer.encode, **how) for name, how in peers.items()}
    return Runner(made, tokenizer, frozenset(), Results(tmp_path / "results.jsonl"))


def completions(log):
    return [(peer, task) for peer, op, task in log if op == "complete"]


def test_the_peer_that_begins_rotates():
    assert [rotated(("a", "b", "c"), turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert sorted(rotated(("a", "b", "c"), 2)) == ["a", "b", "c"]
    assert rotated((), 3) == []


def test_each_task_goes_to_every_peer_before_the_next_one(tokenizer, tmp_path):
    log = []
    run = runner(tokenizer, tmp_path, log, ours={}, llama={})
    parts = {"ours": Part(("full",), 9), "llama": Part(("plain",), 9)}
    run.run("edits", Workload(tasks(tokenizer, 3), {"w": {"a.py": "x"}}), parts)
    assert completions(log) == [
        ("ours", "t0"), ("llama", "t0"), ("llama", "t1"), ("ours", "t1"), ("ours", "t2"), ("llama", "t2"),
    ]  # fmt: skip
    assert [entry for entry in log if entry[1] == "workspace"] == [("ours", "workspace", "w")]


def test_a_slow_peer_gets_the_first_tasks_only(tokenizer, tmp_path):
    log = []
    run = runner(tokenizer, tmp_path, log, ours={}, transformers={})
    parts = {"ours": Part(("full",), 3), "transformers": Part(("plain",), 1)}
    run.run("edits", Workload(tasks(tokenizer, 5), {"w": {}}), parts)
    assert [task for peer, task in completions(log) if peer == "transformers"] == ["t0"]
    assert [task for peer, task in completions(log) if peer == "ours"] == ["t0", "t1", "t2"]
    assert peers_at(parts, 2) == ["ours"]


def test_a_run_that_was_stopped_goes_on_where_it_was(tokenizer, tmp_path):
    parts = {"ours": Part(("full",), 3)}
    workload = Workload(tasks(tokenizer, 3), {"w": {}})
    runner(tokenizer, tmp_path, [], ours={}).run("edits", workload, {"ours": Part(("full",), 1)})
    path = tmp_path / "results.jsonl"
    path.write_text(path.read_text() + '{"workload": "edits", "task": "t1", "resu')  # the power went
    log = []
    records = runner(tokenizer, tmp_path, log, ours={}).run("edits", workload, parts)
    assert completions(log) == [("ours", "t1"), ("ours", "t2")]
    assert [record["task"] for record in records] == ["t0", "t1", "t2"]
    log.clear()
    assert runner(tokenizer, tmp_path, log, ours={}).run("edits", workload, parts) == records
    assert log == []


def test_a_record_without_a_wanted_peer_is_measured_again(tokenizer, tmp_path):
    workload = Workload(tasks(tokenizer, 1), {"w": {}})
    runner(tokenizer, tmp_path, [], ours={}).run("edits", workload, {"ours": Part(("full",), 1)})
    log = []
    parts = {"ours": Part(("full",), 1), "llama": Part(("plain",), 1)}
    runner(tokenizer, tmp_path, log, ours={}, llama={}).run("edits", workload, parts)
    assert sorted(peer for peer, _ in completions(log)) == ["llama", "ours"]


def test_a_task_that_a_peer_tokenises_otherwise_is_left_out_and_counted(tokenizer, tmp_path):
    run = runner(tokenizer, tmp_path, [], ours={"ids": [1]}, llama={"ids": [1]})
    run._peers["llama"].encode = lambda text: [0]
    parts = {"ours": Part(("off", "full"), 9), "llama": Part(("plain",), 9)}
    records = run.run("edits", Workload(tasks(tokenizer, 2), {"w": {}}), parts)
    found = figures.workload_figures(records)
    assert found["tokenised_otherwise"] == 2 and found["none"]["systems"] == {}


def test_the_key_of_a_configuration_follows_code_and_settings(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("1")
    before = code_hash(tmp_path, ("a",))
    assert code_hash(tmp_path, ("a",)) == before
    (tmp_path / "a" / "x.py").write_text("2")
    assert code_hash(tmp_path, ("a",)) != before
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}) != key_of({"a": 1, "b": 3})


def test_how_figures_are_shown_does_not_change_the_key(tmp_path):
    folder = tmp_path / "benchmarks" / "peers"
    folder.mkdir(parents=True)
    (folder / "tables.py").write_text("1")
    (folder / "llama.py").write_text("1")
    before = code_hash(tmp_path)
    (folder / "tables.py").write_text("2")
    assert code_hash(tmp_path) == before
    (folder / "llama.py").write_text("2")
    assert code_hash(tmp_path) != before


def test_a_text_is_cut_where_the_product_stops(tokenizer, tmp_path):
    text = "    return a\nb = 1\nc = 2\n"  # the block ends after its first line
    ids = tokenizer.encode(text)
    run = runner(tokenizer, tmp_path, [], ours={"ids": ids, "ms_per_token": 2.0})
    task = PeerTask("t", [1], 99, ("text",), written="    return a\n", next_line="b = 1")
    [record] = run.run("edits", Workload([task]), {"ours": Part(("full",), 1)})
    made = record["results"]["ours"]["modes"]["full"]
    kept = tokenizer.decode(ids[: made["product_tokens"]])
    assert "b = 1" in kept and "c = 2" not in kept  # the rule is checked once the next line is whole
    assert made["first_line"] is True and made["similarity"] == 1.0
    none, product = (figures.table([record], stop)["ours/full"]["t"] for stop in figures.STOPS)
    assert none.tokens == len(ids) and product.tokens == made["product_tokens"]
    assert product.decode == 2.0 * product.tokens and product.total == product.decode + 10.0


def record(task, **modes):
    results = {}
    for name, (ids, events) in modes.items():
        peer, mode = name.split("_", 1)
        entry = results.setdefault(peer, {"prefill_ms": 5.0, "peak_bytes": 7, "modes": {}})
        entry["modes"][mode.replace("_", "-")] = {"ids": ids, "events": events, "product_tokens": len(ids)}
    return {"workload": "edits", "task": task, "language": "python", "prompt_tokens": 4, "results": results}


def test_a_pass_that_commits_several_tokens_counts_once():
    made = figures.completion({"ids": [1, 2, 3, 4], "events": [[1.0, 1], [2.0, 4]]}, 5.0, "none")
    assert (made.forwards, made.ttft, made.decode, made.total) == (2, 6.0, 2.0, 7.0)


def test_under_the_products_rules_the_run_with_those_rules_is_taken():
    one = record("t", ours_full=([1, 2], [[9.0, 2]]), ours_full_product=([1], [[3.0, 1]]))
    assert figures.table([one], "none")["ours/full"]["t"].decode == 9.0
    assert figures.table([one], "product")["ours/full"]["t"].decode == 3.0
    assert "ours/full-product" not in figures.table([one], "none")


def test_ratios_are_of_sums_over_the_tasks_that_both_have():
    records = [
        record("a", ours_full=([1], [[1.0, 1]]), llama_plain=([1], [[2.0, 1]])),
        record("b", ours_full=([1], [[3.0, 1]]), llama_plain=([1], [[12.0, 1]])),
        record("c", ours_full=([1], [[100.0, 1]])),
    ]
    found = figures.workload_figures(records)["none"]["ratios"]["llama/plain"]["decode"]
    assert found["value"] == 14 / 4 and found["n"] == 2
    assert found["low"] == 2.0 and found["high"] == 4.0


def test_the_best_mode_is_the_one_with_the_lowest_total():
    records = [record("a", llama_plain=([1], [[5.0, 1]]), llama_lookup_2=([1], [[3.0, 1]]))]
    assert figures.best_of(figures.table(records, "none"), "llama") == "llama/lookup-2"
    assert figures.best_of({}, "llama") is None


def test_a_text_that_differs_between_speculation_on_and_off_is_counted():
    same = record("a", ours_off=([1, 2], [[2.0, 2]]), ours_full=([1, 2], [[1.0, 2]]))
    other = record("b", ours_off=([1, 2], [[2.0, 2]]), ours_full=([1, 3], [[1.0, 2]]))
    assert figures.differences([same]) == {"compared": 1, "different": 0}
    assert figures.differences([same, other]) == {"compared": 2, "different": 1}


def report_with(ratio, low=None, different=0):
    figure = {"value": ratio, "low": low if low is not None else ratio, "high": ratio, "n": 3}
    block = {"ratios": {"ours/off": {"decode": figure}, "llama/plain": {"total": figure}}}
    block["best"] = {"llama": "llama/plain"}
    counts = {"compared": 4, "different": different}
    return {
        "workloads": {name: {"none": block, "text_on_off": counts} for name in ("edits", "noise", "fresh")}
    }


def verdicts(made):
    return {line["name"]: line["ok"] for line in bounds.judged(made)}


@pytest.mark.parametrize(("ratio", "met"), [(1.76, True), (1.74, False)])
def test_a_bound_is_met_from_its_limit_on(ratio, met):
    assert verdicts(report_with(ratio))["edits: decode, our own without speculation ÷ ours"] is met


def test_the_lower_end_of_the_interval_decides_about_noise():
    name = "noise, forced: decode, our own without speculation ÷ ours, lower end"
    assert verdicts(report_with(1.01, low=0.995))[name] is True
    assert verdicts(report_with(1.01, low=0.98))[name] is False


def test_llamas_best_mode_is_what_ours_is_held_against():
    assert verdicts(report_with(1.5))["fresh: total, llama.cpp's best mode ÷ ours"] is True
    assert verdicts(report_with(1.2))["fresh: total, llama.cpp's best mode ÷ ours"] is False


def test_what_was_not_measured_is_neither_met_nor_missed():
    lines = bounds.judged({"workloads": {}})
    assert {line["ok"] for line in lines} == {None}
    assert "not measured" in bounds.as_text(lines[0])


def test_one_text_that_differs_misses_the_bound():
    name = "texts of ours that differ with speculation on and off, all workloads"
    assert verdicts(report_with(2.0))[name] is True
    assert verdicts(report_with(2.0, different=1))[name] is False


def test_a_bound_on_time_must_not_be_exceeded():
    name = "typing: median ms to ghost text where it follows the text"
    for value, met in ((4.9, True), (5.1, False)):
        figure = {"value": value, "low": value, "high": value, "n": 2}
        assert verdicts({"workloads": {"typing": {"ours": {"follows_ms": figure}}}})[name] is met


def test_functions_are_renamed_as_a_whole():
    body = "".join(f"    total += items[{n}]\n" for n in range(8))
    [block] = blocks(f"def add(items, n):\n    total = 0\n{body}    return total\n")
    assert (block.old, block.new) == ("items", "new_items")
    assert block.after.count("new_items") == 9 and "items" in block.before and "new_items" not in block.before
    assert list(blocks("def broken(:\n")) == []


def test_first_lines_and_similarity_are_about_text():
    assert first_line("\n\n    return a  \nb") == "    return a"
    assert similarity("abcd", "abcd") == 1.0 > similarity("abcd", "abxd") > similarity("abcd", "zzzz") == 0.0


def test_a_worker_answers_and_a_fault_is_told(capsys):
    class Peer:
        def tokenize(self, texts):
            return {"ids": [[len(text)] for text in texts]}

    lines = [{"op": "tokenize", "texts": ["abc"]}, {"op": "complete"}, {"op": "rm"}]
    replies = io.StringIO()
    worker.serve(Peer(), io.StringIO("".join(json.dumps(line) + "\n" for line in lines)), replies)
    good, bad, unknown = map(json.loads, replies.getvalue().splitlines())
    assert good["ids"] == [[3]] and good["peak_bytes"] > 0
    assert "AttributeError" in bad["error"] and "no operation 'rm'" in unknown["error"]


def test_a_peer_that_cannot_start_says_why():
    with pytest.raises(PeerError, match="there is no peer 'nobody'"):
        Worker("nobody", {}, 1, sys.executable).ready()


def test_the_plan_is_cut_by_the_limit_and_by_who_is_there():
    parts = plan.plan_of("edits", {"ours": None}, 2)
    assert list(parts) == ["ours"] and parts["ours"].limit == 2
    with pytest.raises(SystemExit, match="unknown workload"):
        plan.chosen("edits,nothing")


def test_a_full_run_is_planned_to_stay_under_an_hour():
    assert plan.estimate_minutes(plan.chosen("all"), plan.PEERS, None) < 60


def test_the_readme_gets_the_figures_between_its_markers():
    text = f"by hand\n{report.BEGIN}\nold\n{report.END}\nalso by hand\n"
    made = report.between(text, "new")
    assert "old" not in made and made.startswith("by hand\n") and made.endswith("\nalso by hand\n")
    assert report.between(made, "new") == made
    with pytest.raises(ValueError, match="needs the lines"):
        report.between("nothing", "new")


def test_a_table_has_every_system_and_its_ratio():
    records = [record("a", ours_full=([1], [[1.0, 1]]), ours_off=([1], [[2.0, 1]]))]
    text = tables.workload("edits", figures.workload_figures(records))
    assert "| ours/off | 1 | 1.00 | 2.0 |" in text and "2.00 [2.00, 2.00]" in text
    assert "0 of 1 texts differ" in text


QUALITY = {
    "date": "2026-01-01",
    "holes": {"single": 2, "multi": 1},
    "pass_rate": {"int8": {"all": {"n": 3, "passed": 2, "value": 0.667, "low": 0.3, "high": 1.0}}},
    "difference": {
        "int8 - off": {"all": {"n": 3, "value": 0.0, "low": 0.0, "high": 0.0, "only_first": 0, "only_second": 0}}
    },
    "texts_different_with_speculation": 0,
    "texts_compared_with_speculation": 3,
}  # fmt: skip
QUALITY["difference"]["int8 - off"]["all"]["p"] = 1.0


def test_a_report_has_tables_plots_and_quality(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report, "PLOTS", tmp_path / "plots")
    records = [record("a", ours_full=([1], [[1.0, 1]]), ours_off=([1], [[2.0, 1]]))]
    rows = {"right_share": 0.5, "saved_share": 0.1, "cpu_s": 0.1, "evaluated": 3.0, "keystrokes": 4}
    figure = {"value": 1.0, "low": 0.9, "high": 1.1, "n": 2}
    ours = {**rows, "follows_ms": figure, "others_ms": {"p50": 9.0, "p95": 12.0}}
    llama = {**rows, "follows_ms": None, "others_ms": None}
    typing = {"ours": ours, "llama": llama, "others_ratio": figure, "waits": {"ours": [1.0, 2.0]}}
    made = {
        "date": "2026-01-01",
        "machine": {"processor": "p", "threads": 2, "cores": 2, "instructions": "i", "python": "3"},
        "peers": {"ours": {"version": "v"}, "transformers": {"version": "v", "dtype": "float32"}},
        "not_started": {"llama": "missing"},
        "workloads": {"edits": figures.workload_figures(records), "typing": typing},
    }
    made["bounds"] = bounds.judged(made)
    readme, quality = tmp_path / "README.md", tmp_path / "quality.json"
    readme.write_text(f"by hand\n{report.BEGIN}\n{report.END}\n", encoding="utf-8")
    quality.write_text(json.dumps(QUALITY), encoding="utf-8")
    report.write(made, quality, readme)
    text = readme.read_text(encoding="utf-8")
    assert "Not started: llama (missing)" in text and "float32" in text
    assert "| met |" in text and "not measured" in text and "67 % [30 %, 100 %], n 3" in text
    assert "plots/edits.svg" in text and sorted(p.name for p in (tmp_path / "plots").iterdir()) == [
        "edits.svg",
        "typing.svg",
    ]
