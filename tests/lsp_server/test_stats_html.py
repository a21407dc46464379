"""The HTML page: its figures are the JSON's, and it needs and runs nothing from outside."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from benchmarks.telemetry import simulated_log
from lsp_server.cli import main
from lsp_server.stats import summarise
from lsp_server.stats_html import FORMATS, look_up, page
from tests.lsp_server import latency_log as log

VOID = {"meta", "br", "img", "link"}


class Reader(HTMLParser):
    """Collects the figures, the tags and their attributes; notes tags that don't close properly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.figures: list[tuple[str, str, str]] = []
        self.tags: list[tuple[str, dict]] = []
        self.data = ""
        self.faults: list[str] = []
        self._open: list[tuple[str, dict]] = []
        self.feed(text)
        self.close()
        self.faults += [f"{tag} left open" for tag, _ in self._open]

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append((tag, dict(attributes)))

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self._open or self._open[-1][0] != tag:
            self.faults.append(f"</{tag}> after {[name for name, _ in self._open[-3:]]}")
        else:
            self._open.pop()

    def handle_data(self, data):
        _, attributes = self._open[-1] if self._open else ("", {})
        if "data-path" in attributes:
            self.figures.append((attributes["data-path"], attributes["data-as"], data))
        elif attributes.get("id") == "summary":
            self.data += data


@pytest.fixture(params=["route", "hour", "source"])
def summary(request, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"".join(simulated_log(300)))
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in log.REQUESTS)
    return summarise([path], request.param)


def test_every_figure_on_the_page_equals_the_json(summary):
    plain = json.loads(json.dumps(summary))
    figures = Reader(page(summary)).figures
    assert len(figures) > 60
    for path, form, shown in figures:
        assert shown == FORMATS[form](look_up(plain, path)), path


def test_the_page_shows_each_group_s_main_figures(summary):
    paths = {path for path, _, _ in Reader(page(summary)).figures}
    for i in range(len(summary["groups"])):
        for figure in (["n"], ["total_ms", "p50"], ["total_ms", "p99"], ["stages", "verify_ms", "mean_ms"]):
            assert json.dumps(["groups", i, *figure]) in paths
    for figure in (
        ["drafting", "alpha"],
        ["saving", "speedup"],
        ["outcomes", "accepted"],
        ["ttft_ms", "p95"],
    ):
        assert json.dumps(["overall", *figure]) in paths


def test_the_page_carries_the_whole_summary(summary):
    assert json.loads(Reader(page(summary)).data) == json.loads(json.dumps(summary))


def test_the_page_is_well_formed_and_refers_to_nothing_outside(summary):
    text = page(summary)
    reader = Reader(text)
    assert reader.faults == []
    scripts = [attributes for tag, attributes in reader.tags if tag == "script"]
    assert [script["type"] for script in scripts] == ["application/json"]  # data, never run
    assert not any(tag in ("link", "img", "iframe", "base", "object", "form") for tag, _ in reader.tags)
    assert not any({"src", "href", "srcset", "action"} & set(attributes) for _, attributes in reader.tags)
    assert not re.search(r"url\(|@import|https?:", text)
    policy = next(a["content"] for tag, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert any(attributes.get("name") == "viewport" for _, attributes in reader.tags)


def test_names_from_the_log_cannot_become_markup(tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    record = log.DRAFTED | {"language": evil, "drafted_by_source": {evil: 8}, "accepted_by_source": {evil: 5}}
    record |= {"by_match": {evil: {"3": [8, 5]}}, "model": evil, "reason": evil}
    costs = log.COSTS | {"model": evil}
    for by in ("language", "source", "model"):
        reader = Reader(page(summarise([log.write(tmp_path / "log", costs, record)], by)))
        assert reader.faults == []
        assert [tag for tag, _ in reader.tags].count("script") == 1
        assert "img" not in {tag for tag, _ in reader.tags}


def test_light_and_dark_both_set_every_colour(summary):
    style = re.search(r"<style>(.*?)</style>", page(summary), re.S)[1]
    light, dark = style.split("prefers-color-scheme: dark")
    names = set(re.findall(r"(--[a-z]+):", light))
    assert names == set(re.findall(r"(--[a-z]+):", dark.split("* {")[0]))
    used = set(re.findall(r"var\((--[a-z]+)\)", page(summary)))
    assert used <= names


def test_the_command_writes_the_page_and_an_unwritable_place_is_one_clear_line(tmp_path, capsys):
    path = log.whole(tmp_path / "log")
    assert main(["stats", str(path), "--html", str(tmp_path / "page.html")]) == 0
    assert Reader((tmp_path / "page.html").read_text(encoding="utf-8")).faults == []
    capsys.readouterr()
    assert main(["stats", str(path), "--html", str(tmp_path / "none" / "page.html")]) == 2
    assert capsys.readouterr().err.startswith("spec-complete: cannot write")


def test_an_empty_log_has_a_page_that_says_so(tmp_path):
    assert "No request in this log" in page(summarise([log.write(tmp_path / "log")]))
