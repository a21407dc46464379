"""The prompt that the anchor will move to is evaluated in idle time, by the spawned server."""

import asyncio

from lsp_testkit.client import engine_events, spawned


async def test_the_anchor_moves_between_requests(tmp_path):
    async with spawned(tmp_path, script=["says", "answer"]) as client:
        await client.initialize(settings={"prefetch": False, "clientDebounceMs": 0})
        await client.ready()
        client.open("")
        await client.complete(0, 0)
        for line in range(3):
            client.change("x\n", (line, 0), (line, 0))
            await client.complete(line + 1, 0)
        await asyncio.sleep(0.3)
        client.change("x\n", (3, 0), (3, 0))
        await client.complete(4, 0)
        starts = engine_events(tmp_path, "start")
        assert [row["anchor_line"] for row in starts if not row["prompt_only"]] == [0, 0, 0, 0, 3]
        assert [row["anchor_line"] for row in starts if row["prompt_only"]] == [3]
