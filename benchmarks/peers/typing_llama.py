"""llama.cpp behind an editor, in the layout of llama.vim: prefix with the typed line, suffix, and its prompt cache.

What the plugin does that makes it fast is done here, too: a text that is typed through comes from its own cache, and
the first request after a keystroke ends a quarter of a second after its first token once a line is whole. What it
does besides (a second, longer request in the background) is left out: it would only delay the next keystroke.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from benchmarks.peers.run import Asked
from benchmarks.peers.typing_session import Ghost, text_before
from benchmarks.peers.typing_tasks import Change
from lsp_server.brackets import replaced_after
from lsp_server.documents import Place
from speculation.families import Markers
from speculation.tokenizer import Tokenizer

MOST_TOKENS = 64  # as many as ours gives
QUICK_MS = 250.0  # the plugin's limit of the first request, counted from the first token
BATCH = (
    1024  # of the server as the plugin's page starts it: a quarter is for the suffix, three for the prefix
)
PREFIX_LINES, SUFFIX_LINES = 256, 64
LOOK_BACK = 128  # characters behind the cursor where a kept text may begin


class LlamaTyping:
    """The plugin's part; the worker has the model."""

    def __init__(self, worker: Asked, tokenizer: Tokenizer, markers: Markers) -> None:
        self._worker, self._tokenizer, self._markers = worker, tokenizer, markers
        self._kept: dict[tuple[str, str], str] = {}  # (text before, text after) to the answer there
        self._peak_bytes = 0
        self._line_ends = [i for i in range(tokenizer.vocab_size) if b"\n" in (tokenizer.bytes_of(i) or b"")]

    def begin(self, change: Change) -> None:
        """Another file: what was kept of the last one is no use."""
        self._kept.clear()

    def ask(self, place: Place) -> Ghost:
        """The kept text if the keystroke follows it, else a request."""
        began = perf_counter()
        blank = not (place.before + place.after).strip()
        before, after = text_before(place), place.text()[place.offset() :]
        if blank:  # the plugin asks from the start of a blank line
            before, after = before[: len(before) - place.column], after[len(place.after) :]
        content, answer = self._known(before, after), None
        if content is None:
            answer = self._worker.ask(
                "keystroke",
                prompt=self.prompt(place),
                max_tokens=MOST_TOKENS,
                quick_ms=QUICK_MS,
                ends=sorted(self._markers.end_ids),
                line_ends=self._line_ends,
            )
            self._peak_bytes = answer["peak_bytes"]
            content = self._tokenizer.decode(answer["ids"]).rstrip("\n")
        self._kept[before, after] = content
        text = content
        if blank:
            text = text[len(_common(text, place.before)) :]
        return Ghost(
            text,
            replaced_after(place.before, text, place.after),
            (perf_counter() - began) * 1e3,
            answer["cpu_s"] if answer else 0.0,
            answer["new"] + len(answer["ids"]) if answer else 0,
            _about(answer),
        )

    def accepted(self) -> None:
        """Nothing to tell."""

    def end(self) -> None:
        """Nothing to close."""

    def peak_bytes(self) -> int:
        """As the worker said last."""
        return self._peak_bytes

    def prompt(self, place: Place) -> list[int]:
        """The ids of the server's infill format for this model's family."""
        markers, encode = self._markers, self._tokenizer.encode
        assert markers.prefix is not None and markers.suffix is not None and markers.middle is not None
        blank = not place.lines[place.line].strip()
        lines = place.lines
        above = lines[max(0, place.line - PREFIX_LINES) : place.line]
        below = lines[place.line + 1 : place.line + 1 + SUFFIX_LINES]
        typed = encode("" if blank else place.before)
        suffix = encode(("" if blank else place.after) + "\n" + "\n".join(below) + "\n")
        prefix = encode("\n".join(above) + "\n")
        suffix = suffix[: max(0, BATCH // 4 - (2 + len(typed)))]
        prefix = prefix[-(3 * BATCH // 4 - 3) :]
        head: list[int] = []
        if markers.repository is not None:
            head += [markers.repository, *encode("myproject\n")]
        if markers.file is not None:
            head += [markers.file, *encode("filename\n")]
        return [*head, markers.prefix, *prefix, *typed, markers.suffix, *suffix, markers.middle]

    def _known(self, before: str, after: str) -> str | None:
        if (before, after) in self._kept:
            return self._kept[before, after]
        for back in range(1, min(LOOK_BACK, len(before)) + 1):
            content = self._kept.get((before[:-back], after))
            if content is not None:
                typed = before[len(before) - back :]
                return content[back:] if content.startswith(typed) and len(content) > back else None
        return None


def _common(a: str, b: str) -> str:
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return a[:length]


def _about(answer: Mapping[str, Any] | None) -> dict[str, Any]:
    if answer is None:
        return {"route": "kept"}
    names = ("first_ms", "line_ms", "reused", "new")
    return {"route": "generated", **{name: answer[name] for name in names}}
