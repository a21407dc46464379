"""The drafter the decoder asks: proposers find places to copy from, evidence tells how far to trust them, the policy
how much of it is worth a pass. None of the three knows the others; this is where they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from speculation.draft import EMPTY, Draft, DraftRequest, Round
from speculation.evidence import Branch, Evidence
from speculation.policy import GainPolicy
from speculation.proposers.base import Context, Continuation, Proposer
from speculation.proposers.indexed import Index, IndexProposer
from speculation.proposers.passages import PassageProposer, Passages, rest_of_answer
from speculation.proposers.prompt_lookup import PromptLookupProposer, SuffixStartProposer
from speculation.proposers.realign import RealignProposer
from speculation.trees import Node, as_draft, grow_chain, grow_tree

EXTENSION_REACH = 0.15  # a draft less likely than this is not continued past the end of its source


class WorkspaceDrafter:
    """Combines proposers under one policy. Serves one request at a time; what it learns outlives the request."""

    def __init__(
        self, proposers: Sequence[Proposer], policy: GainPolicy, evidence: Evidence | None = None
    ) -> None:
        self.proposers = list(proposers)
        self.policy = policy
        self.evidence = evidence if evidence is not None else Evidence()
        self._realign = next((p for p in self.proposers if isinstance(p, RealignProposer)), None)
        self._context = Context(())
        self._vocab_size = 0
        self._branches: list[Branch] = []  # what may come next, as planned in this round
        self._plan: list[Node] = []  # what was considered for the draft
        self._limit = 0

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._context = Context([*request.prefix, *request.middle], fresh=True)
        self._vocab_size = request.vocab_size
        self._forget_plan()
        for proposer in self.proposers:
            proposer.start(request)

    def draft(self, limit: int) -> Draft:
        """The draft worth verifying now, at most ``limit`` nodes deep; often empty."""
        self._forget_plan()
        if limit <= 0:
            return EMPTY
        policy = self.policy
        self._limit = limit
        self._branches = self.evidence.branches(self._places(self._context, limit), 0)
        most, least = policy.most_nodes, policy.least_reach
        if policy.width == 1:
            self._plan = grow_chain(self._branches, self, most=min(limit, most), least_reach=least)
        else:
            self._plan = grow_tree(
                self._branches, self, depth=limit, most=most, width=policy.width, least_reach=least
            )
        return as_draft(self._plan[: policy.nodes([node.reach for node in self._plan])])

    def observe(self, round_: Round) -> None:
        """What became of the draft; also called for rounds whose draft was empty."""
        committed = round_.committed
        self._context = self._context.followed_by(committed)
        for proposer in self.proposers:
            proposer.commit(committed)
        self._judge(committed)
        self._forget_plan()
        self.policy.observe(round_.positions, round_.verify_ms, len(committed))

    def after(self, node: Node) -> tuple[list[Branch], int]:
        """What may follow a drafted node: its places go on; past their end, places like the draft's own end do."""
        branches = self.evidence.branches(node.members, node.segment)
        if branches or node.reach < EXTENSION_REACH or self._limit <= node.depth:
            return branches, node.segment
        context = self._context.followed_by(node.path())
        return self.evidence.branches(self._places(context, self._limit - node.depth, extending=True), 0), 0

    def agreed(self, places: Sequence[Continuation], taken: int) -> Iterator[tuple[int, float]]:
        """What follows as long as all places agree."""
        return self.evidence.agreed(places, taken)

    def forbidden(self, token: int) -> bool:
        """Ids that the model does not have."""
        return 0 < self._vocab_size <= token

    def _places(self, context: Context, limit: int, extending: bool = False) -> list[Continuation]:
        found: list[Continuation] = []
        for proposer in self.proposers:
            if not (extending and proposer is self._realign):
                found += proposer.propose(context, limit)
        return found

    def _judge(self, committed: Sequence[int]) -> None:
        """Holds what was planned, drafted or not, against what came."""
        branches = self._branches
        options = self._first_nodes()
        followed: Node | None = None
        left = len(committed)
        for token in committed:
            if branches:
                self.evidence.observe(branches, token)
            for node in options:
                if node.token == token:
                    break
            else:
                break
            followed = node
            options = self._children(node)
            left -= 1
            if left:
                branches = self.evidence.branches(node.members, node.segment)
        else:
            if followed is not None and self._realign is not None:
                self._realign.follow(followed.lead, followed.segment, failed=False)
            return
        if options and self._realign is not None:
            self._realign.follow(options[0].lead, options[0].segment - 1, failed=True)

    def _first_nodes(self) -> list[Node]:
        if self.policy.width > 1:
            return [node for node in self._plan if node.parent is None]
        return self._plan[:1]

    def _children(self, node: Node) -> list[Node]:
        if self.policy.width > 1:
            return node.children or []
        return self._plan[node.index + 1 : node.index + 2]

    def _forget_plan(self) -> None:
        self._branches = []
        self._plan = []
        self._limit = 0


@dataclass(slots=True)
class Stores:
    """What a drafter may copy from besides the request itself; each may be missing."""

    open_documents: Index | None = None
    workspace: Index | None = None
    history: Index | None = None
    deleted: Passages | None = None
    ends_line: Callable[[int], bool] | None = None


def build_drafter(
    stores: Stores, policy: GainPolicy, *, evidence: Evidence | None = None, without: Collection[str] = ()
) -> WorkspaceDrafter:
    """The drafter over all stores there are. ``without``: names of sources to leave out."""
    proposers: list[Proposer] = [PassageProposer("answer", rest_of_answer), PromptLookupProposer()]
    if stores.ends_line is not None:
        proposers.append(SuffixStartProposer(stores.ends_line))
    if stores.deleted is not None:
        proposers.append(PassageProposer("deleted", stores.deleted))
    for name, index in (
        ("history", stores.history),
        ("open", stores.open_documents),
        ("workspace", stores.workspace),
    ):
        if index is not None:
            proposers.append(IndexProposer(name, index))
    proposers.append(RealignProposer())
    return WorkspaceDrafter([p for p in proposers if p.name not in without], policy, evidence)
