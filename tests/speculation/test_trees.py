"""Trees and chains: which nodes are grown, and in which order they are drafted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from speculation.evidence import KIND, Branch
from speculation.proposers.base import Continuation
from speculation.trees import Node, as_draft, grow_chain, grow_tree


def branch(token: int, probability: float) -> Branch:
    place = Continuation(KIND["request"], 2, [token], 0)
    return Branch(probability, token, [place, place], 1.0, {}, 1, False)


class Scripted:
    """Grows from a table: path of tokens -> options."""

    def __init__(
        self, table: dict[tuple[int, ...], list[tuple[int, float]]], bad: frozenset[int] = frozenset()
    ) -> None:
        self.table, self.bad = table, bad

    def options(self, path: tuple[int, ...]) -> list[Branch]:
        return [branch(token, p) for token, p in self.table.get(path, ())]

    def after(self, node: Node) -> tuple[list[Branch], int]:
        return self.options(tuple(node.path())), node.segment

    def agreed(self, places: Sequence[Continuation], taken: int) -> Iterator[tuple[int, float]]:
        return iter(())

    def forbidden(self, token: int) -> bool:
        return token in self.bad


TABLE = {
    (): [(1, 0.6), (2, 0.3)],
    (1,): [(3, 0.5), (4, 0.4)],
    (2,): [(5, 0.9)],
    (1, 3): [(6, 0.5)],
    (2, 5): [(7, 0.9)],
}


def test_the_likeliest_nodes_are_grown_first() -> None:
    growth = Scripted(TABLE)
    nodes = grow_tree(growth.options(()), growth, depth=8, most=5, width=4)
    assert [(node.token, round(node.reach, 3)) for node in nodes] == [
        (1, 0.6), (2, 0.3), (3, 0.3), (5, 0.27), (7, 0.243)
    ]  # fmt: skip


def test_a_draft_has_the_best_chain_first_and_parents_before_children() -> None:
    growth = Scripted(TABLE)
    draft = as_draft(grow_tree(growth.options(()), growth, depth=8, most=5, width=4))
    assert list(draft.tokens) == [1, 3, 2, 5, 7]
    assert draft.parents == [-1, 0, -1, 2, 3]


def test_a_chain_follows_the_likeliest_branch() -> None:
    growth = Scripted(TABLE)
    draft = as_draft(grow_chain(growth.options(()), growth, most=8))
    assert list(draft.tokens) == [1, 3, 6]
    assert draft.parents is None


def test_depth_most_and_least_reach_bound_what_is_grown() -> None:
    growth = Scripted(TABLE)
    start = growth.options(())
    assert [n.token for n in grow_tree(start, growth, depth=1, most=9, width=4)] == [1, 2]
    assert [n.token for n in grow_chain(start, growth, most=2)] == [1, 3]
    assert [n.token for n in grow_chain(start, growth, most=1)] == [1]
    assert [n.token for n in grow_tree(start, growth, depth=9, most=9, width=4, least_reach=0.29)] == [
        1,
        2,
        3,
    ]
    assert [n.token for n in grow_chain(start, growth, most=9, least_reach=0.2)] == [1, 3]


def test_forbidden_tokens_are_never_grown() -> None:
    growth = Scripted(TABLE, bad=frozenset({1, 7}))
    start = growth.options(())
    assert grow_chain(start, growth, most=9) == []
    assert [n.token for n in grow_tree(start, growth, depth=9, most=9, width=4)] == [2, 5]


@given(
    st.dictionaries(
        st.lists(st.integers(0, 2), max_size=4).map(tuple),
        st.lists(st.tuples(st.integers(0, 2), st.floats(0.05, 0.6)), max_size=3, unique_by=lambda o: o[0]),
        max_size=30,
    ),
    st.integers(1, 64),
)
def test_any_tree_is_well_formed(table: dict[tuple[int, ...], list[tuple[int, float]]], most: int) -> None:
    growth = Scripted({path: sorted(o, key=lambda x: -x[1]) for path, o in table.items()})
    nodes = grow_tree(growth.options(()), growth, depth=6, most=most, width=3)
    assert len(nodes) <= most
    assert all(a.reach >= b.reach for a, b in pairwise(nodes))
    for count in range(len(nodes) + 1):
        draft = as_draft(nodes[:count])
        assert len(draft) == count
        assert all(-1 <= draft.parent_of(n) < n for n in range(count))
        siblings = [(draft.parent_of(n), draft.tokens[n]) for n in range(count)]
        assert len(set(siblings)) == count
