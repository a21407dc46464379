"""The real model through the product's own process: one editor without the shared process, two with it."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest
from lsp_testkit.client import Client, accepted

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(280)]
URI = "file:///workspace/shapes.py"
BEFORE = '''"""Areas of simple shapes."""

import math


def circle_area(radius):
    """The area of a circle."""
    return math.pi * radius ** 2


def rectangle_area(width, height):
    """The area of a rectangle."""
    return '''
AFTER = '''


def square_area(side):
    """The area of a square."""
    return rectangle_area(side, side)
'''


@contextlib.asynccontextmanager
async def served(tmp_path, *arguments):
    pipe = asyncio.subprocess.PIPE
    environment = {
        **os.environ,
        "SPEC_COMPLETE_STATE_DIR": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "SPEC_COMPLETE_IDLE_EXIT_MINUTES": "0.05",
        "SPEC_COMPLETE_DEADLINE_MS": "60000",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "lsp_server", "serve", *arguments),
        stdin=pipe,
        stdout=pipe,
        stderr=(tmp_path / "stderr").open("ab"),
        env=environment,
        limit=1 << 24,
    )
    client = Client(process.stdout, process.stdin)
    client.process = process
    try:
        yield client
    finally:
        client.disconnect()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def completes_sensibly(client):
    text = BEFORE + AFTER
    line, character = BEFORE.count("\n"), len(BEFORE) - BEFORE.rfind("\n") - 1
    client.open(text, URI)
    (item, *_) = await client.complete(line, character, uri=URI, timeout_s=120)
    made = accepted(text, item)
    names = {}
    exec(compile(made, "shapes.py", "exec"), names)
    assert names["square_area"](3) == 9
    return item


async def test_a_real_completion_makes_the_file_run_and_its_record_adds_up(tmp_path):
    async with served(tmp_path, "--no-daemon") as client:
        result = await client.initialize()
        assert result["capabilities"]["inlineCompletionProvider"] == {}
        await client.ready(200)
        item = await completes_sensibly(client)
        typed = item["insertText"].removeprefix("    return ")[:3]
        line, character = BEFORE.count("\n"), len("    return ")
        client.change(typed, (line, character), (line, character), URI)
        (rest, *_) = await client.complete(line, character + len(typed), uri=URI)
        assert rest["insertText"] == item["insertText"]
        records = await client.records(2)
        assert [record["route"] for record in records] == ["generated", "typed-through"]
        first = records[0]
        assert first["engine"] and first["model"] == "qwen2.5-coder-0.5b-q4" and first["device"] == "cpu"
        assert first["forwards"] <= first["committed"] and first["accepted"] <= first["drafted"]
        assert first["committed"] == first["text_tokens"] + first["end_tokens"] + first["trimmed_tokens"]
        stages = sum(value for name, value in first.items() if name.endswith("_ms") and name in STAGES)
        assert stages == pytest.approx(first["total_ms"], rel=0.02, abs=1)
        await client.stop()
        assert await asyncio.wait_for(client.process.wait(), 3) == 0
    assert (tmp_path / "stderr").read_text() == ""


STAGES = {f"{stage}_ms" for stage in ("queue", "tokenise", "prefill", "draft", "verify", "sample", "post")}


async def test_two_editors_share_one_copy_of_the_real_model(tmp_path):
    async with served(tmp_path) as first, served(tmp_path) as second:
        await asyncio.gather(first.initialize(), second.initialize())
        await asyncio.gather(first.ready(200), second.ready(200))
        await completes_sensibly(first)
        await completes_sensibly(second)
        owners = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str(tmp_path).encode() in (entry / "cmdline").read_bytes():
                    owners.append(int(entry.name))
        assert len(owners) == 1
    for _ in range(100):  # nothing is left behind
        if not Path(f"/proc/{owners[0]}").exists():
            return
        await asyncio.sleep(0.1)
    os.kill(owners[0], signal.SIGKILL)
    pytest.fail("the shared process did not end")
