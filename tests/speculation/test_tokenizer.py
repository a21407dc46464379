"""Text ids have exact bytes, and nothing a user writes is read as a marker."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer

from speculation.tokenizer import Tokenizer, TokenizerError
from tests.conftest import QWEN_MARKERS, tokenizer_definition

TOKENIZER = Tokenizer(tokenizer_definition())
WHOLE = FastTokenizer.from_str(tokenizer_definition(()))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_text_survives_encoding_and_decoding(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert b"".join(TOKENIZER.bytes_of(i) for i in ids) == text.encode()


@given(st.lists(st.sampled_from([*QWEN_MARKERS, "<|fim_", "prefix|>", " ", "x", "\n"]), max_size=12))
def test_no_text_is_read_as_a_marker(parts):
    text = "".join(parts)
    ids = TOKENIZER.encode(text)
    assert not set(ids) & TOKENIZER.added_ids and TOKENIZER.decode(ids) == text


def test_markers_are_found_by_exact_name_only():
    assert all(isinstance(TOKENIZER.marker(m), int) for m in QWEN_MARKERS)
    assert TOKENIZER.marker("<|fim_prefix") is None and TOKENIZER.marker("<fim_prefix>") is None


@pytest.mark.parametrize("typed", [b"re", b" ", b"def ", b"\xc3", b"self.na", b"zzzzzzzz"])
def test_ids_consistent_with_typed_bytes_are_all_and_only_those(typed):
    found = set(TOKENIZER.ids_consistent_with(typed))
    wanted = {
        i
        for i in range(TOKENIZER.vocab_size)
        if i not in TOKENIZER.added_ids
        and (piece := TOKENIZER.bytes_of(i))
        and (piece.startswith(typed) or typed.startswith(piece))
    }
    assert found == wanted


def test_a_damaged_definition_is_one_clear_error(tmp_path):
    for content in ("", "{", "[]", json.dumps({"model": {}}), '{"model": {"type": "Nonsense"}}'):
        with pytest.raises(TokenizerError):
            Tokenizer(content)
    with pytest.raises(TokenizerError, match="cannot read"):
        Tokenizer.from_file(tmp_path / "missing.json")


@given(text=st.text(max_size=60) | st.text("ab_ \n.(é", max_size=60))
def test_ids_are_those_of_the_tokenizers_library_for_the_whole_definition(text):
    assert TOKENIZER.encode(text) == WHOLE.encode(text, add_special_tokens=False).ids


def added(content: str, token: int, special: bool = False) -> dict[str, object]:
    return {
        "id": token, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": not special, "special": special,
    }  # fmt: skip


def test_runs_of_spaces_after_markers_that_are_in_the_vocabulary_keep_their_ids():
    definition = json.loads(tokenizer_definition(()))
    vocab = definition["model"]["vocab"]
    first = len(vocab)
    vocab |= {"<|endoftext|>": first, "<|padding|>": first + 1}
    definition["added_tokens"] = [added("<|endoftext|>", first, True), added("<|padding|>", first + 1, True)]
    definition["added_tokens"] += [added(" " * n, first + 10 - n) for n in range(8, 1, -1)]
    text = "if a:\n        return 1\n"
    tokenizer = Tokenizer(json.dumps(definition))
    whole = FastTokenizer.from_str(json.dumps(definition))
    assert tokenizer.encode(text) == whole.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert first not in tokenizer.encode("<|endoftext|>")


def bpe(**changes: object) -> dict[str, object]:
    """A definition with a BPE model of three tokens."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], **changes}
    return {"model": model, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "decoder": None}


def test_ids_with_gaps_have_bytes():
    tokenizer = Tokenizer(json.dumps(bpe(vocab={"a": 0, "b": 7, "ab": 100})))
    assert tokenizer.vocab_size == 101
    assert tokenizer.decode(tokenizer.encode("abb")) == "abb"


@pytest.mark.parametrize("merges", [["#version: 0.2", "a b"], [["a", "b"]]])
def test_merges_are_read_as_the_library_reads_them(merges):
    assert Tokenizer(json.dumps(bpe(merges=merges))).encode("ab") == [2]


