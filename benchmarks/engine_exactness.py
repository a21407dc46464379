"""What the int8 engine computes: its distance from float32 on real source files, and whether what it
computes depends on how it got there. Run by `benchmarks.engine`, each part in a process of its own.

``python -m benchmarks.engine_exactness error MODEL`` or ``… edits MODEL warm|fresh SCRIPTS``; JSON on stdout.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from benchmarks.engine_texts import token_texts
from cache.models import resolve
from speculation.verifier.base import Verifier
from speculation.verifier.choice import choose

POSITIONS, TEXTS = 2000, 8
EDIT_TEXTS, SHORTEST, LONGEST = 10, 60, 2000


def error(model: str) -> dict[str, Any]:
    """Argmax agreement and mean KL divergence (nats) from float32, for int8 and beside it bfloat16."""
    files = resolve(model)
    texts = token_texts(Tokenizer.from_file(str(files.tokenizer)), TEXTS, POSITIONS // TEXTS)
    engines = {
        "int8": choose("cpu", "int8", "auto", files),
        "bfloat16": choose("cpu", "eager", "bfloat16", files),
    }
    reference = choose("cpu", "eager", "float32", files)
    sums = {name: np.zeros(2) for name in engines}
    for text in texts:
        expected = torch.log_softmax(_all_logits(reference, text), -1)
        for name, engine in engines.items():
            got = torch.log_softmax(_all_logits(engine, text), -1)
            same = (expected.argmax(-1) == got.argmax(-1)).sum()
            divergence = (expected.exp() * (expected - got)).sum()
            sums[name] += np.array([float(same), float(divergence)])
        print(f"error against float32, {model}: {len(text)} positions more", file=sys.stderr)
    count = sum(map(len, texts))
    return {
        "positions": count,
        **{n: {"argmax_equal": s[0] / count, "mean_kl": s[1] / count} for n, s in sums.items()},
    }


def _all_logits(verifier: Verifier, text: list[int]) -> torch.Tensor:
    """Logits of every position, in passes of 64."""
    slot = verifier.open_slot()
    rows = []
    for first in range(0, len(text), 64):
        tokens = text[first : first + 64]
        rows.append(verifier.verify(slot, tokens).float())
        verifier.commit(slot, range(len(tokens)))
    verifier.close_slot(slot)
    return torch.cat(rows)


def edits(model: str, kept: bool, scripts: int) -> list[str]:
    """A digest of the logits after each of ``scripts`` random edits; ``kept``: on the KV cache of the one
    before."""
    files = resolve(model)
    verifier = choose("cpu", "int8", "auto", files)
    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    digests: list[str] = []
    before: list[int] = []
    slot = verifier.open_slot()
    for text in edited_texts(tokenizer, scripts):
        if not kept:
            verifier.close_slot(slot)
            slot, before = verifier.open_slot(), []
        common = next((i for i, (a, b) in enumerate(zip(before, text, strict=False)) if a != b), None)
        common = min(len(before), len(text)) if common is None else common
        common = min(common, len(text) - 1)
        verifier.rollback(slot, common)
        chunk = random.Random(len(digests)).choice((32, 64, 100, 256)) if kept else 128
        for first in range(common, len(text) - 1, chunk):
            verifier.prefill(slot, text[first : min(first + chunk, len(text) - 1)])
        logits = verifier.verify(slot, text[-1:])
        verifier.commit(slot, [0])
        digests.append(hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:16])
        before = text
    return digests


def edited_texts(tokenizer: Tokenizer, scripts: int) -> Iterator[list[int]]:
    """Token ids after each edit: insertions, deletions and jumps in texts of 60 to 2,000 tokens."""
    chooser = random.Random(0)
    texts = token_texts(tokenizer, EDIT_TEXTS, LONGEST, seed=1)
    for script in range(scripts):
        if script % (max(1, scripts // EDIT_TEXTS)) == 0:
            source = texts[script * EDIT_TEXTS // scripts]
            text = source[: int(SHORTEST * (LONGEST / SHORTEST) ** chooser.random())]
        for _ in range(chooser.randint(1, 4)):
            at = max(1, len(text) - chooser.choice((0, 1, 2, 5, 20, 60)))
            removed = chooser.choice((0, 0, 1, 3, 10))
            added = chooser.choice((1, 2, 5, 30))
            start = chooser.randrange(len(source) - added)
            text = (text[:at] + source[start : start + added] + text[at + removed :])[: LONGEST - 1]
        yield text


def main() -> None:
    """Prints one JSON value."""
    part, model, *rest = sys.argv[1:]
    print(json.dumps(error(model) if part == "error" else edits(model, rest[0] == "warm", int(rest[1]))))


if __name__ == "__main__":
    main()
