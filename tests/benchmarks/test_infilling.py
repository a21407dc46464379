"""Holes: how they are cut, what fills them, and what the rates of two who fill them say."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from benchmarks import infilling
from benchmarks.infilling import OURS, PLAIN, arguments, figures, together, turned
from benchmarks.infilling_figures import difference, differences, mcnemar, rate, work
from benchmarks.infilling_holes import LONGEST_RUN, SHORTEST_RUN, Hole, holes, runs, single_lines, taken
from benchmarks.infilling_run import Kept, WorkerError, fill
from benchmarks.infilling_sandbox import run


def problem(number: int, body: str = "") -> dict[str, str]:
    return {
        "task_id": f"T/{number}",
        "prompt": f"def f{number}(a):\n",
        "canonical_solution": body
        or "    b = a\n\n    # a note\n    for i in range(2):\n        b += i\n    return b\n",
        "test": f"def check(candidate):\n    assert candidate(1) == 2, {number}\n",
        "entry_point": f"f{number}",
    }


PROBLEMS = [problem(n) for n in range(30)]


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_what_was_cut_fills_the_hole_and_passes(kind: Any) -> None:
    for hole in holes(PROBLEMS, 30, 30)[kind][:5]:
        body = PROBLEMS[int(hole.problem[2:])]
        whole = body["prompt"] + body["canonical_solution"]
        assert hole.above + hole.cut + hole.below == whole
        assert hole.above.endswith("\n") and hole.below.startswith("\n")
        assert run(hole.program(hole.cut)) == "passed"
        assert run(hole.program("    return 7")) == "failed"


def test_a_single_line_is_code_and_a_run_leaves_something_standing() -> None:
    lines = PROBLEMS[0]["canonical_solution"].splitlines(keepends=True)
    assert single_lines(lines) == [(0, 0), (3, 3), (4, 4), (5, 5)]
    for hole in holes(PROBLEMS, 30, 30)["single"]:
        assert hole.lines == 1 and not hole.cut.strip().startswith("#")
    for hole in holes(PROBLEMS, 30, 30)["multi"]:
        assert SHORTEST_RUN <= hole.lines <= LONGEST_RUN
        assert hole.cut.splitlines()[0].strip() and hole.cut.splitlines()[-1].strip()


def test_short_solutions_have_no_run_of_lines() -> None:
    assert runs(["    return 1\n"]) == runs(["    b = 1\n", "    return b\n"]) == []
    assert runs(["a\n", "\n", "b\n", "c\n"]) == [(0, 2), (2, 3)]


def test_holes_are_always_the_same_and_fewer_are_the_first_of_more() -> None:
    many, few = holes(PROBLEMS, 30, 20), holes(PROBLEMS, 4, 3)
    assert many == holes(list(PROBLEMS), 30, 20)
    assert few["single"] == many["single"][:4] and few["multi"] == many["multi"][:3]
    assert holes(PROBLEMS, 30, 20, seed=1) != many
    assert {hole.problem for hole in few["multi"]} <= {hole.problem for hole in few["single"]}


@pytest.mark.parametrize(
    ("text", "lines", "wanted", "whole"),
    [
        ("    x = 1\n    y = 2\n", 1, "    x = 1", True),
        ("    x = 1", 1, "    x = 1", False),
        ("\n\n    x = 1\n", 1, "\n\n    x = 1", True),
        ("a\n\nb\nc\n", 2, "a\n\nb", True),
        ("a\nb", 2, "a\nb", False),
        ("", 1, "", False),
        ("a\x0cb\u2028c\n", 1, "a\x0cb\u2028c", True),
    ],
)
def test_as_many_lines_are_taken_as_were_cut(text: str, lines: int, wanted: str, whole: bool) -> None:
    assert taken(text, lines) == (wanted, whole)


@given(st.text(alphabet="ab \n\r\x0c\u2028", max_size=40), st.integers(1, 4), st.integers(0, 40))
def test_what_is_taken_does_not_change_when_more_comes(text: str, lines: int, at: int) -> None:
    found, whole = taken(text[:at], lines)
    if whole:
        assert taken(text, lines) == (found, True)
        assert taken(found, lines) == (found, False)


def test_holes_of_a_problem_come_together_and_everyone_is_first_in_turn() -> None:
    found = holes(PROBLEMS, 5, 5)
    order = [hole.problem for hole in together([*found["single"], *found["multi"]])]
    assert all(a == b for a, b in zip(order[::2], order[1::2], strict=True))
    assert {turned("abc", by)[0] for by in range(3)} == {"a", "b", "c"}
    assert sorted(turned("abc", 7)) == ["a", "b", "c"]


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_test_is_the_exact_one_of_mcnemar(a: int, b: int) -> None:
    wanted = binomtest(min(a, b), a + b).pvalue if a + b else 1.0
    assert mcnemar(a, b) == pytest.approx(wanted)


def test_the_interval_holds_the_difference_and_shrinks_with_more_holes() -> None:
    draw = random.Random(2)

    def found(n: int) -> dict[str, Any]:
        first = {f"{i}": draw.random() < 0.7 for i in range(n)}
        second = {f"{i}": passed and draw.random() < 0.8 for i, passed in enumerate(first.values())}
        return difference(first, second, {name: name for name in first})

    few, many = found(40), found(900)
    for figures_ in (few, many):
        assert figures_["low"] <= figures_["value"] <= figures_["high"]
        assert figures_["only_second"] == 0
        assert figures_["value"] == pytest.approx(figures_["only_first"] / figures_["n"], abs=1e-4)
    assert many["high"] - many["low"] < (few["high"] - few["low"]) / 2
    assert 0.08 < many["value"] < 0.2 and many["p"] < 0.001


def test_holes_of_one_problem_count_as_one_for_the_interval() -> None:
    passes = {f"{i}": i < 20 for i in range(40)}
    apart = rate(passes, {name: name for name in passes})
    tied = rate(passes, {name: f"{int(name) // 10}" for name in passes})
    assert apart["value"] == tied["value"] == 0.5
    assert tied["high"] - tied["low"] > 1.5 * (apart["high"] - apart["low"])


def test_only_holes_that_both_filled_are_compared() -> None:
    found = difference(
        {"a": True, "b": True, "c": False}, {"b": False, "c": False}, dict.fromkeys("abc", "p")
    )
    assert (found["n"], found["only_first"], found["only_second"]) == (2, 1, 0)


def hole(name: str) -> Hole:
    return Hole(name, name, "single", "x = 1\n", "y = 2", "\n", "def check(f): assert y == 2", "x")


def test_pairs_of_which_one_is_missing_are_left_out() -> None:
    passes = {"a": {"h": True}, "b": {"h": False}}
    assert list(differences(passes, {"all": [hole("h")]}, [("a", "b"), ("a", "c")])) == ["a - b"]


def answer(text: str, verdict: str = "passed") -> dict[str, Any]:
    return {"text": text, "verdict": verdict, "ms": 5.0, "tokens": 6, "forwards": 3}


def test_the_report_counts_texts_that_speculation_changed_and_has_its_controls() -> None:
    chosen: Any = {"single": [hole("a"), hole("b")], "multi": [hole("c")]}
    same = {name: answer("y = 2") for name in "abc"}
    report = figures(chosen, {OURS: same, PLAIN: {**same, "b": answer("y = 3", "failed")}})
    assert report["texts_compared_with_speculation"] == 3
    assert report["texts_different_with_speculation"] == 1
    assert report["pass_rate"]["the solution"]["all"]["passed"] == 3
    assert report["pass_rate"]["nothing"]["all"]["passed"] == 0
    assert report["pass_rate"][PLAIN]["single"]["passed"] == 1
    assert report["difference"][f"{OURS} - {PLAIN}"]["multi"]["value"] == 0
    assert report["as_written"] == {OURS: 3, PLAIN: 2}
    assert report["work"][OURS] == work(same)
    assert work(same) == {"median_ms": 5.0, "tokens": 18, "tokens_per_forward": 2.0}


WORKER = """
import json, sys
json.loads(sys.stdin.readline())
print(json.dumps({"about": "fake"}), flush=True)
for number, line in enumerate(sys.stdin):
    if number == 1 and "dies" in sys.argv[0]:
        sys.exit("no more")
    print(json.dumps({"text": json.loads(line)["text"], "ms": 1.0, "tokens": 1, "forwards": 1}), flush=True)
