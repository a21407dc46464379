"""Typing against the spawned server: what is superseded, cancelled, typed along, cut short and prepared."""

import asyncio
import time

import pytest
from lsp_testkit.client import URI, accepted, engine_events, spawned

TRANSPORTS = ["stdio", "socket"]
RETURN_NONE = {"result": None}


def steps(tmp_path):
    return engine_events(tmp_path, "step")


def starts(tmp_path):
    return engine_events(tmp_path, "start")


async def type_along(client, text, line, character):
    """Types characters one by one and asks after each; the items and the time of each answer in ms."""
    answers, times = [], []
    for typed in text:
        client.change(typed, (line, character), (line, character))
        character += 1
        started = time.perf_counter()
        answers.append(await client.complete(line, character))
        times.append((time.perf_counter() - started) * 1000)
    return answers, times


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("by", ["edit", "request"])
async def test_what_is_superseded_gets_null_at_once(tmp_path, transport, by):
    async with spawned(tmp_path, transport, token_ms=400, script=["says", "late answer"]) as client:
        await client.initialize()
        await client.ready()
        client.open("x = ")
        _, old = client.ask(0, 4, invoked=True)
        await asyncio.sleep(0.3)  # the model is in its first pass
        sent = time.perf_counter()
        if by == "edit":
            client.change("1", (0, 4), (0, 4))
        else:
            client.ask(0, 4)
        reply = await asyncio.wait_for(old, 2)
        assert reply["result"] is None and "error" not in reply
        assert time.perf_counter() - sent < 0.2


async def test_thirty_cancelled_requests_a_second_hardly_reach_the_model(tmp_path):
    async with spawned(
        tmp_path, token_ms=20, script=["says", "a rather long answer it is, really"]
    ) as client:
        await client.initialize()
        await client.ready()
        client.open("")
        futures = []
        for number in range(30):
            client.change("x", (0, number), (0, number))
            request_id, future = client.ask(0, number + 1)
            futures.append(future)
            await asyncio.sleep(1 / 30)
            client.cancel(request_id)
        replies = await asyncio.wait_for(asyncio.gather(*futures), 5)
        assert all(reply.get("result", "none") is None for reply in replies)
        assert len(client.replies) == len({reply["id"] for reply in client.replies})
        assert len({step["generation"] for step in steps(tmp_path)}) <= 2


async def test_decoding_stops_within_one_pass_of_a_cancellation(tmp_path):
    async with spawned(tmp_path, token_ms=50, script=["says", "word " * 100]) as client:
        await client.initialize(settings={"deadlineMs": 60_000})
        await client.ready()
        client.open("x = ")
        request_id, future = client.ask(0, 4, invoked=True)
        await asyncio.sleep(0.4)
        client.cancel(request_id)
        assert (await asyncio.wait_for(future, 1))["result"] is None
        answered = time.monotonic()
        await asyncio.sleep(0.4)
        assert sum(step["at"] > answered for step in steps(tmp_path)) <= 1
        client.notify("$/cancelRequest", {"id": request_id})  # after completion: normal
        assert not [m for m in client.said("window/logMessage") if m["type"] <= 2]


async def test_a_generation_goes_on_when_typing_agrees_even_after_a_cancellation(tmp_path):
    async with spawned(tmp_path, token_ms=60, script=["says", "result of it"]) as client:
        await client.initialize(settings={"deadlineMs": 60_000, "prefetch": False})
        await client.ready()
        client.open("x = ")
        request_id, _ = client.ask(0, 4, invoked=True)
        await asyncio.sleep(0.1)
        client.cancel(request_id)  # as VS Code does at every key
        client.change("r", (0, 4), (0, 4))
        items = await client.complete(0, 5)
        assert items[0]["insertText"] == "x = result of it"
        assert len(starts(tmp_path)) == 1
        assert (await client.records(2))[-1]["route"] == "continued"


async def test_typing_another_way_stops_the_generation(tmp_path):
    async with spawned(tmp_path, token_ms=50, script=["says", "word " * 100]) as client:
        await client.initialize(settings={"deadlineMs": 60_000})
        await client.ready()
        client.open("x = ")
        client.ask(0, 4, invoked=True)
        await asyncio.sleep(0.3)
        client.change("q", (0, 4), (0, 4))
        changed = time.monotonic()
        await asyncio.sleep(0.4)
        assert sum(step["at"] > changed + 0.02 for step in steps(tmp_path)) <= 1


