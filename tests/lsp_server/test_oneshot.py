"""A script's completion by the shared engine: cut at the deadline, with the ids of what is left, and recorded."""

import asyncio
import time

import pytest
from jsonschema import Draft202012Validator
from lsp_testkit.engine import ScriptedEngine, says

from lsp_server import oneshot
from lsp_server.records import Recorder
from lsp_server.service import CompletionService
from lsp_server.telemetry import TelemetryWriter
from lsp_server.telemetry_schema import schema
from speculation.completion import Completer
from speculation.verifier.eager import EagerVerifier
from tests.conftest import random_model

TEXT = "def f(x):\n    return x\n" * 8


@pytest.fixture
def exported():
    return []


@pytest.fixture
async def ask(exported, tmp_path):
    """Asks an engine: ``await ask(engine, field=value)``."""
    writer = TelemetryWriter(tmp_path / "log.jsonl", sinks=[exported.append])
    services = []

    async def answer(engine, **params):
        services.append(CompletionService(engine))
        services[-1].start()
        future = oneshot.complete(services[-1], Recorder(writer, lambda _: None), params)
        return await asyncio.wait_for(future, 20)

    yield answer
    for service in services:
        service.stop()
    writer.close()
    assert not (tmp_path / "log.jsonl").exists()  # the script logs it


async def test_a_deadline_s_ids_are_those_of_the_text_that_is_shown(ask):
    engine = ScriptedEngine(says("first_line()\nsecond_line()\nthird_line()"), token_ms=20)
    whole = await ask(engine, text="x", offset=1)
    cut = await ask(engine, text="x", offset=1, deadline_ms=90)
    assert cut["text"] == "first_line()"
    assert (cut["finish_reason"], cut["token_ids"]) == ("deadline", [0, 1, 2])
    assert whole["finish_reason"] == "end" and len(whole["token_ids"]) > 3
    assert engine.count("step") < 2 * len(whole["token_ids"])  # no pass for what nobody waits for
    end = time.monotonic() + 20  # a generation is closed after its text is told
    while engine.count("close") < 2 and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert engine.count("close") == 2


async def test_a_deadline_s_counts_add_up_and_its_ids_spell_the_text(ask, tokenizer):
    engine = Completer(EagerVerifier(random_model(), "tiny"), tokenizer)
    asked = {"text": TEXT, "offset": len(TEXT) - 14, "max_tokens": 40, "stop": "none"}
    cut = await ask(engine, **asked, deadline_ms=0)
    metrics = cut["metrics"]
    assert cut["finish_reason"] == "deadline"
    ids = cut["token_ids"]
    assert cut["text"] in tokenizer.decode(ids) and cut["text"] not in tokenizer.decode(ids[:-1])
    assert len(cut["token_ids"]) == metrics["text_tokens"]
    assert metrics["committed"] == metrics["text_tokens"] + metrics["end_tokens"] + metrics["trimmed_tokens"]


async def test_what_is_waited_for_beyond_the_deadline_is_the_first_text(ask):
    engine = ScriptedEngine(says("hello world", piece=11), token_ms=30)
    assert (await ask(engine, text="x", offset=1, deadline_ms=1))["text"] == "hello world"


async def test_the_record_is_the_schema_s_and_reaches_the_exporters(ask, exported, tokenizer):
    engine = Completer(EagerVerifier(random_model(), "tiny"), tokenizer)
    answers = [await ask(engine, text=TEXT, offset=9, max_tokens=4, path="secret.py") for _ in "ab"]
    while len(exported) < 2:
        await asyncio.sleep(0.02)
    assert exported == [answer["metrics"] for answer in answers]
    for record in exported:
        Draft202012Validator(schema()).validate(record)
        assert record["device"] == "cpu" and record["characters"] == len(answers[0]["text"])
    assert len({record["id"] for record in exported}) == 2
    assert "secret" not in str(exported)
