"""Text that was removed is remembered in passages, and asking for them costs a request next to nothing."""

from __future__ import annotations

from cache.replaced_text import ReplacedText


def encode(text: str) -> list[int]:
    return list(text.encode())


def text_of(passages: list[list[int]]) -> list[str]:
    return [bytes(tokens).decode() for tokens in passages]


def test_characters_deleted_one_after_another_make_one_passage() -> None:
    replaced = ReplacedText(encode)
    for at, character in reversed(list(enumerate("word"))):
        replaced.add("d", 10 + at, character)
    assert text_of(replaced.passages("d")) == ["word"]
    for character in "next":
        replaced.add("d", 50, character)
    assert text_of(replaced.passages("d")) == ["word", "next"]


def test_a_request_pays_nothing_for_the_length_of_what_was_replaced() -> None:
    """Tokenising is the feeding thread's work; what is left for the request is bounded."""
    asked: list[int] = []

    def counting(text: str) -> list[int]:
        asked.append(len(text))
        return encode(text)

    replaced = ReplacedText(counting)
    for number in range(8):
        replaced.add("d", number * 100_000, "x" * 20_000)
    for at in range(5000, 0, -1):
        replaced.add("d", at, "y")
    replaced.add("d", 900_000, "z")
    asked.clear()
    assert text_of(replaced.passages("d", count=1)) == ["z"]
    replaced.passages("d")
    assert sum(asked) < 300
    assert sum(map(len, replaced.passages("d"))) <= 8 * 2_000


def test_the_documents_own_latest_passage_comes_last() -> None:
    replaced = ReplacedText(encode)
    replaced.add("d", 0, "mine, old")
    replaced.add("d", 90, "mine, new")
    replaced.add("e", 0, "other")
    assert text_of(replaced.passages("d")) == ["other", "mine, old", "mine, new"]
    assert text_of(replaced.passages("d", count=1)) == ["mine, new"]


def test_replaced_text_is_bounded_and_cleared() -> None:
    replaced = ReplacedText(encode, max_passages=5)
    for number in range(20):
        replaced.add("d", number * 100, f"text {number}")
    assert text_of(replaced.passages("d", count=99)) == [f"text {n}" for n in range(15, 20)]
    replaced.add("d", 0, "")
    replaced.clear()
    assert replaced.passages("d") == []