async def test_twenty_keystrokes_along_the_models_text_cost_at_most_two_generations(tmp_path):
    said = "first_argument, second_argument"
    async with spawned(tmp_path, token_ms=5, script=["follows", "call(" + said]) as client:
        await client.initialize()
        await client.ready()
        client.open("call(")
        assert (await client.complete(0, 5, invoked=True))[0]["insertText"] == "call(" + said
        answers, times = await type_along(client, said[:20], 0, 5)
        assert [items[0]["insertText"] for items in answers] == ["call(" + said] * 20
        assert len(starts(tmp_path)) <= 2
        assert sorted(times)[10] < 20
        routes = [record["route"] for record in await client.records(21)]
        assert routes == ["generated"] + ["typed-through"] * 20


async def test_the_remainder_shrinks_is_dropped_and_comes_back(tmp_path):
    async with spawned(tmp_path, script=["by_line", {"x = ": "value + one"}]) as client:
        await client.initialize(settings={"prefetch": False})
        await client.ready()
        client.open("x = ")
        await client.complete(0, 4)
        client.change("va", (0, 4), (0, 4))
        assert (await client.complete(0, 6))[0]["insertText"] == "x = value + one"
        client.change("q", (0, 6), (0, 6))
        assert await client.complete(0, 7) == []
        client.change("", (0, 6), (0, 7))
        assert (await client.complete(0, 6))[0]["insertText"] == "x = value + one"
        client.change("", (0, 4), (0, 6))
        assert (await client.complete(0, 4))[0]["insertText"] == "x = value + one"
        assert len(starts(tmp_path)) == 2  # the first, and the deviation


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_after_a_partial_accept_inside_cjk_text_the_rest_needs_no_model(tmp_path, encoding):
    from lsp_testkit.client import column

    said = "日本語の文字列😀です"
    async with spawned(tmp_path, script=["says", said]) as client:
        await client.initialize(encoding, settings={"prefetch": False})
        await client.ready()
        client.open("# ")
        items = await client.complete(0, 2)
        client.notify(
            "textDocument/didPartiallyAcceptCompletion", {"item": items[0], "acceptedLength": len("# 日本語")}
        )
        client.change("日本語", (0, 2), (0, 2))
        rest = await client.complete(0, column("# 日本語", encoding))
        assert accepted("# 日本語", rest[0], encoding) == "# " + said
        assert len(starts(tmp_path)) == 1


async def test_the_next_answer_is_prepared_as_if_this_one_were_accepted(tmp_path):
    async with spawned(
        tmp_path, token_ms=5, script=["follows", "a = 1\nb = 2\nc = 3", 3], finish="line"
    ) as client:
        await client.initialize()
        await client.ready()
        client.open("a = ")
        (item,) = await client.complete(0, 4)
        await asyncio.sleep(0.4)
        generations = len(starts(tmp_path))
        assert generations == 2
        text = accepted("a = ", item)
        client.change(item["insertText"], (0, 0), (0, 4))
        assert text == item["insertText"]
        lines = text.split("\n")
        client.replace(text)
        await client.complete(len(lines) - 1, len(lines[-1]))
        # the text was typed to its end: nothing more is there, and the model was asked before, not now
        assert len(starts(tmp_path)) <= generations + 1


async def test_an_accepted_answer_is_followed_by_the_prepared_one_without_the_model(tmp_path):
    table = {"x = ": "one(", "x = one(": "two, three)"}
    async with spawned(tmp_path, token_ms=5, script=["by_line", table]) as client:
        await client.initialize()
        await client.ready()
        client.open("x = ")
        await client.complete(0, 4)
        await asyncio.sleep(0.3)
        assert len(starts(tmp_path)) == 2
        client.change("one(", (0, 4), (0, 4))
        items = await client.complete(0, 8)
        assert items[0]["insertText"] == "x = one(two, three)"
        assert [record["route"] for record in await client.records(2)][-1] == "typed-through"


