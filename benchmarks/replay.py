"""How many tokens a forward pass commits, and what that is worth: drafts replayed against known text.

    python -m benchmarks.replay --workload edits|fresh|noise --stream truth|model|forced
        --cost flat|measured|FILE --stop none|product [--packages 'NAME==OLD:NEW,…'] [--trees] [--json FILE]
"""

from __future__ import annotations

from cache.models import ensure
from speculation.tokenizer import Tokenizer

MODEL = "qwen2.5-coder-0.5b-q4"


def tokenizer_of(path: str | None) -> Tokenizer:
    """The tokenizer of a file, or of the default model."""
    return Tokenizer.from_file(path or ensure(MODEL).tokenizer)
