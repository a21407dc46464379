"""The model's tokenizer, for text that is code: no marker is ever parsed out of it, and each id has exact bytes.

A user's file may contain `<|fim_prefix|>` literally (this one does). So the tokenizer for text is built without the
added tokens, and marker ids are looked up by name and inserted as ids. It needs `tokenizers` alone, which loads in a
fraction of the time of the transformers wrapper.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

_MARKER = re.compile(r"^.?<.*>$|^\[.*\]$|[|｜]")
# a word with the space or sign before it, a run of signs, white space: the rule of GPT-4-like vocabularies
_PIECE = re.compile(r"[^\r\n\w]?\w+| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
_BPE_OPTIONS = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
_MOST_IDS = 1 << 24  # no vocabulary comes near
_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenizerError(Exception):
    """The model's tokenizer cannot be used; says why and what to do."""

    exit_code = 3


class Tokenizer:
    """Encodes text without special tokens, and knows the bytes of every id."""

    def __init__(self, definition: str) -> None:
        """``definition``: the content of a ``tokenizer.json``."""
        try:
            data: dict[str, Any] = json.loads(definition)
            added, vocab = data.get("added_tokens", []), data["model"].get("vocab", ())
            self._added = {_text(token["content"]): _id(token["id"]) for token in added}
            self._plain = frozenset(_id(t["id"]) for t in added if _is_plain_text(t))
            data["added_tokens"] = _without_markers(added, vocab)
            _drop_dummy_prefix(data)
            data["post_processor"] = data["truncation"] = data["padding"] = None
            self._fast = _built(data)
            pieces = vocab if isinstance(vocab, dict) else self._fast.get_vocab(with_added_tokens=False)
            self._is_byte_level = '"ByteLevel"' in json.dumps(data.get("decoder") or {})
            self.vocab_size = 1 + max(map(_id, (*pieces.values(), *self._added.values())), default=-1)
            self._bytes = self._byte_table(pieces)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise TokenizerError(f"tokenizer.json is damaged ({error}); fetch the model again") from error
        except BaseException as error:
            # `tokenizers` raises bare Exception for a definition it cannot read, and panics on some
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise TokenizerError(
                f"tokenizer.json cannot be read by the tokenizers library: {error}"
            ) from error
        self.hash = hashlib.sha256(definition.encode()).hexdigest()[:16]

    @classmethod
    def from_file(cls, path: str | Path) -> Tokenizer:
        """Reads a ``tokenizer.json``."""
        try:
            return cls(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"cannot read {path}: {error}") from error

    def encode(self, text: str) -> list[int]:
        """The ids of a text; strings that look like markers are text like any other."""
        return list(self._encoding(text).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts, encoded in parallel."""
        whole = [_without_surrogates(text) for text in texts]
        return [list(e.ids) for e in self._fast.encode_batch_fast(whole, add_special_tokens=False)]

    def pieces(self, text: str) -> list[tuple[int, int]]:
        """The (start, end) code points of each token of a text."""
        return [(int(a), int(b)) for a, b in self._encoding(text).offsets]

    def pre_token_starts(self, text: str) -> list[int]:
        """Where the tokenizer's own splitting rule begins a new piece, in code points.

        SentencePiece vocabularies split after normalising, if at all; for them words are split as byte-level
        ones do.
        """
        splitter = self._fast.pre_tokenizer
        if splitter is None or not self._is_byte_level:
            return [piece.start() for piece in _PIECE.finditer(text)]
        return [int(start) for _, (start, _) in splitter.pre_tokenize_str(_without_surrogates(text))]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; an incomplete character at either end becomes U+FFFD."""
        return b"".join(self.bytes_of(i) for i in ids).decode("utf-8", errors="replace")

    def marker(self, name: str) -> int | None:
        """The id of a special token by its exact name, or None when the vocabulary has no such single token."""
        return self._added[name] if name in self._added else self._fast.token_to_id(name)

    def _encoding(self, text: str) -> Encoding:
        return self._fast.encode(_without_surrogates(text), add_special_tokens=False)

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """Ids of all added tokens that are not plain text: markers, chat roles and the like."""
        return frozenset(self._added.values()) - self._plain

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token stands for; empty for ids past the vocabulary."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def _byte_table(self, vocab: Mapping[str, int]) -> list[bytes]:
        """The bytes of each id."""
        table = [b""] * self.vocab_size
        to_bytes = _byte_level if self._is_byte_level else _sentence_piece
        for piece, token in vocab.items():
            table[token] = to_bytes(piece)
        for content, token in self._added.items():
            table[token] = content.encode()
        return table

    @cached_property
    def _ordered(self) -> tuple[list[bytes], list[int]]:
        """All text tokens ordered by their bytes, so that a prefix is a contiguous range."""
        table = self._bytes
        tokens = (token for token, piece in enumerate(table) if piece and token not in self.added_ids)
        ordered = sorted(tokens, key=table.__getitem__)
        return [table[token] for token in ordered], ordered

    def prepare(self) -> None:
        """Builds what is made on first use now, so that the first request does not wait for them."""
        _ = self._ordered

    def ids_consistent_with(self, required: bytes) -> list[int]:
        """Text tokens that begin with ``required`` or whose bytes are a beginning of it."""
        pieces, ids = self._ordered
        first = bisect_left(pieces, required)
        last = first
        while last < len(pieces) and pieces[last].startswith(required):
            last += 1
        found = ids[first:last]
        for length in range(1, len(required)):
            place = bisect_left(pieces, required[:length])
            while place < len(pieces) and pieces[place] == required[:length]:
                found.append(ids[place])
                place += 1
        return found


def _built(data: dict[str, Any]) -> FastTokenizer:
    """The tokenizer of a definition. A large vocabulary is handed over as it is, not through JSON again: an editor
    waits for it at each start."""
    model = data["model"]
    if model.get("type") == "BPE" and model.get("unk_token") not in model["vocab"]:
        model["unk_token"] = None  # with one that does not exist, text that needs it could not be encoded
    known = model.keys() <= {"type", "vocab", "merges", *_BPE_OPTIONS}
    # added tokens are numbered after the rest
    if model.get("type") != "BPE" or not known or data["added_tokens"]:
        return FastTokenizer.from_str(json.dumps(data))
    lines = (m for m in model["merges"] if not (isinstance(m, str) and m.startswith("#version")))
    merges = [(left, right) for left, right in (m.split(" ") if isinstance(m, str) else m for m in lines)]
    options = {name: model[name] for name in _BPE_OPTIONS if model.get(name) is not None}
    built = FastTokenizer.from_str(json.dumps({**data, "model": {**model, "vocab": {}, "merges": []}}))
    built.model = BPE(vocab=model["vocab"], merges=merges, **options)
    return built


def load_encode(tokenizer_file: Path) -> Callable[[str], list[int]]:
    """The ``encode`` of a tokenizer's file: a process that only indexes starts with this and without torch."""
    return Tokenizer.from_file(tokenizer_file).encode


def _id(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < _MOST_IDS:
        raise ValueError(f"{value!r:.40} is no id of a token")
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no token")
    return value


def _without_markers(added_tokens: list[dict[str, Any]], vocab: Collection[Any]) -> list[dict[str, Any]]:
    """The added tokens that are text. Ids of those that are not in the vocabulary are given by order, so each such
    marker leaves a name that no text has."""
    if not any(map(_is_plain_text, added_tokens)):
        return []
    known = vocab if isinstance(vocab, dict) else {piece for piece, *_ in vocab}
    return [
        token if _is_plain_text(token) else {**token, "content": f"\ufdd0{token['id']}\ufdd1"}
        for token in added_tokens
        if _is_plain_text(token) or token["content"] not in known
    ]


def _drop_dummy_prefix(data: dict[str, Any]) -> None:
    """Some tokenizers put a space before every text; the middle of a file has none."""
    for part in (data.get("normalizer"), data.get("pre_tokenizer")):
        for step in (part or {}).get(
            "normalizers", (part or {}).get("pretokenizers", [part] if part else [])
        ):
            if step.get("type") == "Prepend":
                step["prepend"] = ""
            if step.get("type") == "Metaspace":
                step["prepend_scheme"] = "never"
            if step.get("type") == "ByteLevel":
                step["add_prefix_space"] = False


def _without_surrogates(text: str) -> str:
    """A lone surrogate (half of an emoji, from an editor that counts in UTF-16) has no UTF-8: it becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _is_plain_text(added_token: dict[str, Any]) -> bool:
    """Some vocabularies keep runs of white space or single letters as added tokens; those are text, markers are
    not. The flag alone does not tell: the markers of Qwen are not flagged as special."""
    return not added_token.get("special", False) and not _MARKER.search(str(added_token["content"]))


def _byte_level_table() -> dict[str, int]:
    """The printable stand-in of each byte in byte-level BPE (GPT-2's mapping)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in printable}
    hidden = [b for b in range(256) if b not in set(printable)]
    table.update({chr(256 + n): b for n, b in enumerate(hidden)})
    return table


_OTHER = 0x2603  # any character that is not in Latin-1
_BYTE_LEVEL = dict.fromkeys(range(256), _OTHER) | {ord(c): b for c, b in _byte_level_table().items()}


def _byte_level(piece: str) -> bytes:
    try:
        return piece.translate(_BYTE_LEVEL).encode("latin-1")
    except UnicodeEncodeError:  # a special token kept in the model's own vocabulary
        return piece.encode()


def _sentence_piece(piece: str) -> bytes:
    fallback = _BYTE_FALLBACK.fullmatch(piece)
    return bytes([int(fallback[1], 16)]) if fallback else piece.replace("\u2581", " ").encode()
