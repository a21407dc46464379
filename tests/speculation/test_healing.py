"""Token healing conditions each step on what was typed; checked by enumeration on a small vocabulary."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from speculation.draft import Draft
from speculation.healing import Healing
from speculation.sampling import SamplingParameters
from speculation.stop import StopRules
from speculation.text_end import TextEnd

PIECES = [b"a", b"b", b"ab", b"abc", b"bc", b"c", b"\n"]


class Vocabulary:
    """Seven tokens over three letters."""

    def bytes_of(self, token):
        return PIECES[token]

    def ids_consistent_with(self, required):
        return [i for i, p in enumerate(PIECES) if p.startswith(required) or required.startswith(p)]

    def encode(self, text):
        return (
            [PIECES.index(text.encode())]
            if text.encode() in PIECES
            else [PIECES.index(c.encode()) for c in text]
        )


VOCABULARY = Vocabulary()
LOGITS = torch.tensor([0.3, -0.2, 0.9, 0.1, 0.4, 0.0, -1.0], dtype=torch.float64)


def new_end(required, seed):
    return TextEnd(
        [0],
        sampling=SamplingParameters(temperature=1.0, seed=seed),
        stop=StopRules("none", (), 8),
        healing=Healing(VOCABULARY, required, len(PIECES)),
        tokenizer=VOCABULARY,
        first_position=0,
    )


def test_each_step_is_p_renormalised_over_the_tokens_that_agree_with_what_was_typed():
    law: dict[tuple[int, ...], float] = {}
    p = LOGITS.softmax(-1).numpy()
    for tokens in itertools.product(range(len(PIECES)), repeat=2):
        required, weight, taken = b"ab", 1.0, []
        for token in tokens:
            if not required:
                break
            allowed = VOCABULARY.ids_consistent_with(required)
            if token not in allowed:
                weight = 0.0
                break
            weight *= p[token] / p[allowed].sum()
            required = required[len(PIECES[token]) :]
            taken.append(token)
        if weight:
            law[tuple(taken)] = weight
    assert abs(sum(law.values()) - 1) < 1e-12

    counts = dict.fromkeys(law, 0)
    for seed in range(4000):
        end = new_end(b"ab", seed)
        while end._healing.required:
            end.commit(end.draw(LOGITS))
        counts[tuple(end.committed)] += 1
    for tokens, share in law.items():
        assert abs(counts[tokens] / 4000 - share) < 4 * np.sqrt(share / 4000), tokens


def test_the_text_begins_after_what_was_typed():
    end = new_end(b"ab", 0)
    end.commit(PIECES.index(b"abc"))
    assert end.stop.text == "c" and end.healed == 0
    end = new_end(b"ab", 0)
    end.commit(PIECES.index(b"a"))
    end.commit(PIECES.index(b"bc"))
    assert end.stop.text == "c" and end.healed == 1


def test_drafts_that_contradict_the_typed_bytes_are_cut():
    end = new_end(b"ab", 0)
    a, b, ab, abc, bc = (PIECES.index(x) for x in (b"a", b"b", b"ab", b"abc", b"bc"))
    assert list(end.agreeing(Draft([a, b, b])).tokens) == [a, b, b]
    assert list(end.agreeing(Draft([a, a, b])).tokens) == [a]
    assert list(end.agreeing(Draft([b, a])).tokens) == []
    tree = end.agreeing(Draft([a, a, bc, abc, ab], parents=[-1, 0, 0, -1, -1]))
    assert list(tree.tokens) == [a, bc, abc, ab] and list(tree.parents) == [-1, 0, -1, -1]


def test_bytes_no_token_can_spell_do_not_end_in_an_empty_distribution():
    assert Healing(VOCABULARY, b"xyz", len(PIECES)).allowed() is None
