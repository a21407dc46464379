"""The KV store against a verifier that is a table of token lists: what is reused, kept, and given up."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from speculation.kv_store import KVStore
from speculation.verifier.base import Capabilities, OutOfMemoryError, VerifierError


class TableVerifier:
    """A verifier whose KV cache is the list of tokens in each slot."""

    def __init__(self, croppable=True, kv_bytes_per_token=1):
        self.slots: dict[int, list[int]] = {}
        self.opened = 0
        self.room_for_copies = True
        self.capabilities = Capabilities(
            "table", "none", "cpu", "float32", 100, 10**6, True, True, croppable, 0, kv_bytes_per_token
        )

    def open_slot(self):
        self.opened += 1
        self.slots[self.opened] = []
        return self.opened

    def close_slot(self, slot):
        del self.slots[slot]

    def copy_slot(self, slot, length):
        if not self.room_for_copies:
            raise OutOfMemoryError("no room")
        if length > len(self.slots[slot]):
            raise VerifierError("copy past the end")
        self.slots[new := self.open_slot()] = self.slots[slot][:length]
        return new

    def length(self, slot):
        return len(self.slots[slot])

    def prefill(self, slot, tokens):
        self.slots[slot] += tokens

    def rollback(self, slot, length):
        if not self.capabilities.croppable or length > len(self.slots[slot]):
            raise VerifierError("cannot roll back")
        del self.slots[slot][length:]


def complete(verifier, store, prompt, answer=(), anchored=None):
    """One request, all but the last prompt token prefilled; returns how many prompt tokens were new."""
    lease = store.acquire(prompt, anchored)
    assert verifier.slots[lease.slot] == list(prompt[: lease.reused])
    chunk = list(prompt[lease.reused : -1])
    verifier.prefill(lease.slot, chunk)
    store.advance(lease, chunk)
    kept = [prompt[-1], *answer[:-1]] if answer else []
    verifier.prefill(lease.slot, kept)
    store.advance(lease, kept)
    store.release(lease)
    return len(prompt) - lease.reused


def place(name, shared=100, suffix=50):
    """A prompt of a place in a file: prefix shared with other places, then what is the place's own."""
    return [*range(shared), *([name] * suffix)]


def test_typing_on_continues_the_slot_in_place():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    prompt = place(7)
    complete(verifier, store, [*prompt, 1], answer=[2, 3, 4], anchored=150)
    assert (
        complete(verifier, store, [*prompt, 1, 2], answer=[3, 4], anchored=150) == 1
    )  # the 3; the 2 was decoded
    assert complete(verifier, store, [*prompt, 1, 5], answer=[6], anchored=150) == 1
    assert verifier.opened == 1


def test_at_least_one_token_is_left_to_evaluate():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    prompt = place(7)
    complete(verifier, store, prompt, answer=[1, 2, 3])
    lease = store.acquire(prompt)
    assert lease.reused == len(prompt) - 1
    assert verifier.slots[lease.slot] == prompt[:-1]


def test_moving_between_two_places_and_back_evaluates_nothing_again():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    here, there = [*place(7), 1], [*place(8), 2]
    complete(verifier, store, here, answer=[3], anchored=150)
    assert complete(verifier, store, there, answer=[4], anchored=150) == 51  # the shared 100 are copied
    assert complete(verifier, store, here, answer=[3], anchored=150) == 1
    assert complete(verifier, store, there, answer=[4], anchored=150) == 1


def test_without_an_anchor_the_prompt_of_another_place_is_kept_too():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    complete(verifier, store, place(7), answer=[3])
    complete(verifier, store, place(8), answer=[4])
    assert complete(verifier, store, place(7), answer=[3]) == 1


def test_an_interrupted_prefill_keeps_its_chunks():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    here, there = place(7, shared=300), place(8, shared=20)
    lease = store.acquire(here)
    verifier.prefill(lease.slot, here[:128])
    store.advance(lease, here[:128])
    store.release(lease)
    complete(verifier, store, there, answer=[1])
    assert store.acquire(here).reused == 128


def test_a_chunk_that_was_not_recorded_is_forgotten():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    lease = store.acquire(place(7))
    verifier.prefill(lease.slot, [0, 1, 2])
    store.advance(lease, [0, 1])
    store.release(lease)
    assert verifier.slots[lease.slot] == [0, 1]
    assert store.acquire(place(7)) == type(lease)(lease.slot, 2)


def test_two_generations_of_one_prompt_share_its_kv_and_not_the_slot():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    prompt = place(7)
    first = store.acquire(prompt)
    verifier.prefill(first.slot, prompt[:-1])
    store.advance(first, prompt[:-1])
    second = store.acquire(prompt)
    assert second.slot != first.slot and second.reused == len(prompt) - 1
    verifier.prefill(second.slot, [9, 9])
    store.advance(second, [9, 9])
    assert verifier.slots[first.slot] == prompt[:-1]
    store.release(first)
    store.release(second)
    assert len(store) == 1  # one copy of a prompt is enough


