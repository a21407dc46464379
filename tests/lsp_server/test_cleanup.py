"""Golden cases of the clean-up, and what holds for all of them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.cleanup import RULES, SPECIAL_TOKENS, Around, clean, deadline_cut, says_no_more
from lsp_server.documents import Place
from lsp_server.items import Offer, item
from lsp_server.status import REASONS

CASES = sorted((Path(__file__).parent / "cleanup_cases").glob("*.txt"))


def parse(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    head, *sections = path.read_bytes().decode().split("=== ")
    options = dict(line.split(": ") for line in head.splitlines())
    bodies = {}
    for section in sections:
        name, _, body = section.partition("\n")
        bodies[name] = body.removesuffix("\n")
    return options, bodies


def place_of(marked: str) -> Place:
    before, _, after = marked.rpartition("|")
    lines = before.split("\n")
    return Place(tuple((before + after).split("\n")), len(lines) - 1, len(lines[-1]))


def after_accepting(place: Place, text: str, replaced: int) -> str:
    return "\n".join(place.with_inserted(text, replaced).lines)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden_case(path):
    options, bodies = parse(path)
    place = place_of(bodies["document"])
    around = Around(
        place,
        SPECIAL_TOKENS,
        options.get("automatic", "yes") == "yes",
        options.get("complete", "yes") == "yes",
        options.get("language", ""),
    )
    cleaned = clean(bodies["model"], around)
    assert cleaned.reason == options.get("reason", "")
    if not cleaned.reason:
        assert after_accepting(place, cleaned.text, cleaned.replaced) == bodies["after accepting"]


def test_every_reason_is_explained():
    assert {code for code, _ in RULES} - {"line_ends", "indentation", "trailing_blank"} <= set(REASONS)


DOCUMENTS = st.sampled_from(
    ["foo(|)", 'x = "|"', "f(g(|))", "    a\n    |\n    b", "\tif a:\n\t\t|", "a = | + 1", "|"]
)
TEXTS = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            " ",
            "\n",
            "    ",
            ")",
            "(",
            '"',
            "]",
            "\t",
            "\r\n",
            "<|fim_middle|>",
            "<|",
            "x = 1",
            "'",
            "\\",
        ]
    ),
    max_size=14,
).map("".join)


@settings(max_examples=400, deadline=None)
@given(DOCUMENTS, TEXTS, st.booleans(), st.booleans())
def test_what_is_offered_is_always_well_formed(document, text, automatic, complete):
    place = place_of(document)
    cleaned = clean(text, Around(place, SPECIAL_TOKENS, automatic, complete))
    if cleaned.reason:
        assert cleaned.reason in REASONS
        return
    assert "\r" not in cleaned.text and cleaned.text.strip()
    assert not any(token in cleaned.text for token in SPECIAL_TOKENS)
    assert 0 <= cleaned.replaced <= len(place.after)
    made = item(Offer("1", cleaned.text, cleaned.replaced), place, "utf-32")
    start, end = made["range"]["start"], made["range"]["end"]
    assert start == {"line": place.line, "character": 0} and end["line"] == place.line
    assert end["character"] >= place.column
    replaced = place.lines[place.line][: end["character"]]
    assert made["insertText"].startswith(replaced) or made["filterText"].startswith(replaced)


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_special_token_never_shows_however_it_is_split(token):
    for size in range(1, len(token) + 1):
        for start in range(0, len("a1" + token), size):
            grown = ("a1" + token + "b")[: start + size]
            cleaned = clean(grown, Around(place_of("x = |"), SPECIAL_TOKENS, complete=False))
            assert cleaned.text in ("", "a", "a1", "a1<")


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a = 1\nb =", "a = 1"),
        ("\n    a = 1\nb", "\n    a = 1"),
        ("foo(bar, ba", "foo(bar"),
        ("return self.na", "return self"),
        ("word", "word"),
        ("call(x)", "call(x)"),
        ("", ""),
        ("a + ", "a + "),
    ],
)
def test_a_deadline_cuts_where_it_makes_sense(text, cut):
    assert deadline_cut(text) == cut


@given(TEXTS)
def test_a_deadline_answer_is_a_prefix(text):
    assert text.startswith(deadline_cut(text))


def test_generation_stops_where_the_next_line_is_repeated():
    place = place_of("    |\n    return x")
    assert says_no_more("a\n    return x\n", place)
    assert not says_no_more("a\n    return x", place)  # the line may go on
    assert not says_no_more("a\n    return xs\n", place)


def test_generation_stops_where_code_ends_as_in_a_chat():
    place = place_of("x = |\n")
    assert says_no_more("1\n```\n", place)
    assert not says_no_more("1\n```", place)  # the line may go on
    assert not says_no_more("1\n```\n", place, "markdown")


@pytest.mark.parametrize("fence", ["```", "````", "~~~", "```python", "  ```"])
def test_no_part_of_a_fence_shows_while_the_text_grows(fence):
    text = f"a1\nb2\n{fence}\nThat is how it is done."
    for size in range(1, len(text) + 1):
        cleaned = clean(text[:size], Around(place_of("|"), SPECIAL_TOKENS, complete=False))
        assert "a1\nb2\n".startswith(cleaned.text)
