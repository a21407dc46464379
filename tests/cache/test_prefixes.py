"""The prefix cache: longest common prefix, recency, bytes."""

from hypothesis import given
from hypothesis import strategies as st

from cache.prefixes import Prefixes, common_prefix


def shared_one_by_one(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


tokens = st.lists(st.integers(0, 2), max_size=12)


@given(tokens, tokens)
def test_common_prefix_is_what_comparing_one_by_one_finds(a, b):
    assert common_prefix(a, b) == shared_one_by_one(a, b)


def test_common_prefix_of_long_prompts_that_differ_in_one_place():
    prompt = list(range(3000))
    for place in (0, 1, 1499, 1500, 2999):
        other = prompt.copy()
        other[place] = -1
        assert common_prefix(prompt, other) == place


@given(st.lists(tokens, max_size=6), tokens)
def test_the_longest_of_all_sequences_is_found(sequences, wanted):
    prefixes = Prefixes(max_bytes=10**6, bytes_per_token=1)
    for name, sequence in enumerate(sequences):
        prefixes.add(f"slot{name}", sequence)
    entry, shared = prefixes.longest(wanted)
    assert shared == max((shared_one_by_one(s, wanted) for s in sequences), default=0)
    assert (entry is None) == (shared == 0)
    if entry is not None:
        assert entry.tokens[:shared] == wanted[:shared]


def test_of_equals_the_one_that_can_be_continued_in_place_wins_then_the_latest():
    prefixes = Prefixes(max_bytes=100, bytes_per_token=1)
    same_prompt = prefixes.add("same prompt", [1, 2, 3, 9])
    same_prompt.anchored = 3
    other_place = prefixes.add("other place", [1, 2, 3, 4, 5])
    other_place.anchored = 5
    assert prefixes.longest([1, 2, 3, 7])[0] is same_prompt
    same_prompt.leased = True
    assert prefixes.longest([1, 2, 3, 7])[0] is other_place
    prefixes.touch(same_prompt)
    assert prefixes.longest([1, 2, 3, 7])[0] is same_prompt


def test_the_oldest_free_slot_goes_first_and_a_leased_one_never():
    prefixes = Prefixes(max_bytes=100, bytes_per_token=1)
    first, second, third = (prefixes.add(name) for name in "abc")
    prefixes.touch(first)
    assert prefixes.oldest() is second
    second.leased = True
    assert prefixes.oldest() is third
    third.leased = first.leased = True
    assert prefixes.oldest() is None


def test_bytes_are_counted_over_all_slots():
    prefixes = Prefixes(max_bytes=100, bytes_per_token=8)
    prefixes.add("a", [1] * 5)
    removed = prefixes.add("b", [1] * 5)
    assert prefixes.used_bytes == 80
    assert prefixes.excess_bytes(2) == -4
    assert prefixes.excess_bytes(3) == 4
    prefixes.remove(removed)
    assert prefixes.used_bytes == 40 and len(prefixes) == 1


def test_a_slot_is_covered_when_its_anchored_part_is_elsewhere_too():
    prefixes = Prefixes(max_bytes=100, bytes_per_token=1)
    old = prefixes.add("old", [1, 2, 3, 7, 8])
    old.anchored = 3
    new = prefixes.add("new", [1, 2, 3, 9])
    new.anchored = 3
    assert prefixes.covered_by(new) == [old]
    old.anchored = 4
    assert prefixes.covered_by(new) == []
    old.anchored, old.leased = 3, True
    assert prefixes.covered_by(new) == []
