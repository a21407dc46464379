"""Two clients do ten thousand random things at once."""

import asyncio
import random
import re
from pathlib import Path

import pytest
from lsp_testkit.client import column, connected, engine_events, spawned
from lsp_testkit.engine import text_hash

ACTIONS = 10_000
PIECES = [
    "a",
    "word ",
    "\n",
    "\r\n",
    "\r",
    "é",
    "日本",
    "😀",
    "(",
    ")",
    "    ",
    "\u2028",
    "\f",
    "x = 1\n",
    "",
]
ENDS = re.compile(r"\r\n|\n|\r")


class Editor:
    """A client that edits at random and knows what its texts must be."""

    def __init__(self, client, name, encoding, seed):
        self.client = client
        self.encoding = encoding
        self.random = random.Random(seed)
        self.uris = [f"file:///workspace/{name}{number}.py" for number in range(4)]
        self.texts = {}
        self.asked = []
        self.checks = 0

    def position(self, text, offset):
        head = ENDS.split(text[:offset])
        return len(head) - 1, column(head[-1], self.encoding)

    def offset(self, text):
        at = self.random.randint(0, len(text))
        return at - 1 if text[at - 1 : at + 1] == "\r\n" else at

    async def act(self):
        uri = self.random.choice(self.uris)
        if uri not in self.texts:
            self.texts[uri] = "".join(self.random.choices(PIECES, k=20))
            self.client.open(self.texts[uri], uri)
            return
        text = self.texts[uri]
        what = self.random.random()
        if what < 0.03:
            del self.texts[uri]
            self.client.close(uri)
        elif what < 0.06:
            self.texts[uri] = "".join(self.random.choices(PIECES, k=20))
            self.client.replace(self.texts[uri], uri)
        elif what < 0.70:
            one, other = sorted((self.offset(text), self.offset(text)))
            other = (
                min(other, one + 30)
                if text[min(other, one + 30) - 1 : min(other, one + 30) + 1] != "\r\n"
                else one
            )
            new = self.random.choice(PIECES)
            self.client.change(new, self.position(text, one), self.position(text, other), uri)
            self.texts[uri] = (text[:one] + new + text[other:])[:4000]
            if len(text[:one] + new + text[other:]) > 4000:
                self.client.replace(self.texts[uri], uri)
        elif what < 0.95:
            where = self.position(text, self.offset(text))
            request_id, future = self.client.ask(*where, uri=uri, invoked=self.random.random() < 0.1)
            self.asked.append(future)
            if self.random.random() < 0.4:
                await asyncio.sleep(0)
                self.client.cancel(request_id)
        elif what < 0.99 or self.random.random() < 0.8:
            await asyncio.sleep(0)
        else:
            await self.check(uri)

    async def check(self, uri):
        """The engine is given exactly this text: at the document's end, where nothing was asked before."""
        marker = f"\n{self.random.random()} = "
        text = self.texts[uri] + marker
        end = self.position(self.texts[uri], len(self.texts[uri]))
        self.client.change(marker, end, end, uri)
        self.texts[uri] = text
        items = await self.client.complete(
            *self.position(text, len(text)), uri=uri, invoked=True, timeout_s=30
        )
        normal = ENDS.sub("\n", text)
        assert items[0]["insertText"].endswith("h" + text_hash(normal, len(normal)))
        self.checks += 1


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_ten_thousand_random_actions_of_two_clients(tmp_path):
    async with spawned(tmp_path, "socket", script=["hashes"], token_ms=1) as first:
        second = await connected(tmp_path / "s")
        editors = [Editor(first, "first", "utf-16", 1), Editor(second, "second", "utf-8", 2)]
        for editor in editors:
            quiet = {"candidates": 1, "contextFiles": False}
            await editor.client.initialize(editor.encoding, notifications=("status",), settings=quiet)
            await editor.client.ready()

        def resident():
            return int(Path(f"/proc/{first.process.pid}/statm").read_text().split()[1]) * 4096

        async def run(editor, count):
            for number in range(count):
                await editor.act()
                if number % 50 == 49:
                    await asyncio.sleep(0.005)

        await asyncio.gather(*(run(editor, ACTIONS // 4) for editor in editors))
        await asyncio.gather(*(future for editor in editors for future in editor.asked))
        before = resident()
        await asyncio.gather(*(run(editor, ACTIONS // 4) for editor in editors))
        await asyncio.wait_for(asyncio.gather(*(future for editor in editors for future in editor.asked)), 30)
        for editor in editors:
            for uri in list(editor.texts):
                await editor.check(uri)
            ids = [reply["id"] for reply in editor.client.replies]
            assert len(ids) == len(set(ids)) and not editor.client._waiting
            assert not [reply for reply in editor.client.replies if "error" in reply]
            assert editor.checks > 5
        assert resident() - before < 30e6
        assert engine_events(tmp_path, "start")
        second.disconnect()
    assert (tmp_path / "stderr").read_text() == ""
