"""Small models and a small tokenizer, made here: nothing is downloaded for the fast tests."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that would reach for the network fails at once
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small models lose more than they gain by a second thread

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_MARKERS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
]  # fmt: skip


@lru_cache(maxsize=4)
def tokenizer_definition(markers: tuple[str, ...] = tuple(QWEN_MARKERS), vocab_size: int = 600) -> str:
    """A ``tokenizer.json``: byte-level BPE trained on text of this repository that does not change."""
    sources = [Path(__file__).parent.parent / "speculation/verifier/calibration.txt"]
    fast = FastTokenizer(models.BPE())
    from tokenizers import Regex

    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    fast.train_from_iterator([path.read_text() for path in sources], trainer)
    definition = json.loads(fast.to_str())
    first = len(definition["model"]["vocab"])
    definition["added_tokens"] = [
        {"id": first + n, "content": m, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": n < 3}
        for n, m in enumerate(markers)
    ]  # fmt: skip
    return json.dumps(definition)


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer with Qwen's markers and splitting rule."""
    from speculation.tokenizer import Tokenizer

    return Tokenizer(tokenizer_definition())


@lru_cache(maxsize=8)
def random_model(kind: str = "qwen2", vocab_size: int = 640, dtype: str = "float64", seed: int = 0):
    """A small random transformers model whose greedy output does not collapse at once."""
    import torch
    import transformers

    shape = {
        "vocab_size": vocab_size, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    config_class, model_class = {
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "starcoder2": (transformers.Starcoder2Config, transformers.Starcoder2ForCausalLM),
    }[kind]
    torch.manual_seed(seed)
    config = config_class(**shape)
    config.initializer_range = 0.3
    model = model_class(config).to(getattr(torch, dtype)).eval()
    return model


@pytest.fixture
def tiny_model():
    """A small random Qwen2 in float64."""
    return random_model()
