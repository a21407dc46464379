"""Drafts: proposed token ids, a chain or a tree, with the evidence behind each node.

A proposer suggests, it never decides: what a draft contains can change how soon text appears, not which text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a drafted token comes from: the evidence the draft-length policy is keyed by."""

    source: str
    match_length: int = 0  # tokens of context that agree with the place the draft was copied from
    vote: float = 1.0  # share of the matching places that continue with the same token, 0..1


NOWHERE = Origin("none")


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens. ``parents[i]`` is the index of node i's parent in ``tokens``, -1 for the last committed token.

    ``parents is None`` means a chain. Parents always precede their children, and the best chain comes first, so
    that accepting it copies nothing in the KV cache. ``q`` (``[len(tokens), vocab]``) is the proposal distribution
    of a proposer that has one; text drafts have none (all mass on the drafted token).
    """

    tokens: Sequence[int] = ()
    origin: Origin = NOWHERE
    parents: Sequence[int] | None = None
    node_origins: Sequence[Origin] | None = None
    q: Tensor | None = None

    def __len__(self) -> int:
        return len(self.tokens)  # so an empty draft is false

    def origin_of(self, node: int) -> Origin:
        """The origin of one node; the draft's own unless the nodes have their own."""
        return self.node_origins[node] if self.node_origins is not None else self.origin

    def parent_of(self, node: int) -> int:
        """The parent of one node, -1 for the last committed token."""
        return node - 1 if self.parents is None else self.parents[node]


EMPTY = Draft()


def fit(draft: Draft, limit: int, vocab_size: int, depth: int | None = None) -> Draft:
    """The part of a draft that a pass can take: at most ``limit`` nodes and ``depth`` levels, every id in the
    vocabulary. A node whose parent is cut is cut too; what is left keeps its order."""
    kept: dict[int, int] = {-1: -1}
    level = {-1: 0}
    for node, token in enumerate(draft.tokens):
        parent = draft.parent_of(node)
        fits = len(kept) - 1 < limit and 0 <= token < vocab_size and parent in kept and parent < node
        if fits and (depth is None or level[parent] < depth):
            kept[node] = len(kept) - 1
            level[node] = level[parent] + 1
    if len(kept) - 1 == len(draft.tokens):
        return draft
    nodes = [node for node in kept if node >= 0]
    return Draft(
        tokens=[draft.tokens[n] for n in nodes],
        origin=draft.origin,
        parents=None if draft.parents is None else [kept[draft.parents[n]] for n in nodes],
        node_origins=None if draft.node_origins is None else [draft.node_origins[n] for n in nodes],
        q=None if draft.q is None else draft.q[: len(nodes)],
    )


@dataclass(slots=True)
class DraftRequest:
    """What a drafter is told when a request begins. All token ids are text: markers never occur in them.

    ``prefix + middle`` is the document up to the cursor, in document order; ``suffix`` what follows the cursor.
    """

    prefix: Sequence[int]
    middle: Sequence[int] = ()  # forced middle: the typed part of the cursor line(s)
    suffix: Sequence[int] = ()
    context: Sequence[int] = ()  # other files put into the prompt
    document: str = (
        ""  # the document's identity (a URI or a path), so that its own copy can be told from others
    )
    root: str = ""  # the workspace root, "" when there is none
    vocab_size: int = 0
    previous_answer: Sequence[int] = ()  # the rest of the last answer when the user typed part of it


@dataclass(frozen=True, slots=True)
class Round:
    """One draft + verify + accept, reported to the drafter so that it learns."""

    draft: Draft
    accepted: Sequence[int]  # indices of the accepted draft nodes, root to leaf; may be empty
    committed: Sequence[
        int
    ]  # token ids committed in this round: the accepted ones and the one drawn after them
    verify_ms: float = 0.0
    positions: int = 1  # positions in the verify pass: 1 + len(draft)


class Drafter(Protocol):
    """What the decoder asks for drafts. One instance serves one request at a time."""

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""

    def draft(self, limit: int) -> Draft:
        """The draft worth verifying now, at most ``limit`` nodes deep (0 allowed, empty allowed)."""

    def observe(self, round_: Round) -> None:
        """What became of the draft; also called for rounds whose draft was empty."""


class NoDrafter:
    """Speculation off: never proposes anything."""

    def start(self, request: DraftRequest) -> None:
        """Nothing to prepare."""

    def draft(self, limit: int) -> Draft:
        """Always empty."""
        return EMPTY

    def observe(self, round_: Round) -> None:
        """Nothing to learn."""
