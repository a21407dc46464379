"""The request's own text as a source: what stands before the cursor, what was generated, and the suffix.

Prompt lookup (Saxena 2023) with two changes that edits need: the longest match wins instead of the first n that
matches, and among equals the most recent. The text is kept as a string of one character per token, so that
looking for a gram is `str.rfind`: no index to build while the user types.
"""

from __future__ import annotations

from collections.abc import Sequence

from speculation.draft import Draft, DraftRequest, Origin

MATCHES = 24  # places looked at per gram, most recent first
LONGEST = 64  # match lengths above this are all the same
BREAK = "\U0010ffff"  # stands between stretches of text that do not follow each other; no token id is that high


def encode(tokens: Sequence[int]) -> str:
    """Token ids as a string, one character each, so that grams can be searched at C speed."""
    return "".join(map(chr, tokens))


def decode(text: str) -> list[int]:
    """The token ids of an encoded string."""
    return list(map(ord, text))


def match_length(text: str, end: int, context: str, known: int = 0) -> int:
    """How many characters before ``text[end]`` equal the end of ``context``; ``known`` of them are known to."""
    length = known
    limit = min(end, len(context), LONGEST)
    while length < limit and text[end - 1 - length] == context[-1 - length]:
        length += 1
    return length


class PromptLookupProposer:
    """Continuations of the longest match of the context's end in the request itself."""

    name = "request"

    def __init__(self) -> None:
        self._before = ""  # other files and the suffix: complete when the request begins
        self._context = ""  # prefix + middle + committed: grows
        self._text = ""

    def start(self, request: DraftRequest) -> None:
        """A new request begins."""
        self._before = encode(request.context) + BREAK + encode(request.suffix) + BREAK
        self._context = encode(request.prefix) + encode(request.middle)
        self._text = self._before + self._context

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens were committed at the end of the context."""
        added = encode(tokens)
        self._context += added
        self._text += added

    def propose(self, limit: int) -> Sequence[Draft]:
        """Chains of at most ``limit`` tokens, longest match first, then share of the vote, then recency."""
        places = self._places()
        if not places or limit <= 0:
            return ()
        text = self._text
        longest = max(length for length, _ in places)
        votes: dict[str, int] = {}
        for length, end in places:
            if length == longest:
                votes[text[end]] = votes.get(text[end], 0) + 1
        total = sum(votes.values())
        drafts: dict[str, tuple[tuple[int, float, int], Draft]] = {}
        for length, end in places:
            first = text[end]
            vote = votes.get(first, 0) / total if length == longest else 0.0
            key = (length, vote, end)
            if first not in drafts or drafts[first][0] < key:
                chain = text[end : end + limit].partition(BREAK)[0]
                drafts[first] = (key, Draft(decode(chain), Origin(self.name, length, vote)))
        return [draft for _, draft in sorted(drafts.values(), key=lambda found: found[0], reverse=True)]

    def _places(self) -> list[tuple[int, int]]:
        """(match length, position of the next token) of recent places that end like the context."""
        text, context = self._text, self._context
        found: dict[int, int] = {}
        for size in (2, 1):
            gram = context[-size:]
            if len(gram) < size:
                continue
            stop = len(text) - 1  # the context itself has no next token
            for _ in range(MATCHES):
                at = text.rfind(gram, 0, stop)
                if at < 0:
                    break
                end = at + size
                if end not in found and text[end] != BREAK:
                    found[end] = match_length(text, end, context, size)
                stop = end - 1
            if found:
                break
        return [(length, end) for end, length in found.items()]
