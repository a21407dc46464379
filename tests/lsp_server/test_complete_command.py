"""`spec-complete complete` without a model: every kind of bad input is one clear line and the right exit code."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from lsp_server.cli import main
from lsp_server.stats import summarise
from lsp_server.telemetry_schema import schema
from speculation.completion import Completer
from speculation.tokenizer import Tokenizer
from speculation.verifier.eager import EagerVerifier
from tests.conftest import random_model, tokenizer_definition


@pytest.fixture(autouse=True)
def state(tmp_path_factory, monkeypatch):
    """Where the log goes; no setting of the machine applies."""
    place = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", str(place))
    monkeypatch.setenv("SPEC_COMPLETE_SETTINGS", str(place / "none.json"))
    return place


def logged(state):
    """The lines of the latency log, each valid by the schema."""
    path = state / "log" / "telemetry.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in lines:
        Draft202012Validator(schema()).validate(line)
    return lines


@pytest.fixture
def small_engine(monkeypatch):
    """The command's own loading, with a small random model in the place of a pulled one."""
    completer = Completer(
        EagerVerifier(random_model(), "tiny"), Tokenizer(tokenizer_definition()), prompt_tokens=200
    )
    monkeypatch.setattr("speculation.loading.load_engine", lambda *_, **__: completer)
    return completer


