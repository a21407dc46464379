"""The index of open documents equals a fresh one after any edits, and finds the longest, latest matches."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache import hot_index
from cache.boundaries import LINE_END, LINE_START, RULES, find_boundary, joins, split
from cache.hot_index import MAX_PLACES, HotIndex
from cache.ngrams import MAX_MATCH, Region

from .bpe import FAMILIES, Encode, encode_of

SOURCE = (Path(__file__).parents[2] / "cache" / "hot_index.py").read_text()
AWKWARD = (
    *("\n", "\n\n", "\n  \n", "\r", " ", "    ", "\t", "\x0b", "\x1c", "\x85", "\u2028", "\u00a0", "\x00"),
    *(
        "a",
        "if x:",
        "):",
        "}\n",
        "'s",
        "1234",
        "\u0301",
        "e\u0301",
        "\u1100",
        "\u1161",
        "中",
        "😀",
        "\U0010ffff",
    ),
    *("\u0338", "=", "<|endoftext|>", "\ufeff", "\u200d", "👩\u200d💻"),
)
any_text = st.lists(
    st.one_of(st.sampled_from(AWKWARD), st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
    max_size=6,
).map("".join)
edits = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 1, 2, 30, 500]), any_text), max_size=12)


@pytest.fixture(scope="module", params=FAMILIES)
def encode(request: pytest.FixtureRequest) -> Encode:
    return encode_of(request.param)


def places(index: HotIndex, document: str) -> dict[int, list[int]]:
    """The seeds with places counted from the document's beginning, so that two indexes can be compared."""
    begins, count = {}, 0
    for block in index._documents[document].blocks:
        begins[block.uid] = count
        count += len(block.tokens)
    bits, mask = hot_index._INDEX_BITS, hot_index._INDEX_MASK
    return {
        key: sorted(begins[p >> bits] + (p & mask) for p in (found if isinstance(found, list) else [found]))
        for key, found in index._seeds.items()
    }


@given(start=st.integers(0, 3000), edits=edits, block_chars=st.sampled_from([4, 32, 256]))
@settings(max_examples=60, deadline=None)
def test_tokens_and_seeds_equal_a_fresh_index_after_any_edits(
    encode: Encode, start: int, edits: list[tuple[float, int, str]], block_chars: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_index, "BLOCK_CHARS", block_chars)
        text = SOURCE[start : start + 1500]
        index = HotIndex(encode)
        index.open("d", text)
        for where, removed, new in edits:
            begin = round(where * len(text))
            end = min(len(text), begin + removed)
            text = text[:begin] + new + text[end:]
            assert index.edit("d", begin, end, new)
            assert index.text("d") == text
            assert index.tokens("d") == encode(text)
        fresh = HotIndex(encode)
        fresh.open("d", text)
        edited, expected = places(index, "d"), places(fresh, "d")
        assert edited.keys() == expected.keys()
        for key, found in expected.items():
            assert edited[key] == found or len(found) >= MAX_PLACES // 2
        index.close("d")
        assert not index._seeds and not index._blocks and index.token_count == 0


def test_typing_a_file_character_by_character_keeps_the_tokens(encode: Encode) -> None:
    index = HotIndex(encode)
    index.open("d", "")
    text = SOURCE[:1200]
    for at, character in enumerate(text):
        index.edit("d", at, at, character)
    assert index.tokens("d") == encode(text)
    for at in range(len(text) - 1, -1, -1):
        index.edit("d", at, at + 1, "")
    assert index.tokens("d") == []


def test_the_rule_is_found_for_each_family() -> None:
    assert find_boundary(encode_of("qwen")) is LINE_START
    assert find_boundary(encode_of("gpt2")) is LINE_END


def test_a_tokenizer_that_merges_across_lines_is_never_cut() -> None:
    def whole(text: str) -> list[int]:
        return [len(text)]

    assert find_boundary(whole) is None
    index = HotIndex(whole)
    index.open("d", "a\nb\n" * 100)
    index.edit("d", 3, 5, "x")
    assert index.tokens("d") == [399]