async def test_a_deadline_answers_what_is_there_and_more_comes_later(tmp_path):
    said = "alpha, beta, gamma, delta, epsilon"
    async with spawned(tmp_path, token_ms=60, script=["says", said]) as client:
        await client.initialize(settings={"deadlineMs": 250, "prefetch": False})
        await client.ready()
        client.open("call(")
        started = time.perf_counter()
        items = await client.complete(0, 5, invoked=True)
        assert time.perf_counter() - started < 0.6
        shown = items[0]["insertText"].removeprefix("call(")
        assert said.startswith(shown) and 0 < len(shown) < len(said)
        assert not shown[-1].isalnum() or not said[len(shown)].isalnum()  # whole words
        await client.until(lambda: client.said("specComplete/moreAvailable"))
        assert client.said("specComplete/moreAvailable") == [{"uri": URI}]
        items = await client.complete(0, 5)
        assert items[0]["insertText"] == "call(" + said
        assert len(starts(tmp_path)) == 1


async def test_with_nothing_said_by_the_deadline_the_request_waits_on(tmp_path):
    async with spawned(tmp_path, token_ms=500, script=["says", "word"]) as client:
        await client.initialize(settings={"deadlineMs": 50})
        await client.ready()
        client.open("x = ")
        assert (await client.complete(0, 4, invoked=True))[0]["insertText"] == "x = word"


async def test_an_explicit_request_offers_several_different_candidates(tmp_path):
    async with spawned(tmp_path, script=["by_seed"]) as client:
        await client.initialize(settings={"candidates": 4, "prefetch": False, "deadlineMs": 60_000})
        await client.ready()
        client.open("x = ")
        items = await client.complete(0, 4, invoked=True, timeout_s=60)
        assert [item["insertText"] for item in items] == ["x = seed_0", "x = seed_1"]  # duplicates dropped
        asked = [(row["seed"], row["temperature"]) for row in starts(tmp_path)]
        assert asked == [(None, None), (1, 0.4), (2, 0.4), (3, 0.4)]


@pytest.mark.parametrize("fails", ["start", "step"])
async def test_a_failing_model_is_null_and_one_status_not_a_window(tmp_path, fails):
    async with spawned(tmp_path, fails=fails) as client:
        await client.initialize()
        await client.ready()
        client.open("")
        for number in range(5):
            client.change("x", (0, number), (0, number))
            assert await client.complete(0, number + 1, invoked=True) == []
        errors = [s for s in client.said("specComplete/status") if s["kind"] == "error"]
        assert len(errors) == 1 and "fails" in errors[0]["message"]
        assert not client.said("window/showMessage")


async def test_missing_weights_are_null_and_one_status(tmp_path):
    async with spawned(tmp_path, load_error="no such model: run spec-complete model pull x") as client:
        await client.initialize(notifications=("status", "didChangeStatus"))
        client.open("x = ")
        await client.until(lambda: any(s["kind"] == "error" for s in client.said("specComplete/status")))
        for _ in range(5):
            assert await client.complete(0, 4) == []
        errors = [s for s in client.said("specComplete/status") if s["kind"] == "error"]
        assert len(errors) == 1 and "model pull" in errors[0]["message"]
        assert client.said("didChangeStatus")[-1]["kind"] == "Error"
        assert not client.said("window/showMessage")


async def test_items_extend_the_selected_entry_over_its_own_range(tmp_path):
    async with spawned(tmp_path, script=["by_line", {"self.name": ".strip()"}]) as client:
        await client.initialize()
        await client.ready()
        client.open("first\nself.na")
        span = {"start": {"line": 1, "character": 5}, "end": {"line": 1, "character": 7}}
        items = await client.complete(1, 7, selected={"text": "name", "range": span})
        assert items[0]["range"] == span
        assert items[0]["insertText"] == "name.strip()"
        items = await client.complete(1, 7, selected={"text": "nature", "range": span})
        assert items == []


async def test_one_line_is_completed_in_the_middle_of_a_line_and_a_block_at_its_end(tmp_path):
    async with spawned(tmp_path) as client:
        await client.initialize()
        await client.ready()
        client.open("a =  + 1\nb = \nfoo()")
        for line, character in ((0, 4), (1, 4), (2, 4)):
            await client.complete(line, character)
        asked = [row for row in starts(tmp_path) if row["offset"] in (4, 13, 18)]
        assert {row["offset"]: row["stop"] for row in asked} == {4: "line", 13: "block", 18: "block"}
