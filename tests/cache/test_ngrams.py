"""The index over one growing sequence finds what a plain search finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cache.ngrams import MAX_MATCH
from tests.cache.token_index import TokenIndex

small_tokens = st.lists(st.integers(0, 3), max_size=60)


def naive(tokens: list[int], context: list[int]) -> list[tuple[int, int]]:
    found = []
    for index in range(len(tokens) - 1):
        length = 0
        while length < min(len(context), MAX_MATCH, index + 1):
            if tokens[index - length] != context[-1 - length]:
                break
            length += 1
        if length:
            found.append((length, index))
    return sorted(found, reverse=True)


@given(small_tokens, small_tokens)
def test_the_longest_then_latest_places_are_found(tokens: list[int], context: list[int]) -> None:
    hits = TokenIndex(tokens).query(context, max_hits=5)
    expected = naive(tokens, context)
    if expected and expected[0][0] >= 2:
        expected = [hit for hit in expected if hit[0] >= 2]  # single tokens only where nothing longer agrees
    assert [(hit.length, hit.at) for hit in hits] == expected[:5]


@given(small_tokens, small_tokens, small_tokens)
def test_extending_and_truncating_equal_building_afresh(
    one: list[int], two: list[int], query: list[int]
) -> None:
    index = TokenIndex(one)
    index.extend(two)
    assert index.query(query) == TokenIndex(one + two).query(query)
    index.truncate(len(one))
    assert index.query(query) == TokenIndex(one).query(query)
    assert index.tokens == one


def test_the_sequences_own_end_is_no_match() -> None:
    tokens = [1, 2, 3]
    assert TokenIndex(tokens).query(tokens) == []


def test_min_length_and_skip_are_kept_to() -> None:
    index = TokenIndex([7, 1, 2, 9, 1, 2, 8, 5, 2, 6])
    assert [hit.at for hit in index.query([1, 2])] == [5, 2]
    assert [hit.at for hit in index.query([1, 2], skip=5)] == [2]
    assert index.query([4, 2], min_length=2) == []
    assert [hit.at for hit in index.query([4, 2])] == [8, 5, 2]
    assert index.query([1, 2], max_hits=0) == index.query([]) == []


def test_a_continuation_follows_its_match() -> None:
    index = TokenIndex([1, 2, 3, 4, 1, 2])
    (hit,) = index.query([1, 2])
    assert index.continuation(hit, 2) == [3, 4]
    assert index.continuation(hit, 99) == [3, 4, 1, 2]