@pytest.mark.parametrize("rule", RULES)
def test_pieces_add_up_to_the_text_and_every_seam_is_a_boundary(rule: object) -> None:
    for target in (1, 40, 10_000):
        pieces = split(SOURCE, rule, target)  # type: ignore[arg-type]
        assert "".join(pieces) == SOURCE
        assert all(joins(a, b, rule) for a, b in pairwise(pieces))  # type: ignore[arg-type]


def naive(tokens: list[int], context: list[int]) -> list[tuple[int, int]]:
    """(length, index of the last agreeing token) of every place with at least three agreeing tokens."""
    found = []
    for index in range(len(tokens)):
        length = 0
        while length < min(MAX_MATCH, len(context)) and index - length >= 0:
            if tokens[index - length] != context[-1 - length]:
                break
            length += 1
        if length >= 3:
            found.append((length, index))
    return sorted(found, reverse=True)


@given(st.lists(st.sampled_from(["ab\n", "cd ef\n", "  x = 1\n", "\n"]), min_size=8, max_size=60), st.data())
@settings(max_examples=60, deadline=None)
def test_matches_are_the_longest_ones(lines: list[str], data: st.DataObject) -> None:
    encode = encode_of("qwen")
    index = HotIndex(encode)
    index.open("d", "".join(lines))
    tokens = index.tokens("d")
    end = data.draw(st.integers(3, max(3, len(tokens))))
    context = tokens[max(0, end - 40) : end]
    expected = naive(tokens, context)
    hits = index.query(context, max_hits=1000)
    if len(expected) <= MAX_PLACES:
        assert sorted((hit.length for hit in hits), reverse=True) == [length for length, _ in expected]
    assert [hit.length for hit in hits] == sorted((hit.length for hit in hits), reverse=True)
    for hit in hits:
        following = index.continuation(hit, 10)
        starts = [i for n, i in expected if n == hit.length and tokens[i + 1 : i + 11] == following]
        assert starts


def test_of_equal_matches_the_latest_edit_comes_first() -> None:
    index = HotIndex(encode_of())
    index.open("old", "alpha beta gamma = one\n")
    index.open("new", "alpha beta gamma = two\n")
    context = encode_of()("alpha beta gamma =")
    assert [hit.document for hit in index.query(context)] == ["new", "old"]
    index.edit("old", 0, 0, "\n")
    assert [hit.document for hit in index.query(context)] == ["old", "new"]


def test_a_continuation_runs_over_blocks_and_ends_with_the_document() -> None:
    encode = encode_of()
    index = HotIndex(encode)
    index.open("d", SOURCE)
    tokens = index.tokens("d")
    hit = index.query(tokens[:40], max_hits=1)[0]
    assert index.continuation(hit, 500) == tokens[40:540]
    assert index.continuation(hit, 10**6) == tokens[40:]


def test_the_cursors_surroundings_can_be_left_out() -> None:
    encode = encode_of()
    index = HotIndex(encode)
    filler = "".join(f"value_{i} = {i}\n" for i in range(60))
    text = f"needle in the stack = 1\n{filler}needle in the stack = 2\n"
    index.open("d", text)
    context = encode("needle in the stack =")
    assert len(index.query(context)) == 2
    near_end = index.query(context, exclude=Region("d", len(text) - 30, len(text)))
    assert [index.continuation(hit, 2) for hit in near_end] == [encode(" = 1")[1:]]
    assert index.query(context, exclude=Region("d")) == []
    assert len(index.query(context, exclude=Region("other"))) == 2


def test_short_contexts_find_nothing() -> None:
    index = HotIndex(encode_of())
    index.open("d", "a b c d\n")
    assert index.query([]) == index.query([1, 2]) == []