def test_an_unknown_token_that_does_not_exist_stops_no_text_from_being_encoded():
    definition = bpe(unk_token="<unk>")
    assert Tokenizer(json.dumps(definition)).encode("a\u00e9b") == [2]
    definition["added_tokens"] = [added("  ", 3)]
    assert Tokenizer(json.dumps(definition)).encode("a\u00e9b") == [2]


@pytest.mark.parametrize("split", [False, True])
def test_a_byte_level_tokenizer_puts_no_space_before_the_text(split):
    definition = json.loads(tokenizer_definition(()))
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": not split}
    if split:
        steps = definition["pre_tokenizer"]["pretokenizers"]
        definition["pre_tokenizer"]["pretokenizers"] = [steps[0], byte_level]
    else:
        definition["pre_tokenizer"] = byte_level
    tokenizer = Tokenizer(json.dumps(definition))
    assert tokenizer.decode(tokenizer.encode("foo(bar)")) == "foo(bar)"


DAMAGED = {
    "half a surrogate in a marker": {"added_tokens": [added("<|\ud800|>", 3, True)]},
    "a marker that is a number": {"added_tokens": [{**added("", 3, True), "content": 5}]},
    "a marker that is nothing": {"added_tokens": [{**added("", 3, True), "content": None}]},
    "an id that no memory holds": {"added_tokens": [added("<|x|>", 10**11, True)]},
    "a negative id": {"added_tokens": [added("<|x|>", -1, True)]},
    "a prefix that the merges do not have": bpe(continuing_subword_prefix="##"),
    "a normaliser that cannot be": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    },
    "no model": {"model": None},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_what_no_tokenizer_can_be_made_of_is_one_clear_error(damage):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer(json.dumps({**bpe(), **DAMAGED[damage]}))


def test_a_sentence_piece_tokenizer_puts_no_space_before_the_text():
    definition = json.loads(tokenizer_definition(()))
    vocabulary = {
        "▁": 0,
        "a": 1,
        "▁a": 2,
        "<0x0A>": 3,
        "b": 4,
        **{f"<0x{n:02X}>": n + 5 for n in range(256) if n != 10},
    }
    definition["model"] = {"type": "BPE", "vocab": vocabulary, "merges": [["▁", "a"]], "byte_fallback": True}
    definition["pre_tokenizer"] = None
    definition["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    definition["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    tokenizer = Tokenizer(json.dumps(definition))
    assert tokenizer.encode("a a") == [1, 2]
    assert tokenizer.decode(tokenizer.encode("a\na b")) == "a\na b"


def test_single_letters_kept_as_added_tokens_are_text_and_markers_are_not():
    definition = json.loads(
        tokenizer_definition(("<｜fim▁begin｜>", "[PREFIX]", "<|fim_middle|>", "ж", "日"))
    )
    for token in definition["added_tokens"]:
        token["special"] = False
    tokenizer = Tokenizer(json.dumps(definition))
    letters = {tokenizer.marker("ж"), tokenizer.marker("日")}
    assert not letters & tokenizer.added_ids and len(tokenizer.added_ids) == 3
    ids = tokenizer.encode("fжr 日 [PREFIX]")
    assert letters < set(ids) and not set(ids) & tokenizer.added_ids
    assert tokenizer.decode(ids) == "fжr 日 [PREFIX]"


@pytest.mark.parametrize(
    ("typed", "required"),
    [
        ("self.na", ".na"),
        ("return se", " se"),
        ("    ", "    "),
        ("foo(", "("),
        ("x = pri", " pri"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("split", [None, {"type": "Metaspace", "replacement": "▁", "split": False}])
def test_healing_backs_off_by_words_where_a_tokenizer_does_not_split_them(split, typed, required):
    from speculation.healing import back_off

    definition = json.loads(tokenizer_definition(()))
    definition["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    definition["pre_tokenizer"] = split
    assert typed[back_off(Tokenizer(json.dumps(definition)), typed) :] == required
