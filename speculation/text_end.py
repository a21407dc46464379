"""The growing end of the text, as acceptance sees it: p for the next position, and what committing a token means."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from speculation.draft import Draft, Origin, fit
from speculation.healing import Healing
from speculation.sampling import (
    SamplingParameters,
    context_tensor,
    distribution,
    draw,
    processed_logits,
    uniform,
)
from speculation.stop import StopRules
from speculation.tokenizer import Tokenizer


class TextEnd:
    """Prompt + committed tokens, with the sampling state that belongs to their end."""

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        sampling: SamplingParameters,
        stop: StopRules,
        healing: Healing,
        tokenizer: Tokenizer,
        first_position: int,
    ) -> None:
        """``first_position``: position of the first drawn token, counted from the middle marker."""
        self.committed: list[int] = []
        self.healed = 0  # committed tokens that only spell what was typed
        self.stopped = False
        self.stop = stop
        self._prompt = list(prompt)
        self._sampling = sampling
        self._healing = healing
        self._tokenizer = tokenizer
        self._first_position = first_position

    @property
    def last_token(self) -> int:
        """The token whose KV is not in the cache yet."""
        return self.committed[-1] if self.committed else self._prompt[-1]

    def uniform(self, stream: int) -> float:
        """The uniform of the current position."""
        return uniform(self._sampling.seed, self._first_position + len(self.committed), stream)

    def distribution(self, logits: Tensor) -> Tensor:
        """p ``[vocab]`` here: healing mask, penalty over prompt and committed tokens, warpers."""
        return distribution(logits, self._sampling, self._context(), self._healing.allowed())

    @property
    def takes_best(self) -> bool:
        """Whether all that is asked of any row from here on is its best token."""
        sampling = self._sampling
        return sampling.temperature == 0 and sampling.repetition_penalty == 1.0 and not self._healing.required

    def draw(self, logits: Tensor) -> int:
        """The token the target model alone would commit here; of a row's best token (no dimension), that one."""
        if self.takes_best:
            return int(logits.argmax() if logits.ndim else logits)
        if self._sampling.temperature == 0:
            return int(
                processed_logits(logits, self._sampling, self._context(), self._healing.allowed()).argmax()
            )
        return draw(self.distribution(logits), self.uniform(0))

    def commit(self, token: int) -> bool:
        """Appends a token; False when a stop rule says that nothing may follow."""
        self.committed.append(token)
        piece = self._tokenizer.bytes_of(token)
        spelled = self._healing.commit(token) if self._healing.required else 0
        self.healed += spelled > 0 and spelled == len(piece)
        goes_on = self.stop.commit(token, piece[spelled:])
        self.stopped = not goes_on
        return goes_on

    def spelling_draft(self) -> Draft:
        """While typed bytes are to be spelled: the tokens that usually spell them, but for the last, open one."""
        if not self._healing.required:
            return Draft()
        typed = self._healing.required.decode("utf-8", errors="ignore")
        return Draft(self._tokenizer.encode(typed)[:-1], Origin("typed"))

    def agreeing(self, draft: Draft) -> Draft:
        """The part of a draft that does not contradict the typed bytes."""
        if not self._healing.required or draft.q is not None:  # a draft from q must be judged as it was drawn
            return draft
        spelled: dict[int, bytes] = {-1: b""}
        tokens = list(draft.tokens)
        for node, token in enumerate(tokens):
            before = spelled[draft.parent_of(node)]
            after = before + self._tokenizer.bytes_of(token)
            required = self._healing.required[: len(after)]
            spelled[node] = after
            if after[: len(required)] != required:
                tokens[node] = -1  # cut here, with all that follows
        if tokens == list(draft.tokens):
            return draft
        return fit(Draft(tokens, draft.origin, draft.parents, draft.node_origins), len(tokens), 1 << 62)

    def _context(self) -> Tensor | None:
        if self._sampling.repetition_penalty == 1.0:
            return None
        return context_tensor([*self._prompt, *self.committed], self._sampling)