def test_closing_and_removing_a_root_forget_completely() -> None:
    encode = encode_of()
    index = HotIndex(encode)
    index.open("a", SOURCE, root="/one")
    index.open("b", SOURCE, root="/two")
    index.remove_root("/one")
    assert index.documents() == ["b"]
    context = index.tokens("b")[:50]
    assert {hit.document for hit in index.query(context)} == {"b"}
    index.close("b")
    index.close("b")
    assert index.query(context) == []
    assert not index.edit("a", 0, 0, "x")


def test_one_root_alone_can_be_asked() -> None:
    index = HotIndex(lambda text: list(text.encode()))
    index.open("/one/a", "some_thing(one)", root="/one")
    index.open("/two/b", "some_thing(two)", root="/two")
    context = list(b"some_thing(")
    assert [match.document for match in index.query(context, root="/one")] == ["/one/a"]
    assert index.query(context, root="/three") == []
    assert len(index.query(context)) == 2
    assert index.documents("/two") == ["/two/b"]


def test_opening_again_replaces() -> None:
    index = HotIndex(encode_of())
    index.open("a", SOURCE)
    index.open("a", "x = 1\n")
    assert index.text("a") == "x = 1\n"
    assert index.token_count == len(index.tokens("a"))


def test_memory_is_bounded_and_the_least_recently_touched_goes_first() -> None:
    encode = encode_of()
    size = len(encode(SOURCE))
    index = HotIndex(encode, max_tokens=3 * size + 10)
    for name in "abc":
        index.open(name, SOURCE)
    index.edit("a", 0, 0, "#")
    index.open("d", SOURCE)
    assert "b" not in index and set(index.documents()) == {"a", "c", "d"}
    assert index.token_count <= 3 * size + 10


def test_a_document_larger_than_the_bound_stays_alone() -> None:
    index = HotIndex(encode_of(), max_tokens=10)
    index.open("a", SOURCE)
    index.open("b", SOURCE)
    assert index.documents() == ["b"]


def test_a_minified_line_costs_no_tokens_and_nothing_matches_across_it() -> None:
    encode = encode_of()
    index = HotIndex(encode)
    long = "x" * 20_000
    head = "".join(f"value_{i} = {i}\n" for i in range(30)) + "alpha = 1\n"
    text = f"{head}{long}\nbeta = 2\ngamma = 3\n"
    index.open("d", text)
    assert index.text("d") == text
    assert "x" * 100 not in str(index.tokens("d"))
    hit = index.query(encode(head)[:20], max_hits=1)[0]
    assert 0 < len(index.continuation(hit, 10_000)) <= len(encode(head)) - 20
    start = text.index(long)
    index.edit("d", start, start + len(long), "short")
    assert index.tokens("d") == encode(text.replace(long, "short"))


def test_queries_from_another_thread_see_whole_edits() -> None:
    encode = encode_of()
    index = HotIndex(encode)
    index.open("d", SOURCE)
    context = encode(SOURCE[:400])[:60]
    failures: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                for hit in index.query(context):
                    index.continuation(hit, 64)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    text = SOURCE
    rng = random.Random(5)
    for _ in range(400):
        at = rng.randrange(len(text))
        end = min(len(text), at + rng.choice([0, 1, 300]))
        new = rng.choice(["x", "\n", "def f():\n", SOURCE[at : at + 300]])
        index.edit("d", at, end, new)
        text = text[:at] + new + text[end:]
    done.set()
    thread.join()
    assert not failures
    assert index.tokens("d") == encode(text)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b-q4", "smollm2-135m-q4"])
def test_real_tokenizers_keep_to_their_rule(name: str) -> None:
    from cache import models
    from speculation.tokenizer import Tokenizer

    encode = Tokenizer.from_file(models.resolve(name).tokenizer).encode
    index = HotIndex(encode)
    assert index._boundary is not None
    rng = random.Random(1)
    text = SOURCE
    index.open("d", text)
    for _ in range(400):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice([0, 0, 1, 5, 200]))
        new = "".join(rng.choice(AWKWARD) for _ in range(rng.randrange(4)))
        text = text[:at] + new + text[end:]
        index.edit("d", at, end, new)
        assert index.tokens("d") == encode(text)
