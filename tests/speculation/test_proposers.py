"""Proposers: which places they find, and where they go on after a refused token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cache.ngrams import Match
from speculation.draft import DraftRequest
from speculation.evidence import KIND, KINDS, SOURCE_OF
from speculation.proposers.base import BREAK, Context, Continuation
from speculation.proposers.indexed import IndexProposer
from speculation.proposers.passages import PassageProposer, rest_of_answer
from speculation.proposers.prompt_lookup import PromptLookupProposer, SearchableText, SuffixStartProposer
from speculation.proposers.realign import RealignProposer
from tests.cache.token_index import TokenIndex

NEWLINE = 10


def following(place: Continuation, count: int = 4) -> list[int]:
    tokens = list(place.tokens[place.start : place.start + count])
    return tokens[: tokens.index(BREAK)] if BREAK in tokens else tokens


def lookup(prefix: list[int], suffix: list[int] = [], committed: list[int] = []) -> list[Continuation]:  # noqa: B006
    proposer = PromptLookupProposer()
    proposer.start(DraftRequest(prefix, suffix=suffix))
    proposer.commit(committed)
    return proposer.propose(Context([*prefix, *committed]), 8)


def test_every_place_that_ends_like_the_context_is_found_most_recent_first() -> None:
    found = lookup([1, 2, 50, 9, 1, 2, 60, 9, 1, 2])
    assert [following(place, 1) for place in found] == [[60], [50]]
    assert [place.newest for place in found] == [True, False]


def test_match_length_counts_all_tokens_that_agree() -> None:
    found = lookup([5, 6, 7, 8, 50, 9, 7, 8, 60, 5, 6, 7, 8])
    assert {following(place, 1)[0]: place.length for place in found} == {60: 2, 50: 4}


def test_one_token_is_enough_where_no_two_agree() -> None:
    assert [(p.length, following(p, 1)) for p in lookup([1, 2, 3, 7, 2])] == [(1, [3])]


def test_the_suffix_is_a_source() -> None:
    assert following(lookup([7, 1, 2], suffix=[1, 2, 3, 4])[0], 2) == [3, 4]


def test_committed_tokens_are_a_source_at_once() -> None:
    assert following(lookup([1], committed=[2, 3, 1])[0], 2) == [2, 3]


def test_nothing_is_copied_from_suffix_into_prefix() -> None:
    found = lookup([8, 9, 1, 2], suffix=[5, 1, 2])
    assert all(8 not in following(place) for place in found)


@given(
    st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 5), min_size=1, max_size=20), st.data()
)
def test_places_agree_with_a_plain_search(first: list[int], last: list[int], data: st.DataObject) -> None:
    text = SearchableText([first, last])
    for length, at in text.places(last):
        assert text.tokens[at - length : at] == last[-length:]
        longer = text.tokens[at - length - 1] if length < min(len(last), 33) else None
        assert longer is None or longer != last[-length - 1]
    expected = any(
        last[-1:] == stretch[n : n + 1] for stretch in (first, last) for n in range(len(stretch) - 1)
    )
    assert bool(text.places(last)) == expected


def test_the_suffix_is_suggested_where_a_line_has_ended() -> None:
    proposer = SuffixStartProposer(lambda token: token == NEWLINE)
    proposer.start(DraftRequest([1], suffix=[20, 21]))
    assert following(proposer.propose(Context([1, NEWLINE]), 8)[0]) == [20, 21]
    assert proposer.propose(Context([1, 2]), 8) == []


def test_a_deleted_passage_is_suggested_whole_at_first_and_by_match_later() -> None:
    proposer = PassageProposer("deleted", lambda request: [[30, 31, 32, 33]])
    proposer.start(DraftRequest([1, 2]))
    whole = proposer.propose(Context([1, 2], fresh=True), 8)
    assert KINDS[whole[0].kind] == "deleted-start" and following(whole[0]) == [30, 31, 32, 33]
    later = proposer.propose(Context([1, 2, 31]), 8)
    assert [KINDS[place.kind] for place in later] == ["deleted"] and following(later[0]) == [32, 33]


def test_the_likeliest_passage_comes_first() -> None:
    proposer = PassageProposer("deleted", lambda request: [[40], [50]])
    proposer.start(DraftRequest([1]))
    assert [following(p) for p in proposer.propose(Context([1], fresh=True), 8)] == [[50], [40]]


def test_the_rest_of_the_last_answer_is_a_passage() -> None:
    proposer = PassageProposer("answer", rest_of_answer)
    proposer.start(DraftRequest([1], previous_answer=[7, 8]))
    assert following(proposer.propose(Context([1], fresh=True), 8)[0]) == [7, 8]


class OneDocument:
    """An index over one document."""

    def __init__(self, name: str, tokens: list[int]) -> None:
        self.name, self.index = name, TokenIndex(tokens)

    def query(self, context: list[int], max_hits: int) -> list[Match]:
        return [match._replace(document=self.name) for match in self.index.query(context, max_hits)]

    def continuation(self, match: Match, count: int) -> list[int]:
        return self.index.continuation(match, count)


def test_an_index_suggests_what_follows_its_matches() -> None:
    proposer = IndexProposer("open", OneDocument("b.py", [1, 2, 3, 4]))
    proposer.start(DraftRequest([1, 2], document="a.py"))
    found = proposer.propose(Context([1, 2], fresh=True), 8)
    assert [(place.length, following(place)) for place in found] == [(2, [3, 4])]
    assert SOURCE_OF[found[0].kind] == "open"


def test_the_cursors_own_place_is_no_source() -> None:
    proposer = IndexProposer("open", OneDocument("a.py", [1, 2, 3, 4]))
    proposer.start(DraftRequest([1, 2], suffix=[3, 4], document="a.py"))
    assert proposer.propose(Context([1, 2], fresh=True), 8) == []


def followed(tokens: list[int], at: int, failed: bool) -> RealignProposer:
    realign = RealignProposer()
    realign.start(DraftRequest([]))
    realign.follow(Continuation(KIND["deleted-start"], 1, tokens, 0), at, failed)
    return realign


def test_after_a_refused_token_the_source_goes_on_where_the_new_token_occurs() -> None:
    found = followed([1, 2, 3, 4, 5, 6], 2, failed=True).propose(Context([1, 2, 5]), 8)
    assert [(KINDS[place.kind], following(place)) for place in found] == [("next-deleted", [6])]


def test_without_such_a_place_the_refused_token_was_replaced_or_another_inserted() -> None:
    found = followed([1, 2, 3, 4, 5], 2, failed=True).propose(Context([1, 2, 99]), 8)
    kinds = {KINDS[place.kind]: following(place, 2) for place in found}
    assert kinds == {"skipped-deleted": [4, 5], "inserted-deleted": [3, 4]}


def test_a_source_that_was_right_is_followed_further() -> None:
    realign = followed([1, 2, 3, 4, 5], 2, failed=False)
    assert following(realign.propose(Context([1, 2]), 8)[0], 2) == [3, 4]
    realign.commit([3])
    assert following(realign.propose(Context([1, 2, 3]), 8)[0], 2) == [4, 5]
    realign.commit([77])
    assert {KINDS[p.kind] for p in realign.propose(Context([3, 77]), 8)} == {
        "skipped-deleted",
        "inserted-deleted",
    }


def test_a_source_that_was_never_right_is_not_followed() -> None:
    realign = RealignProposer()
    realign.start(DraftRequest([]))
    realign.follow(Continuation(KIND["request"], 1, [1, 2, 3], 0), 0, failed=True)
    assert realign.propose(Context([9]), 8) == []
