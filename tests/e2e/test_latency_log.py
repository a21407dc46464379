"""A typed session in the spawned server leaves a log that explains it."""

import asyncio

from lsp_testkit.client import spawned

from lsp_server.stats import summarise
from lsp_server.stats_log import ReadCounts, Request, read

SAID = "first_argument, second_argument, third_argument)"


def requests_of(log):
    return [record for block in read([log], ReadCounts()) for record in block if isinstance(record, Request)]


async def type_and_ask(client, text, line, character, pause_s=0.0):
    asked = 0
    for typed in text:
        client.change(typed, (line, character), (line, character))
        character += 1
        asked += 1
        await client.complete(line, character)
        await asyncio.sleep(pause_s)
    return asked


async def test_a_typed_session_leaves_a_log_that_says_what_became_of_each_request(tmp_path):
    log = tmp_path / "telemetry.jsonl"
    async with spawned(tmp_path, token_ms=5, records=str(log), script=["follows", "call(" + SAID]) as client:
        await client.initialize()
        await client.ready()
        client.open("call(")
        asked = 1
        (item,) = (await client.complete(0, 5, invoked=True))[:1]
        await asyncio.sleep(0.35)  # long enough to be read
        asked += await type_and_ask(client, SAID[:12], 0, 5)
        client.change(item["insertText"][17:], (0, 17), (0, 17))  # the rest is accepted
        client.change("\nother = ", (0, len("call(" + SAID)), (0, len("call(" + SAID)))
        _, late = client.ask(1, 8)
        client.change("x", (1, 8), (1, 8))  # supersedes it
        await asyncio.wait_for(late, 5)
        asked += 1
        await client.stop()
        await client.process.wait()
    records = requests_of(log)
    assert len(records) == len({record.id for record in records}) == asked
    summary = summarise([log])
    assert (summary["log"]["truncated"], summary["log"]["foreign"], summary["log"]["lost"]) == (0, 0, 0)
    assert summary["log"]["outcomes_without_request"] == 0
    routes = summary["overall"]["routes"]
    assert routes["generated"] == 1 and routes["typed-through"] == 12 and routes["dropped"] == 1
    assert summary["overall"]["reasons"] == {"superseded": 1}
    outcomes = summary["overall"]["outcomes"]
    assert (outcomes["offered"], outcomes["shown"], outcomes["accepted"]) == (1, 1, 1)
    assert outcomes["taken_characters"] == len(item["insertText"]) - len("call(")
    assert summary["overall"]["unbalanced"] <= 1  # one may be held up between two clocks
    assert summary["overall"]["device_memory_bytes"] is None  # the scripted engine has no device


async def test_a_share_of_completions_without_drafts_is_marked_in_the_log(tmp_path):
    log = tmp_path / "telemetry.jsonl"
    async with spawned(tmp_path, records=str(log), script=["hashes"]) as client:
        await client.initialize(settings={"speculationOffShare": 0.5, "prefetch": False, "maxDebounceMs": 0})
        await client.ready()
        client.open("")
        await type_and_ask(client, "abcdefghijklmnopqrstuvwxyzabcdefghijklmn", 0, 0)
        await client.stop()
        await client.process.wait()
    decoded = [record for record in requests_of(log) if record.forwards]
    assert {record.off_fraction for record in decoded} == {0.5}
    assert {record.speculation for record in decoded} == {True, False}  # wrong once in 2 ** 39
