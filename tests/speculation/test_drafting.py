"""The drafter over all its sources: what it drafts, what it never drafts, and what it learns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.ngrams import Match
from speculation.costs import CostTable
from speculation.draft import Draft, DraftRequest, Round
from speculation.drafting import Stores, WorkspaceDrafter, build_drafter
from speculation.policy import GainPolicy
from tests.cache.token_index import TokenIndex

FLAT = CostTable.flat()
INT8 = CostTable({1: 23, 2: 27, 4: 30, 8: 34, 16: 52, 32: 81})


class OneDocument:
    """An index over one document."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.index = TokenIndex(tokens)

    def query(self, context: Sequence[int], max_hits: int) -> list[Match]:
        return [m._replace(document="other.py") for m in self.index.query(context, max_hits)]

    def continuation(self, match: Match, count: int) -> list[int]:
        return self.index.continuation(match, count)


def accepted(draft: Draft, target: Sequence[int]) -> list[int]:
    path: list[int] = []
    for token in target:
        last = path[-1] if path else -1
        children = [n for n in range(len(draft)) if draft.parent_of(n) == last and draft.tokens[n] == token]
        if not children:
            break
        path.append(children[0])
    return path


def decode(drafter: WorkspaceDrafter, request: DraftRequest, target: Sequence[int]) -> list[Draft]:
    """Every draft of a decode whose text is ``target``."""
    drafter.start(request)
    done, drafts = 0, []
    while done < len(target):
        draft = drafter.draft(64 - done)
        path = accepted(draft, target[done : len(target) - 1])
        committed = target[done : done + len(path) + 1]
        drafter.observe(Round(draft, path, committed, 0.0, 1 + len(draft)))
        drafts.append(draft)
        done += len(committed)
    return drafts


def passages(*texts: list[int]) -> Stores:
    return Stores(deleted=lambda request: texts)


OLD = list(range(100, 140))


def test_text_that_was_deleted_here_is_drafted_at_once_and_whole() -> None:
    drafts = decode(build_drafter(passages(OLD), GainPolicy(FLAT)), DraftRequest([1, 2, 3]), OLD)
    assert len(drafts) == 2  # 32 tokens a draft
    assert {drafts[0].origin_of(n).source for n in range(len(drafts[0]))} == {"deleted"}


@pytest.mark.parametrize(
    "new",
    [
        pytest.param([*OLD[:9], 7, *OLD[10:]], id="a token replaced"),
        pytest.param([*OLD[:9], 7, *OLD[9:]], id="a token inserted"),
        pytest.param([*OLD[:9], *OLD[12:]], id="tokens left out"),
    ],
)
def test_after_an_edit_the_old_text_is_followed_again(new: list[int]) -> None:
    request = DraftRequest([1, 2, 3])
    with_realign = decode(build_drafter(passages(OLD), GainPolicy(FLAT)), request, new)
    assert len(with_realign) <= 5


def test_realignment_saves_passes_where_a_match_alone_does_not() -> None:
    old = [100, 5, 101, 6, 102, 5, 103, 6, 104, 5, 105, 6, 106, 5, 107]
    new = [100, 5, 201, 6, 102, 5, 203, 6, 104, 5, 205, 6, 106, 5, 107]
    counts = [
        len(
            decode(build_drafter(passages(old), GainPolicy(FLAT), without=without), DraftRequest([1, 2]), new)
        )
        for without in ((), ("realigned",))
    ]
    assert counts[0] < counts[1]


def test_a_draft_goes_on_past_the_end_of_its_source() -> None:
    first, second = [50, 51, 52, 53, 54], [52, 53, 54, 60, 61, 62, 63]
    stores = Stores(deleted=lambda request: [first], workspace=OneDocument(second))
    drafter = build_drafter(stores, GainPolicy(FLAT))
    drafter.start(DraftRequest([1, 2]))
    assert list(drafter.draft(16).tokens) == [50, 51, 52, 53, 54, 60, 61, 62, 63]