def test_the_least_recently_used_prompt_is_given_up_by_bytes():
    verifier = TableVerifier(kv_bytes_per_token=10)
    store = KVStore(verifier, max_bytes=10 * 500)
    places = [place(name, shared=0, suffix=150) for name in (1, 2, 3)]
    for prompt in places:
        complete(verifier, store, prompt, answer=[9])
    complete(verifier, store, places[0], answer=[9])  # 1 is now later than 2
    complete(verifier, store, place(4, shared=0, suffix=150), answer=[9])
    assert store.used_bytes <= 5000 and len(store) == 3
    assert complete(verifier, store, places[0], answer=[9]) == 1
    assert complete(verifier, store, places[1], answer=[9]) == 150


def test_a_prompt_above_the_budget_is_still_served():
    verifier = TableVerifier()
    store = KVStore(verifier, max_bytes=10)
    assert complete(verifier, store, place(7), answer=[1]) == 150
    assert store.used_bytes <= 10 and len(verifier.slots) == len(store)


def test_with_room_for_one_prompt_the_shared_part_is_taken_over_in_place():
    verifier = TableVerifier()
    store = KVStore(verifier, max_bytes=200)
    complete(verifier, store, place(7), answer=[1])
    assert complete(verifier, store, place(8), answer=[1]) == 50
    assert verifier.opened == 1


def test_without_room_for_a_copy_the_old_prompt_makes_way():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    complete(verifier, store, place(7), answer=[1])
    verifier.room_for_copies = False
    assert complete(verifier, store, place(8), answer=[1]) == 50
    assert len(store) == 1


def test_free_gives_up_all_but_the_leased_slots():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    complete(verifier, store, place(7), answer=[1])
    held = store.acquire(place(8, shared=0))
    assert store.free() == 150
    assert list(verifier.slots) == [held.slot]


def test_a_lease_that_is_over_touches_nothing():
    verifier = TableVerifier()
    store = KVStore(verifier, 10**6)
    over = store.acquire(place(7))
    verifier.prefill(over.slot, place(7)[:-1])
    store.advance(over, place(7)[:-1])
    store.release(over)
    held = store.acquire(place(7))
    assert held.slot == over.slot
    store.release(over)
    with pytest.raises(ValueError, match="lease is over"):
        store.advance(over, [1])
    assert store.acquire(place(7)).slot != held.slot  # still held


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="empty prompt"):
        KVStore(TableVerifier(), 10).acquire([])


def test_a_cache_that_cannot_be_cropped_is_continued_only_whole():
    verifier = TableVerifier(croppable=False)
    store = KVStore(verifier, 10**6)
    complete(verifier, store, [*place(7), 1], answer=[2, 3])  # holds the prompt and the 2
    assert complete(verifier, store, [*place(7), 1, 2, 3], answer=[4]) == 1
    assert complete(verifier, store, [*place(7), 1, 5], answer=[6]) == 152  # no rollback: a new slot


class KVStoreModel(RuleBasedStateMachine):
    """Requests in any order, several at once, dropped at any point, under a small budget."""

    leases = Bundle("leases")
    small = st.lists(st.integers(0, 2), min_size=1, max_size=8)

    @initialize(budget=st.integers(1, 40), croppable=st.booleans())
    def start(self, budget, croppable):
        self.verifier = TableVerifier(croppable=croppable)
        self.store = KVStore(self.verifier, budget)
        self.budget = budget
        self.held = {}

    @rule(target=leases, prompt=small, anchored=st.none() | st.integers(0, 9))
    def acquire(self, prompt, anchored):
        lease = self.store.acquire(prompt, anchored)
        assert lease.slot not in self.held
        assert 0 <= lease.reused < len(prompt)
        assert self.verifier.slots[lease.slot] == prompt[: lease.reused]
        self.held[lease.slot] = prompt[: lease.reused]
        return lease

    @rule(lease=leases, tokens=small)
    def advance(self, lease, tokens):
        self.verifier.prefill(lease.slot, tokens)
        self.store.advance(lease, tokens)
        self.held[lease.slot] = self.held[lease.slot] + tokens

    @rule(lease=consumes(leases), lost=st.lists(st.integers(0, 2), max_size=2))
    def release(self, lease, lost):
        self.verifier.prefill(lease.slot, lost)
        self.store.release(lease)
        del self.held[lease.slot]
        if not self.held:
            assert self.store.used_bytes <= self.budget

    @rule()
    def free(self):
        self.store.free()
        assert set(self.verifier.slots) == set(self.held)

    @invariant()
    def slots_hold_what_the_store_says(self):
        if not hasattr(self, "store"):
            return
        recorded = {entry.handle: entry.tokens for entry in self.store._prefixes}
        assert recorded == self.verifier.slots
        for slot, tokens in self.held.items():
            assert recorded[slot] == tokens


KVStoreModel.TestCase.settings = settings(max_examples=200, stateful_step_count=25, deadline=None)
TestKVStoreModel = KVStoreModel.TestCase
