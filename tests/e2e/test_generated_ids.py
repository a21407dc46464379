"""What the next request is told of the last answer."""

from lsp_testkit.client import engine_events, spawned


async def test_generated_ids_are_handed_on_as_forced_middle_and_as_a_draft(tmp_path):
    table = {"x = ": "one_two", "x = one_t": "hree", "x = oq": "uick"}
    async with spawned(tmp_path, script=["by_line", table]) as client:
        await client.initialize(settings={"prefetch": False})
        await client.ready()
        client.open("x = ")
        await client.complete(0, 4)
        client.change("oq", (0, 4), (0, 4))
        await client.complete(0, 6)
        first, second = engine_events(tmp_path, "start")
        assert first["forced_ids"] == first["previous_answer"] == []
        assert second["forced_ids"] == second["previous_answer"] == [0, 1]
        assert first["anchor_line"] == second["anchor_line"] == 0
