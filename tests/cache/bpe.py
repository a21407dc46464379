"""Byte-pair tokenizers of the families the index cuts text for, trained on this package's sources."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
FAMILIES = ("qwen", "gpt2")
Encode = Callable[[str], list[int]]


@lru_cache
def tokenizer(family: str) -> Tokenizer:
    """Qwen2's normaliser and expression, or GPT-2's expression with single digits, as SmolLM2 has it."""
    built = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=family == "gpt2")
    if family == "qwen":
        built.normalizer = normalizers.NFC()
        first: pre_tokenizers.PreTokenizer = pre_tokenizers.Split(Regex(QWEN), "isolated")
    else:
        first = pre_tokenizers.Digits(individual_digits=True)
    built.pre_tokenizer = pre_tokenizers.Sequence([first, byte_level])
    sources = sorted((Path(__file__).parents[2] / "cache").glob("*.py"))
    trainer = trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    built.train_from_iterator([path.read_text() for path in sources], trainer)
    return built


@lru_cache
def encode_of(family: str = "qwen") -> Encode:
    return PicklableEncode(tokenizer(family).to_str())


class PicklableEncode:
    """``encode`` that another process can be given."""

    def __init__(self, definition: str) -> None:
        self.definition = definition
        self._tokenizer = Tokenizer.from_str(definition)

    def __call__(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return PicklableEncode, (self.definition,)
