"""The terminal view: whatever a log says is shown as it is, and a terminal does not obey it."""

from __future__ import annotations

import pytest

from lsp_server.cli import main
from tests.lsp_server import latency_log as log


def records(text: str):
    """A log that says this wherever it can say something."""
    yield log.COSTS | {"model": text, "engine": text, "device": text}
    said = {"language": text, "model": text, "engine": text, "device": text, "at": text}
    yield log.DRAFTED | said | {"by_match": {text: {"3": [4, 2]}}, "sampling": {text: 1.0}}
    yield log.DROPPED | said | {"reason": text}


@pytest.mark.parametrize("by", ["route", "source", "language", "model", "hour"])
@pytest.mark.parametrize("text", ["[/b]", "[red]x", "[/red]x", ":smile:", "[link=http://x]y[/link]", "\\[/]"])
def test_markup_in_a_log_is_shown_as_it_is(tmp_path, capsys, monkeypatch, by, text):
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["stats", str(log.write(tmp_path / "log", *records(text))), "--by", by]) == 0
    shown = capsys.readouterr().out
    places = ["dropped for: {}", "{} 1", "{} · {} · {}"]  # a reason, sampling, an engine
    for place in places:
        assert place.replace("{}", text) in shown


@pytest.mark.parametrize("by", ["route", "source", "language", "model", "hour"])
@pytest.mark.parametrize(
    "control",
    ["\x00", "\x07", "\b", "\r", "\n", "\x1b[2J", "\x1b]0;t\x07", "\x7f", "\x9b2J", "\u202e"],
)
def test_control_characters_in_a_log_are_spelled_out(tmp_path, capsys, monkeypatch, by, control):
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["stats", str(log.write(tmp_path / "log", *records(f"a{control}z"))), "--by", by]) == 0
    shown = capsys.readouterr().out
    assert all(c.isprintable() or c in "\n\N{NO-BREAK SPACE}" for c in shown)
    assert f"dropped for: a\\{ascii(control)[2:-1]}z (1)" in shown
