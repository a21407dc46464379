"""The line-anchored fill-in-the-middle prompt, as token ids.

prefix = whole lines above the anchor line, suffix = what follows the cursor, and the text typed since the anchor is
the beginning of the middle, forced. While the user types on a line, prefix and suffix stay the same and so does
their KV. The window into a long file begins at a line number that is a multiple of `WINDOW_STEP`, so that it does
not slide with every new line. A prompt is a pure function of (document, cursor, anchor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from speculation.families import Markers
from speculation.healing import back_off
from speculation.request import CompletionRequest
from speculation.stop import Surroundings
from speculation.tokenizer import Tokenizer

WINDOW_STEP = 32  # lines
CHARACTERS_PER_TOKEN = 12  # more than code ever has on average: bounds what is tokenised at all
SUFFIX_SHARE = 0.25  # of the budget for document text; what one side does not need the other gets
LEAST_FILE = 32  # tokens of another file that are worth a heading
MOST_HEADING = 24  # tokens of a path or a repository's name
CONTEXT_SHARE = 0.25  # of the whole budget, for other files
MIDDLE_STEP = (
    128  # tokens: room for the middle grows in steps, so that typing moves neither prefix nor suffix
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ids of a prompt and the parts that drafters and stop rules look at."""

    tokens: list[int]
    prefix: list[int]
    suffix: list[int]
    middle: list[int]  # forced middle, without what is left to be spelled
    context: list[int]
    required: bytes  # typed bytes that generation has to spell first (token healing)
    anchored: int  # leading tokens that stay the same while the line is typed
    anchor_line: int  # 0-based
    surroundings: Surroundings


