"""Which characters after the cursor a completion already contains: what the editor closed by itself.

An editor that turns ``foo(`` into ``foo()`` leaves the cursor before a bracket that the model, which does not
know of it, writes again. The completion then replaces it.
"""

from __future__ import annotations

PAIRS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = frozenset(PAIRS.values())
QUOTES = frozenset("\"'`")
PUNCTUATION = frozenset(";,:")
LONG_QUOTES = ('"""', "'''", "```")


def replaced_after(before: str, text: str, after: str) -> int:
    """How many characters of ``after`` the completion ``text`` stands for.

    Args:
        before: the cursor's line up to the cursor.
        text: the completion, possibly of several lines.
        after: the cursor's line from the cursor on.
    """
    rest = after.rstrip()
    if not rest:
        return 0
    if not only_closes(rest):
        if text.rstrip().endswith(rest):
            return len(rest)
        return _rest_of_word(before, text, rest)
    if all(c in PUNCTUATION for c in rest) or rest.startswith(LONG_QUOTES):
        return len(rest) if text.rstrip().endswith(rest) else 0
    closers, still_open = _closed_and_opened(text, _open_quote(before, text, rest))
    matched = 0
    end = -1
    for position, closer in closers:
        if matched >= len(rest) or rest[matched] != closer:
            break
        matched, end = matched + 1, position
    if kept := _closes_again(rest[:matched], still_open):
        return matched - kept
    while matched and end + 1 < len(text) and matched < len(rest):
        if rest[matched] not in PUNCTUATION or rest[matched] != text[end + 1]:
            break
        matched, end = matched + 1, end + 1
    return matched


def _closes_again(closers: str, still_open: list[str]) -> int:
    """How many of the last ``closers`` close what the text opened after it had closed them: ``x) + bar(y``."""
    for count in range(min(len(closers), len(still_open)), 0, -1):
        if list(closers[-count:]) == still_open[: -count - 1 : -1]:
            return count
    return 0


def only_closes(rest: str) -> bool:
    """True for text that only closes what is open: brackets, quotes, and what may follow them."""
    return all(c in CLOSERS or c in QUOTES or c in PUNCTUATION or c.isspace() for c in rest)


def _rest_of_word(before: str, text: str, rest: str) -> int:
    """Inside a word (``pri|nt``) a completion that spells the rest of the word stands for it."""
    word = 0
    while word < len(rest) and _is_word(rest[word]):
        word += 1
    inside = bool(before) and _is_word(before[-1]) and word > 0
    spelled = text.startswith(rest[:word]) and not (len(text) > word and _is_word(text[word]))
    return word if inside and spelled else 0


def _open_quote(before: str, text: str, rest: str) -> str:
    """The quote that is open at the cursor, or an empty string; apostrophes of plain text are not quotes."""
    quote = ""
    position = 0
    while position < len(before):
        c = before[position]
        if c == "\\":
            position += 1
        elif quote:
            quote = "" if c == quote else quote
        elif c in QUOTES and not (c == "'" and position and _is_word(before[position - 1])):
            quote = c
        position += 1
    return quote if quote and (quote in text or quote in rest) else ""


def _closed_and_opened(text: str, quote: str) -> tuple[list[tuple[int, str]], list[str]]:
    """(position, character) of what the text closes but did not open, and the closers of what it leaves open,
    the innermost last; ``quote`` is open before it."""
    found: list[tuple[int, str]] = []
    stack: list[str] = []
    outer = quote
    position = 0
    while position < len(text):
        c = text[position]
        if c == "\\":
            position += 1
        elif quote:
            if c == quote:
                if outer:
                    found.append((position, c))
                quote = outer = ""
            elif c == "\n" and quote != "`":
                quote = outer = ""
        elif c in QUOTES and not (c == "'" and position and _is_word(text[position - 1])):
            quote = c
        elif c in PAIRS:
            stack.append(PAIRS[c])
        elif c in CLOSERS:
            if stack and stack[-1] == c:
                stack.pop()
            else:
                found.append((position, c))
        position += 1
    if quote and not outer:
        stack.append(quote)
    return found, stack


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