def run(capsys, *arguments):
    try:
        code = main(["complete", "--no-daemon", *map(str, arguments)])
    except SystemExit as leaving:  # argparse
        code = leaving.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def piped(data):
    """Standard input that holds these bytes."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")


def test_bad_input_is_one_clear_line_on_stderr_and_exit_code_2(tmp_path, capsys, small_engine):
    binary, latin, good = tmp_path / "b.bin", tmp_path / "l.py", tmp_path / "g.py"
    binary.write_bytes(b"abc\0def")
    latin.write_bytes("é = 1".encode("latin-1"))
    good.write_text("a = 1\nb = 2\n")
    cases = {
        "no such file": (tmp_path / "missing.py", "--at", "1:1"),
        "is a directory": (tmp_path, "--at", "1:1"),
        "is a binary file": (binary, "--at", "1:1"),
        "is not UTF-8": (latin, "--at", "1:1"),
        "the file has 3 lines": (good, "--at", "9:1"),
        "has columns 1 to 6": (good, "--at", "1:99"),
        "write LINE:COL": (good, "--at", "one"),
        "counted from 1": (good, "--at", "1"),
        "the file has": (good, "--at", "0:1"),
        "give FILE and --at": (good,),
        "temperature": (good, "--at", "1:1", "--temperature", "-1"),
        "top-p": (good, "--at", "1:1", "--top-p", "7"),
        "--max-tokens": (good, "--at", "1:1", "--max-tokens", "0"),
        "--anchor": (good, "--at", "1:1", "--anchor", "3"),
        "no such directory": (good, "--at", "1:1", "--root", tmp_path / "nowhere"),
    }
    for message, arguments in cases.items():
        code, out, err = run(capsys, *arguments)
        assert code == 2 and not out and message in err and err.count("\n") == 1, (message, err)


def test_an_unknown_model_is_exit_code_3_and_says_which_are_known(tmp_path, capsys):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    code, out, err = run(capsys, file, "--at", "1:1", "--model", "no-such-model")
    assert code == 3 and not out and "qwen2.5-coder-0.5b-q4" in err
    code, out, err = run(capsys, file, "--at", "1:1", "--model", tmp_path / "model.gguf")
    assert code == 3 and err.count("\n") == 1


def test_json_adds_up(tmp_path, capsys, small_engine):
    file = tmp_path / "a.py"
    file.write_text("def f(x):\n    return x\n" * 8)
    code, out, _ = run(capsys, file, "--at", "4:9", "--json", "--max-tokens", "9")
    answer = json.loads(out)
    m = answer["metrics"]
    assert code == 0 and set(answer) == {"text", "finish_reason", "model", "engine", "token_ids", "metrics"}
    assert m["committed"] == m["text_tokens"] + m["end_tokens"] + m["trimmed_tokens"]
    assert len(answer["token_ids"]) == m["text_tokens"]
    assert m["forwards"] <= m["committed"] and m["drafted"] >= m["accepted"]
    assert m["new_tokens"] + m["reused_tokens"] == m["prompt_tokens"]
    stages = [m[f"{s}_ms"] for s in ("queue", "tokenise", "prefill", "draft", "verify", "sample", "post")]
    assert abs(m["total_ms"] - sum(stages)) <= max(0.02 * m["total_ms"], 1)


def test_the_same_seed_gives_the_same_text_with_speculation_on_and_off(tmp_path, capsys, small_engine):
    file = tmp_path / "a.py"
    file.write_text("def f(x):\n    return x\n" * 8)
    common = (file, "--at", "4:9", "--max-tokens", "20", "--temperature", "0.9", "--seed", "5")
    on = run(capsys, *common)
    off = run(capsys, *common, "--speculation", "off")
    assert on[:2] == off[:2] and on[0] == 0
    assert run(capsys, *common[:-1], "6")[1] != on[1]


def test_batch_answers_every_line_and_reports_the_bad_ones(tmp_path, capsys, monkeypatch, small_engine):
    file = tmp_path / "a.py"
    file.write_text("def f(x):\n    return x\n")
    lines = [
        {"file": str(file), "at": "2:5", "id": 1, "max-tokens": 4},
        {"text": "a = 1\nb", "path": "x.py", "at": "2:2", "max_tokens": 4},
        {"file": "nowhere.py", "at": "1:1", "id": 3},
        {"file": str(file), "at": "1:1", "colour": "red"},
        {"file": str(file), "at": "1:1", "root": 5},
        {"file": str(file), "at": "1:1", "deadline": "abc"},
        {"file": str(file), "at": "1:1", "seed": 1.5},
        {"file": str(file), "at": "1:1", "speculation": "yes"},
        {"file": str(file), "at": "1:1", "max_tokens": True},
        {"file": str(file), "at": "9" * 5000 + ":1"},
    ]
    text = "\n".join([*map(json.dumps, lines), "not json", "[1]", ""])
    monkeypatch.setattr(sys, "stdin", piped(text.encode() + b"\n\xff\n"))
    code, out, _ = run(capsys, "--batch")
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(answers) == 13
    assert answers[0]["id"] == 1 and "text" in answers[0] and "text" in answers[1]
    assert "no such file" in answers[2]["error"] and answers[2]["id"] == 3
    assert "colour" in answers[3]["error"] and all("error" in a for a in answers[4:])


def test_standard_input_and_windows_line_ends(tmp_path, capsys, monkeypatch, small_engine):
    text = "a = 1\nb = 2\nc"
    answers = []
    for version in (text, text.replace("\n", "\r\n")):
        monkeypatch.setattr(sys, "stdin", piped(version.encode()))
        answers.append(run(capsys, "-", "--path", "x.py", "--at", "3:2", "--max-tokens", "6"))
    assert answers[0][:2] == answers[1][:2] and answers[0][0] == 0 and "\r" not in answers[0][1]


@pytest.mark.parametrize("data", [b"\xff", b"a\0b"])
def test_standard_input_that_is_no_text_is_refused_like_a_file(data, capsys, monkeypatch, small_engine):
    monkeypatch.setattr(sys, "stdin", piped(data))
    code, out, err = run(capsys, "-", "--at", "1:1")
    assert code == 2 and not out and "standard input" in err and err.count("\n") == 1


def test_a_batch_file_may_hold_any_line_separator_in_its_strings(tmp_path, capsys, small_engine):
    batch = tmp_path / "tasks.jsonl"
    line = {"text": "a = 1\u2028\x0cb\x85 = 2\nc", "at": "2:2", "max_tokens": 4}
    batch.write_text(json.dumps(line, ensure_ascii=False) + "\n")
    code, out, _ = run(capsys, "--batch", batch)
    assert code == 0 and [set(json.loads(x)) & {"text", "error"} for x in out.split("\n") if x] == [{"text"}]


def test_one_failing_line_does_not_end_a_batch(capsys, monkeypatch, small_engine):
    whole = small_engine.start

    def start(request):
        if "boom" in request.text:
            raise MemoryError("no room")
        return whole(request)

    monkeypatch.setattr(small_engine, "start", start)
    lines = [{"text": text, "at": "1:2", "max_tokens": 3} for text in ("a = 1", "boom", "b = 2")]
    monkeypatch.setattr(sys, "stdin", piped("\n".join(map(json.dumps, lines)).encode()))
    code, out, _ = run(capsys, "--batch")
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 4 and ["error" in a for a in answers] == [False, True, False]


def test_code_is_printed_as_it_is_or_not_at_all(monkeypatch):
    from lsp_server.commands.complete import InputError, _write_exactly

    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii", errors="replace"))
    with pytest.raises(InputError, match="PYTHONUTF8=1, or use --json"):
        _write_exactly("name = 'größe'")
    assert out.getvalue() == b""
    _write_exactly("name = 1")
    assert out.getvalue() == b"name = 1"


def test_answers_as_json_are_whole_in_any_encoding(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", piped(json.dumps({"id": "größe → 日本"}).encode()))
    _, out, _ = run(capsys, "--batch")
    assert out.isascii() and json.loads(out)["id"] == "größe → 日本"


def test_a_deadline_cuts_to_a_beginning_of_the_whole_answer(tmp_path, capsys, small_engine):
    file = tmp_path / "a.py"
    file.write_text("def f(x):\n    return x\n" * 8)
    whole = run(capsys, file, "--at", "4:9", "--max-tokens", "40")[1]
    code, out, _ = run(capsys, file, "--at", "4:9", "--max-tokens", "40", "--deadline", "0", "--json")
    answer = json.loads(out)
    assert code == 0 and whole.startswith(answer["text"])
    assert answer["finish_reason"] == "deadline" or answer["text"] == whole
    m = answer["metrics"]
    assert len(answer["token_ids"]) == m["text_tokens"]
    assert m["committed"] == m["text_tokens"] + m["end_tokens"] + m["trimmed_tokens"]


def test_out_of_memory_is_exit_code_4(tmp_path, capsys, monkeypatch, small_engine):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")

    def no_room(*_):
        raise MemoryError

    monkeypatch.setattr(small_engine.verifier, "verify", no_room)
    code, out, err = run(capsys, file, "--at", "1:1")
    assert code == 4 and not out and "out of memory" in err and err.count("\n") == 1


def test_a_completion_leaves_its_record_in_the_servers_log(tmp_path, capsys, state, small_engine):
    file = tmp_path / "a.py"
    file.write_text("def f(x):\n    return x\n" * 8)
    answers = [json.loads(run(capsys, file, "--at", "4:9", "--json", "--max-tokens", "5")[1]) for _ in "ab"]
    lines = logged(state)
    assert [line["kind"] for line in lines] == ["costs", "request"] * 2
    records = [line for line in lines if line["kind"] == "request"]
    assert records == [answer["metrics"] for answer in answers]
    assert len({record["id"] for record in records}) == 2
    assert {(record["trigger"], record["device"]) for record in records} == {("command", "cpu")}
    assert "a.py" not in json.dumps(lines) and "return" not in json.dumps(lines)
    summary = summarise([state / "log" / "telemetry.jsonl"])
    assert summary["overall"]["routes"] == {"generated": 2}
    assert summary["overall"]["saving"]["estimated_requests"] == 2


def test_every_line_of_a_batch_is_logged_the_one_that_fails_as_well(capsys, monkeypatch, state, small_engine):
    whole = small_engine.start

    def start(request):
        if "boom" in request.text:
            raise MemoryError("no room")
        return whole(request)

    monkeypatch.setattr(small_engine, "start", start)
    lines = [{"text": text, "at": "1:2", "max_tokens": 3} for text in ("a = 1", "boom", "b = 2")]
    monkeypatch.setattr(sys, "stdin", piped("\n".join(map(json.dumps, lines)).encode()))
    assert run(capsys, "--batch")[0] == 4
    _, *records = logged(state)
    assert [(r["route"], r["reason"], r["oom_count"]) for r in records] == [
        ("generated", "", 0), ("dropped", "failed", 1), ("generated", "", 0),
    ]  # fmt: skip


def test_the_log_is_off_where_the_setting_says_so(tmp_path, capsys, monkeypatch, state, small_engine):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    monkeypatch.setenv("SPEC_COMPLETE_TELEMETRY_LOG", "off")
    assert run(capsys, file, "--at", "1:1", "--max-tokens", "2")[0] == 0
    assert logged(state) == []
    monkeypatch.delenv("SPEC_COMPLETE_TELEMETRY_LOG")
    (state / "none.json").write_text('{"telemetryLog": false}')
    assert run(capsys, file, "--at", "1:1", "--max-tokens", "2")[0] == 0
    assert logged(state) == []


def test_text_is_logged_only_with_trace(tmp_path, capsys, monkeypatch, state, small_engine):
    file = tmp_path / "a.py"
    file.write_text("secret = 1\n")
    monkeypatch.setenv("SPEC_COMPLETE_TRACE", "text")
    text = run(capsys, file, "--at", "1:7", "--max-tokens", "2")[1]
    trace = logged(state)[-1]["trace"]
    assert trace == {"path": str(file), "before": "secret", "text": [text]}


def test_a_log_that_cannot_be_written_does_not_break_a_completion(
    tmp_path, capsys, monkeypatch, small_engine
):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    monkeypatch.setenv("SPEC_COMPLETE_STATE_DIR", str(file / "state"))
    code, out, err = run(capsys, file, "--at", "1:1", "--max-tokens", "3")
    assert code == 0 and out and "Error" not in err


HOSTILE = (
    "cache",
    "speculation",
    "lsp_server",
    "torch.py",
    "transformers.py",
    "pygls.py",
    "json.py",
    "argparse.py",
)


@pytest.mark.parametrize(
    "start", [[f"{sys.prefix}/bin/spec-complete"], [sys.executable, "-I", "-m", "lsp_server"]]
)
def test_a_workspace_is_never_imported_from(start, tmp_path):
    trap = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\nraise SystemExit('hostile code ran')\n"
    for name in HOSTILE:
        if name.endswith(".py"):
            (tmp_path / name).write_text(trap)
            continue
        (tmp_path / name).mkdir()
        for module in ("__init__.py", "models.py", "cli.py", "__main__.py"):
            (tmp_path / name / module).write_text(trap)
    (tmp_path / "sitecustomize.py").write_text(trap)
    for arguments in (["--help"], ["model", "list"], ["complete", "cache/models.py", "--at", "99:1"]):
        done = subprocess.run([*start, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert "hostile" not in done.stdout + done.stderr and done.returncode in (0, 2)
    assert not list(tmp_path.rglob("ran"))


def test_complete_module_imports_neither_torch_nor_transformers():
    code = "import sys, lsp_server.commands.complete; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False False"
