"""Short grams: the most recent places of one or two tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cache.short_grams import PLACES, ShortGrams


def following(grams: ShortGrams, context: list[int], count: int = 3) -> list[list[int]]:
    return [grams.continuation(match, count) for match in grams.query(context)]


def test_a_pair_is_found_before_a_single_token_and_the_most_recent_first() -> None:
    grams = ShortGrams()
    grams.add([1, 2, 30, 9, 2, 40])
    grams.add([1, 2, 50])
    assert following(grams, [7, 1, 2], 1) == [[50], [30]]
    assert following(grams, [8, 2], 1) == [[50], [40], [30]]
    assert [match.length for match in grams.query([1, 2])] == [2, 2]


def test_texts_do_not_run_into_each_other() -> None:
    grams = ShortGrams()
    grams.add([1, 2])
    grams.add([3, 4])
    assert following(grams, [2]) == []
    assert following(grams, [1]) == [[2]]


def test_the_older_half_is_dropped() -> None:
    grams = ShortGrams(max_tokens=40)
    for n in range(100):
        grams.add([1000 + n, 5, 2000 + n])
        assert len(grams) <= 42
    assert following(grams, [1099]) == [[5, 2099]]
    assert following(grams, [1000]) == []


def test_nothing_is_found_after_clearing_or_without_context() -> None:
    grams = ShortGrams()
    grams.add([1, 2])
    assert following(grams, []) == []
    grams.clear()
    assert following(grams, [1]) == []


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=6), st.lists(st.integers(0, 4), min_size=1)
)
def test_every_place_is_one(texts: list[list[int]], context: list[int]) -> None:
    grams = ShortGrams()
    for text in texts:
        grams.add(text)
    found = grams.query(context)
    assert len(found) <= PLACES
    for match in found:
        after = grams.continuation(match, 1)
        gram = [*context[-match.length :], *after]
        assert len(after) == 1
        assert any(text[n : n + len(gram)] == gram for text in texts for n in range(len(text)))
    singles = any(text[n] == context[-1] for text in texts for n in range(len(text) - 1))
    assert bool(found) == singles