def test_a_store_is_used_only_if_it_is_there() -> None:
    request, target = DraftRequest([9, 50, 51]), [52, 53, 54, 60, 61]
    index = OneDocument([50, 51, 52, 53, 54, 60, 61, 62])
    for name, stores in (
        ("workspace", Stores(workspace=index)),
        ("open", Stores(open_documents=index)),
        ("history", Stores(history=index)),
    ):
        assert decode(build_drafter(stores, GainPolicy(FLAT)), request, target)[0].origin.source == name
        assert len(decode(build_drafter(stores, GainPolicy(FLAT), without=(name,)), request, target)[0]) == 0


def test_the_rest_of_the_last_answer_is_drafted() -> None:
    request = DraftRequest([1, 2], previous_answer=[70, 71, 72, 73])
    drafts = decode(build_drafter(Stores(), GainPolicy(INT8)), request, [70, 71, 72, 73, 5])
    assert list(drafts[0].tokens[:4]) == [70, 71, 72, 73]
    assert drafts[0].origin.source == "answer"


def test_nothing_is_drafted_where_nothing_repeats() -> None:
    tokens = list(range(1000, 1400))
    drafts = decode(build_drafter(Stores(), GainPolicy(INT8)), DraftRequest(tokens[:300]), tokens[300:364])
    assert sum(map(len, drafts)) == 0


def test_a_source_that_keeps_misleading_is_demoted_and_comes_back() -> None:
    drafter = build_drafter(Stores(), GainPolicy(INT8))
    lure = [token for n in range(12) for token in (5, 6, 200 + n)]  # what followed 5, 6 never comes again
    for n in range(12):
        decode(
            drafter,
            DraftRequest([*lure, 9]),
            [token for k in range(8) for token in (5, 6, 1000 + 10 * n + k)],
        )
    drafter.start(DraftRequest([*lure, 5, 6]))
    misled = len(drafter.draft(32))
    for _ in range(12):
        decode(drafter, DraftRequest([*range(300, 340), 1, 2, 300, 301]), list(range(302, 340)))
    drafter.start(DraftRequest([*range(300, 340), 1, 2, 300, 301, 302, 303]))
    assert misled <= 1
    assert len(drafter.draft(32)) >= 6


def test_learning_outlives_the_request() -> None:
    drafter = build_drafter(Stores(), GainPolicy(INT8))
    before = list(drafter.evidence.weights)
    decode(drafter, DraftRequest([1, 2, 3, 1, 2]), [9, 1, 2, 9])
    drafter.start(DraftRequest([4]))
    assert drafter.evidence.weights != before


ids = st.lists(st.integers(0, 12), max_size=24)


@given(
    prefix=ids, middle=ids, suffix=ids, deleted=ids, workspace=ids, answer=ids,
    target=st.lists(st.integers(0, 9), min_size=1, max_size=20),
    limit=st.integers(0, 40), width=st.sampled_from([1, 4]), vocabulary=st.integers(4, 14),
)  # fmt: skip
def test_no_draft_is_too_long_or_holds_what_the_model_does_not_have(
    prefix: list[int], middle: list[int], suffix: list[int], deleted: list[int], workspace: list[int],
    answer: list[int], target: list[int], limit: int, width: int, vocabulary: int,
) -> None:  # fmt: skip
    stores = Stores(
        deleted=lambda request: [deleted],
        workspace=OneDocument(workspace),
        ends_line=lambda token: token == 1,
    )
    drafter = build_drafter(stores, GainPolicy(FLAT, width=width, most_nodes=63))
    drafter.start(
        DraftRequest(prefix, middle, suffix, vocab_size=vocabulary, previous_answer=answer, document="a.py")
    )
    done = 0
    while done < len(target):
        draft = drafter.draft(limit)
        assert len(draft) <= 63
        depth = [0] * len(draft)
        for node in range(len(draft)):
            assert 0 <= draft.tokens[node] < vocabulary
            parent = draft.parent_of(node)
            assert -1 <= parent < node
            depth[node] = 1 + (depth[parent] if parent >= 0 else 0)
            assert draft.origin_of(node).match_length >= 0
        assert max(depth, default=0) <= limit
        path = accepted(draft, target[done : len(target) - 1])
        committed = target[done : done + len(path) + 1]
        drafter.observe(Round(draft, path, committed, 0.0, 1 + len(draft)))
        done += len(committed)