"""


@pytest.fixture
def interpreter(tmp_path: Path) -> Any:
    """An interpreter that runs a worker without an engine, whatever script it is given."""

    def make(name: str, script: str = WORKER) -> str:
        path = tmp_path / name
        path.write_text(f"#!/usr/bin/env python3\n{script}")
        path.chmod(0o755)
        return str(path)

    return make


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, interpreter: Any) -> None:
    found = [hole(name) for name in "abc"]
    asked = [(h, "peer") for h in found]
    requests = {h.name: {"text": "y = 2" if h.name != "b" else "y = 3"} for h in found}
    kept = Kept(tmp_path / "kept.jsonl")
    with pytest.raises(WorkerError, match="no more"):
        fill(asked, requests, {"peer": (interpreter("dies"), {"threads": 1})}, kept)
    assert set(Kept(tmp_path / "kept.jsonl").of("peer", found)) == {"a"}
    with (tmp_path / "kept.jsonl").open("a") as file:
        file.write('{"peer": "pe')  # stopped while it wrote
    again = Kept(tmp_path / "kept.jsonl")
    about = fill(asked, requests, {"peer": (interpreter("lives"), {"threads": 1})}, again)
    assert about == {"peer": "fake"}
    verdicts = {name: found["verdict"] for name, found in again.of("peer", found).items()}
    assert verdicts == {"a": "passed", "b": "failed", "c": "passed"}
    again.forget()
    assert not (tmp_path / "kept.jsonl").exists()


def test_a_peer_that_does_not_start_is_left_out_and_said_why(
    tmp_path: Path, interpreter: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "gone": (interpreter("gone", "import no_such_module\n"), {"threads": 1}),
        "peer": (interpreter("peer"), {"threads": 1}),
    }
    asked = [(hole("a"), name) for name in settings]
    kept = Kept(tmp_path / "kept.jsonl")
    assert fill(asked, {"a": {"text": "y = 2"}}, settings, kept) == {"peer": "fake"}
    said = " ".join(capsys.readouterr().err.split())
    assert "gone does not start and is left out: ModuleNotFoundError" in said
    assert kept.get("gone", "a") is None


def test_unknown_peers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--peers", "int8,magic", "--gguf", "x"])
    assert "unknown peers: magic" in capsys.readouterr().err


def test_a_resumed_run_is_of_the_same_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "speculation").mkdir()
    code = tmp_path / "speculation" / "a.py"
    monkeypatch.setattr(infilling, "ROOT", tmp_path)
    code.write_text("1")
    before = infilling.key({"a": 1}, {})
    assert infilling.key({"a": 1}, {}) == before != infilling.key({"a": 2}, {})
    code.write_text("2")
    assert infilling.key({"a": 1}, {}) != before


@pytest.mark.model
@pytest.mark.slow
def test_holes_are_filled_by_the_model_with_and_without_speculation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(infilling, "benchmark_cache", lambda: kept)
    written = tmp_path / "report.json"
    ours = ["--peers", f"{OURS},{PLAIN}", "--limit", "1", "--threads", "1", "--model", "smollm2-135m-q4"]
    assert infilling.main([*ours, "--json", str(written)]) == 0
    report = json.loads(written.read_text())
    assert report["texts_compared_with_speculation"] == 2
    assert set(report["versions"]) == {OURS, PLAIN}
    assert report["pass_rate"]["the solution"]["all"]["value"] == 1
    assert not list(kept.iterdir())
