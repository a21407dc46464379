"""Token sequences of real source files for the engine measurements, from the replayed packages by a fixed
seed."""

from __future__ import annotations

import random

from benchmarks.packages import sources, wheel
from benchmarks.replay_hunks import RELEASES


def token_texts(tokenizer: object, count: int, length: int, seed: int = 0) -> list[list[int]]:
    """``count`` runs of ``length`` tokens, each from the start of another file of the packages' new
    releases."""
    chooser = random.Random(seed)
    texts = [
        text
        for release in RELEASES
        for text in sources(wheel(release.name, release.new)).values()
        if len(text) > 6 * length
    ]
    runs = []
    for text in chooser.sample(texts, min(len(texts), 4 * count)):
        ids = tokenizer.encode(text, add_special_tokens=False).ids  # type: ignore[attr-defined]
        if len(ids) >= length:
            runs.append(list(ids[:length]))
        if len(runs) == count:
            return runs
    raise ValueError(f"only {len(runs)} of {count} texts have {length} tokens")