def build_prompt(
    request: CompletionRequest, tokenizer: Tokenizer, markers: Markers, budget: int, most: int | None = None
) -> Prompt:
    """The prompt of a request.

    Args:
        request: text with ``\\n`` line ends; the offset is clamped to it.
        budget: tokens at most, forced middle included; at least 64.
        most: what a long forced middle may take the prompt to instead, so that neither prefix nor suffix gives
            way to it; by default the budget.
    """
    most = max(budget, most or 0)
    text = request.text
    offset = min(max(request.offset, 0), len(text))
    anchor_line, prefix_text, middle_text, suffix_text = _split(request, text, offset)

    middle, required = _forced_middle(tokenizer, middle_text, request.forced_ids)
    step = min(MIDDLE_STEP, budget // 4)
    above = max(1, len(middle) - (most - budget))
    left = max(32, budget - 16 - -(-above // step) * step)  # 16: markers and start token
    middle = middle[-(most - 16 - 32) :]
    context = _context(request, tokenizer, markers, int(left * CONTEXT_SHARE))
    left -= len(context)
    uses_suffix = markers.family.order != "prefix"
    suffix_lines = list(encode_head(tokenizer, suffix_text, left)) if uses_suffix else []
    prefix_want = encode_tail(tokenizer, prefix_text, left, markers.family.prefix_lead)
    suffix_budget = max(int(left * SUFFIX_SHARE), left - len(prefix_want))
    if len(suffix_lines) > suffix_budget:
        suffix_lines = list(encode_head(tokenizer, suffix_text, suffix_budget))
    prefix_budget = left - len(suffix_lines)
    prefix = list(
        prefix_want
        if len(prefix_want) <= prefix_budget
        else encode_tail(tokenizer, prefix_text, prefix_budget, markers.family.prefix_lead)
    )
    anchored = _layout(markers, context, prefix, suffix_lines)
    return Prompt(
        tokens=[*anchored, *middle],
        prefix=prefix,
        suffix=suffix_lines,
        middle=middle,
        context=context,
        required=required,
        anchored=len(anchored),
        anchor_line=anchor_line,
        surroundings=_surroundings(text, offset),
    )


def _split(request: CompletionRequest, text: str, offset: int) -> tuple[int, str, str, str]:
    """(anchor line, prefix, middle, suffix) as text."""
    frozen = request.frozen_prompt
    if frozen is not None and len(frozen.prefix) <= offset and text.startswith(frozen.prefix):
        return frozen.prefix.count("\n"), frozen.prefix, text[len(frozen.prefix) : offset], frozen.suffix
    cursor_line = text.count("\n", 0, offset)
    anchor = cursor_line if request.anchor_line is None else min(max(request.anchor_line, 0), cursor_line)
    start = offset
    for _ in range(cursor_line - anchor + 1):
        start = text.rfind("\n", 0, start) if start > 0 else -1
        if start < 0:
            break
    begin = start + 1
    return anchor, text[:begin], text[begin:offset], text[offset:]


def _forced_middle(tokenizer: Tokenizer, typed: str, forced: Sequence[int]) -> tuple[list[int], bytes]:
    """Ids that stand for what was typed, and the bytes left for token healing.

    Generated ids of text that was typed through are kept as far as they agree with what was typed.
    """
    data = typed.encode("utf-8", errors="surrogatepass")
    kept: list[int] = []
    covered = 0
    for token in forced:
        piece = tokenizer.bytes_of(token)
        if not piece or data[covered : covered + len(piece)] != piece:
            break
        kept.append(token)
        covered += len(piece)
    rest = data[covered:]
    if forced and len(kept) == len(forced) and not rest:
        return kept, b""
    if forced and len(kept) < len(forced) and tokenizer.bytes_of(forced[len(kept)]).startswith(rest):
        return kept, rest  # in the middle of a generated token: it is spelled again
    try:
        rest_text = rest.decode("utf-8")
    except UnicodeDecodeError:  # the generated ids end inside a character: start over from the text
        kept, rest_text = [], typed
    healed_from = back_off(tokenizer, rest_text)
    ids = tokenizer.encode(rest_text[:healed_from]) if healed_from else []
    return [*kept, *ids], rest_text[healed_from:].encode("utf-8", errors="surrogatepass")


def _layout(markers: Markers, context: list[int], prefix: list[int], suffix: list[int]) -> list[int]:
    start = [] if markers.start is None else [markers.start]
    family = markers.family
    if family.order == "prefix":
        return [*start, *context, *prefix] or _something(markers)
    assert markers.prefix is not None and markers.suffix is not None
    before = [markers.prefix, *prefix]
    after = [markers.suffix, *suffix]
    ordered = [*before, *after] if family.order == "psm" else [*after, *before]
    return [*start, *context, *ordered, *([] if markers.middle is None else [markers.middle])]


def _something(markers: Markers) -> list[int]:
    """A prompt cannot be empty: an empty file of a model without markers begins with its end-of-text token."""
    return [min(markers.end_ids, default=0)]


def _context(request: CompletionRequest, tokenizer: Tokenizer, markers: Markers, budget: int) -> list[int]:
    """Other files in the family's own format, most stable first, whole files or their beginnings."""
    family = markers.family
    if markers.file is None and family.file_text is None:
        return []

    def heading(path: str) -> list[int]:
        if markers.file is not None:
            return [markers.file, *tokenizer.encode(path + "\n")]
        return tokenizer.encode(f"{family.file_text}{path}\n")

    own = heading(request.path.rsplit("/", 1)[-1] or "untitled")[:MOST_HEADING]
    ids: list[int] = []
    if markers.repository is not None:
        name = _repository_name(request.root) + family.repository_end
        ids = [markers.repository, *tokenizer.encode(name)[:MOST_HEADING]]
    files = 0
    for path, text in request.context:
        head = heading(path)
        room = budget - len(ids) - len(head) - len(own)
        if room < LEAST_FILE:
            break
        ids += [*head, *encode_head(tokenizer, text.rstrip("\n") + "\n", room)]
        files += 1
    if files:
        return [*ids, *own]
    return own if family.always_file else []


def _repository_name(root: str) -> str:
    return root.rstrip("/").rsplit("/", 1)[-1] or "workspace"


def _surroundings(text: str, offset: int) -> Surroundings:
    line_start = text.rfind("\n", 0, offset) + 1
    below = text.find("\n", offset)
    next_line = ""
    while below >= 0 and not next_line.strip():
        end = text.find("\n", below + 1)
        next_line = text[below + 1 : end if end >= 0 else len(text)]
        below = end
    return Surroundings(text[line_start:offset], next_line if next_line.strip() else "")


@lru_cache(maxsize=32)
def encode_head(tokenizer: Tokenizer, text: str, budget: int) -> tuple[int, ...]:
    """The first at most ``budget`` tokens of a text, cut at a line end where that loses less than half."""
    text = text[: budget * CHARACTERS_PER_TOKEN]
    ids = tokenizer.encode(text)
    if len(ids) <= budget:
        return tuple(ids)
    end = tokenizer.pieces(text)[budget - 1][1] if budget > 0 else 0
    line_end = text.rfind("\n", 0, end) + 1
    cut = tokenizer.encode(text[: line_end if line_end > end // 2 else end])
    return tuple(cut[:budget])


@lru_cache(maxsize=32)
def encode_tail(tokenizer: Tokenizer, text: str, budget: int, lead: str = "") -> tuple[int, ...]:
    """The last at most ``budget`` tokens of a text, from a line number that is a multiple of `WINDOW_STEP`.

    ``lead`` is put before the text. Where no such line is in reach the window begins at any line, and inside a
    line only if that line is too long.
    """
    if budget <= 0:
        return ()
    skipped = max(0, len(text) - budget * CHARACTERS_PER_TOKEN)
    tail = text[skipped:]
    ids = tokenizer.encode(lead + tail)
    if len(ids) <= budget and not skipped:
        return tuple(ids)
    pieces = tokenizer.pieces(tail)
    first = pieces[max(0, len(pieces) - budget)][0] if pieces else 0
    begin = _window_start(text, skipped + first)
    return tuple(tokenizer.encode(lead + text[begin:])[-budget:])


def _window_start(text: str, least: int) -> int:
    """The first window start at or after ``least`` (code points)."""
    line = text.count("\n", 0, least)
    start = text.rfind("\n", 0, least) + 1
    if start < least:
        start = text.find("\n", least) + 1
        line += 1
        if start == 0:
            return least  # the last line alone is longer than the budget
    any_line = start if start < len(text) else least
    while line % WINDOW_STEP:
        start = text.find("\n", start) + 1
        line += 1
        if start == 0:
            return any_line
    return start if start < len(text) else any_line
