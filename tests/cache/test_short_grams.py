"""Short grams: the most recent places of one or two tokens."""

from __future__ import annotations

from time import monotonic, sleep

from hypothesis import given
from hypothesis import strategies as st

from cache.ngrams import Match
from cache.short_grams import PLACES, FrozenWithShortGrams, ShortGrams, WithShortGrams


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


class OnePlace:
    """An index that knows one context."""

    def query(self, context: list[int], max_hits: int = 8) -> list[Match]:
        return [Match(4, "a.py", "here", 3)] if context[-4:] == [1, 2, 3, 4] else []

    def continuation(self, match: Match, count: int) -> list[int]:
        assert match.place == "here"
        return [77][:count]


def test_short_grams_answer_only_where_the_index_has_nothing() -> None:
    index = WithShortGrams(OnePlace())
    index.fill([([4, 50], None), ([9, 60], None)])
    assert [index.continuation(match, 3) for match in index.query([1, 2, 3, 4])] == [[77]]
    (short,) = index.query([8, 4])
    index.fill([])  # made again between a query and its continuation
    assert (short.length, index.continuation(short, 3)) == (1, [50])
    assert index.query([8, 4]) == []


class File:
    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.length = tokens, len(tokens)


class Segment:
    def __init__(self, *files: list[int], masked: tuple[int, ...] = ()) -> None:
        self.files = [File(tokens) for tokens in files]
        self.masked = set(masked)

    def tokens_of(self, file: File) -> list[int]:
        return file.tokens


class Frozen(OnePlace):
    def __init__(self) -> None:
        self.segments: tuple[Segment, ...] = ()

    @property
    def token_count(self) -> int:
        return sum(file.length for segment in self.segments for file in segment.files)


def eventually(index: FrozenWithShortGrams, context: list[int], expected: list[list[int]]) -> bool:
    until = monotonic() + 10
    while monotonic() < until:
        if [index.continuation(match, 1) for match in index.query(context)] == expected:
            return True
        sleep(0.01)
    return False


def test_short_grams_follow_the_segments_without_outdated_files() -> None:
    frozen = Frozen()
    index = FrozenWithShortGrams(frozen)  # type: ignore[arg-type]
    assert index.query([5]) == []
    frozen.segments = (Segment([5, 60]), Segment([5, 40], [5, 50], masked=(0,)))
    assert eventually(index, [5], [[60], [50]])
    frozen.segments = ()
    assert eventually(index, [5], [])


def test_a_file_masked_after_the_fill_is_not_copied_from() -> None:
    frozen = Frozen()
    index = FrozenWithShortGrams(frozen, max_tokens=80)  # type: ignore[arg-type]
    masked = Segment([9, 70], *([5, 40 + n] for n in range(10)), [5, 60])
    frozen.segments = (masked,)
    assert eventually(index, [9], [[70]])
    masked.masked = {0, 11, 10}
    assert [index.continuation(match, 1) for match in index.query([9])] == []
    assert index.continuation(index.query([5])[0], 1) == [48]


def test_origins_stay_with_their_texts_when_the_older_half_is_dropped() -> None:
    grams = ShortGrams(max_tokens=40)
    for n in range(100):
        grams.add([1000 + n, 5, 2000 + n], ("segment", n))  # type: ignore[arg-type]
        for keep in (n, n - 1):
            (match, *_) = grams.query([5], wanted=lambda origin, keep=keep: origin[1] == keep) or [None]
            assert match is None or grams.continuation(match, 1) == [2000 + keep]
            assert match is not None or keep < n


def test_merged_segments_are_taken_over() -> None:
    frozen = Frozen()
    index = FrozenWithShortGrams(frozen)  # type: ignore[arg-type]
    frozen.segments = (Segment([5, 60]), Segment([5, 40]))
    assert eventually(index, [5], [[60], [40]])
    frozen.segments = (Segment([5, 41], [5, 61]),)  # as many tokens
    assert eventually(index, [5], [[61], [41]])
