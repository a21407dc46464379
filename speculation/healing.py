"""Token healing: the last typed characters may be half a token.

The prompt backs off to the start of the pre-token under the cursor, and generation may choose only tokens that agree
with the typed bytes until these are used up. Each step renormalises p over the tokens that agree.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from speculation.tokenizer import Tokenizer


class Healing:
    """The typed bytes that generation still has to spell."""

    def __init__(
        self, tokenizer: Tokenizer, required: bytes, vocab_size: int, excluded: frozenset[int] = frozenset()
    ) -> None:
        """
        Args:
            required: what was typed since the prompt's end, UTF-8.
            vocab_size: rows of the model's head, which may differ from the tokenizer's vocabulary.
            excluded: ids that never spell text: markers and end tokens.
        """
        self._excluded = excluded
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self.required = required

    def allowed(self) -> Tensor | None:
        """Ids that agree with what is still to be spelled; None once nothing is."""
        if not self.required:
            return None
        return _allowed(self._tokenizer, self.required, self._vocab_size, self._excluded)

    def commit(self, token: int) -> int:
        """Takes a generated token; returns how many of its bytes spelled what was typed."""
        used = min(len(self.required), len(self._tokenizer.bytes_of(token)))
        self.required = self.required[used:]
        return used


@lru_cache(maxsize=256)
def _allowed(
    tokenizer: Tokenizer, required: bytes, vocab_size: int, excluded: frozenset[int]
) -> Tensor | None:
    ids = [i for i in tokenizer.ids_consistent_with(required) if i < vocab_size and i not in excluded]
    # a vocabulary that cannot spell these bytes at all must not end in an empty distribution
    return torch.tensor(ids, dtype=torch.long) if ids else None


def back_off(tokenizer: Tokenizer, typed: str) -> int:
    """Where the pre-token under the cursor begins, in code points of ``typed``; its end when nothing was typed.

    The pre-token includes its leading space, dot or run of white space, as the tokenizer's own splitting rule has
    it; at the start of a line nothing is backed off.
    """
    starts = tokenizer.pre_token_starts(typed)
    return starts[-1] if starts else len(typed)
