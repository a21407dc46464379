"""Every line that must hold of the engine is printed, and only what was measured can hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import engine
from benchmarks.engine_bounds import Report, bounds_for

MODEL = "mine"
NAMES = [
    "t(1) / llama.cpp", "t(8) / llama.cpp", "t(32) / llama.cpp", "prefill / llama.cpp",
    "t(1) / transformers bfloat16", "kinds of passes whose bits differ", "edit scripts whose bits differ",
    "texts that forced drafts change, greedy", "texts that forced drafts change, sampled",
    "argmax equal to float32, mine", "mean KL from float32 (nats), mine",
    "argmax equal to float32, smollm2-135m-q4", "mean KL from float32 (nats), smollm2-135m-q4",
    "new tokens a keystroke", "new tokens when going back", "passes begun after a cancel",
    "a prefill chunk (ms)", "seconds from process start to ready", "peak memory of the server (GB)",
    "tokens a forward, trees, drafts free, model", "tokens a forward, trees, drafts free, truth",
    "gain with trees / without, measured costs", "misuses that are not refused",
    "misuses that change the cache",
]  # fmt: skip


def measured(name: str, report: Report) -> Report:
    [bound] = [bound for bound in bounds_for(MODEL) if bound.name == name]
    line = bound.line(report)
    assert bound.text(line).startswith("----" if line["value"] is None else "ok" if line["ok"] else "MISS")
    return line


def test_every_line_is_there_and_none_holds_unmeasured() -> None:
    assert [bound.name for bound in bounds_for(MODEL)] == NAMES
    assert not any(measured(name, {})["ok"] for name in NAMES)


@pytest.mark.parametrize(
    ("name", "report", "ok"),
    [
        ("t(1) / llama.cpp", {"costs": {"ratio": {"llama": {"t(1)": [1.14, 1.1, 1.2]}}}}, False),
        ("t(8) / llama.cpp", {"costs": {"ratio": {"llama": {"t(8)": [0.4, 0.3, 0.5]}}}}, True),
        ("misuses that are not refused", {"wrong-use": {"allowed": []}}, True),
        ("misuses that are not refused", {"wrong-use": {"allowed": ["a cycle"]}}, False),
        ("tokens a forward, trees, drafts free, truth",
         {"trees": {"truth": {"n": 9, "tokens_per_forward": {"value": 3.2, "low": 3.0, "high": 3.4}}}}, True),
        ("mean KL from float32 (nats), mine", {"error": {"mine": {"int8": {"mean_kl": 0.011}}}}, False),
    ],
)  # fmt: skip
def test_a_line_holds_by_its_limit(name: str, report: Report, ok: bool) -> None:
    assert measured(name, report)["ok"] is ok


def test_intervals_counts_and_what_stands_beside_are_shown() -> None:
    trees = {"truth": {"n": 9, "tokens_per_forward": {"value": 3.2, "low": 3.0, "high": 3.4}}}
    line = measured("tokens a forward, trees, drafts free, truth", {"trees": trees})
    assert (line["value"], line["interval"], line["n"]) == (3.2, [3.0, 3.4], 9)
    errors = {"int8": {"argmax_equal": 0.97}, "bfloat16": {"argmax_equal": 0.992}, "positions": 2000}
    line = measured("argmax equal to float32, mine", {"error": {"mine": errors}})
    assert (line["n"], line["bfloat16's"]) == (2000, 0.992)


def test_parts_that_are_not_run_are_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"model": MODEL, "wrong-use": {"n": 14, "allowed": [], "changing": []}}))
    monkeypatch.setattr(engine.Parts, "keystrokes", lambda self: {"n": 500, "mean": 2.5, "return": 1})
    assert engine.main(["--model", MODEL, "--only", "keystrokes", "--json", str(path)]) == 1
    said = capsys.readouterr().out
    assert "ok    new tokens a keystroke: 2.5 (limit <= 3), n 500" in said
    assert "ok    misuses that are not refused: 0.0" in said and "not measured (--only costs)" in said
    assert {"wrong-use", "keystrokes"} <= json.loads(path.read_text()).keys()
    assert engine.main(["--model", "another", "--only", "none", "--json", str(path)]) == 1
    assert "misuses that are not refused: not measured" in capsys.readouterr().out
