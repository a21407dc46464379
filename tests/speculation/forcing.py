"""Drafters that force a draft in every round: mixes of the true continuation, wrong tokens and nonsense."""

from __future__ import annotations

import random
from collections.abc import Sequence

from speculation.draft import Draft, DraftRequest, Origin, Round


class ForcingDrafter:
    """Drafts in every round: random length 0-63, partly right when the truth is known, partly wrong, ids past the
    vocabulary, end tokens in the middle, and longer than what is left."""

    def __init__(
        self,
        seed: int,
        vocab_size: int,
        truth: Sequence[int] = (),
        end_ids: Sequence[int] = (),
        trees: bool = False,
    ) -> None:
        self._random = random.Random(seed)
        self._vocab_size, self._truth, self._end_ids, self._trees = (
            vocab_size,
            list(truth),
            list(end_ids),
            trees,
        )
        self._done = 0
        self.rounds: list[Round] = []

    def start(self, request: DraftRequest) -> None:
        self._done = 0

    def draft(self, limit: int) -> Draft:
        chooser = self._random
        length = chooser.randrange(64)
        tokens = []
        for i in range(length):
            right = self._truth[self._done + i] if self._done + i < len(self._truth) else None
            kind = chooser.random()
            if right is not None and kind < 0.85:
                tokens.append(right)
            elif kind < 0.9 and self._end_ids:
                tokens.append(chooser.choice(self._end_ids))
            elif kind < 0.93:
                tokens.append(self._vocab_size + chooser.randrange(1000))
            else:
                tokens.append(chooser.randrange(self._vocab_size))
        if not self._trees or length < 2:
            return Draft(tokens, Origin("forced"))
        parents = [i - 1 if chooser.random() < 0.8 else chooser.randrange(-1, i) for i in range(length)]
        return Draft(tokens, Origin("forced"), parents)

    def observe(self, round_: Round) -> None:
        self._done += len(round_.committed)
        self.rounds.append(round_)
