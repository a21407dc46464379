"""The anchor is held while lines are typed, and moves ahead of need."""

from __future__ import annotations

from benchmarks.keystrokes import ScriptedVerifier
from lsp_server.anchor import DUE_LINES, MOST_LINES, Anchor
from lsp_server.documents import Place
from speculation.completion import Completer
from speculation.request import CompletionRequest

ABOVE = tuple(f"value_{number} = {number}" for number in range(40))
BELOW = tuple(f"other_{number} = {number}" for number in range(20))


def after(lines: int) -> Place:
    """The place behind so many typed lines."""
    return Place((*ABOVE, *(["    typed()"] * lines), "", *BELOW), len(ABOVE) + lines, 0)


def test_it_is_due_when_it_is_held_some_lines_above() -> None:
    anchor = Anchor()
    assert not anchor.due(after(5)), "none is held"
    anchor.at(after(0))
    due = [lines for lines in range(MOST_LINES + 3) if anchor.due(after(lines))]
    assert due == list(range(DUE_LINES, MOST_LINES + 1))


def test_one_that_was_prepared_is_taken_by_the_next_request_that_it_fits() -> None:
    anchor = Anchor()
    first, _ = anchor.at(after(0))
    held = anchor.ahead(after(4))
    assert anchor.at(after(4))[0] == first, "not before it is adopted"
    anchor.adopt(held)
    line, frozen = anchor.at(after(5))
    assert (line, frozen) == (first + 4, held.frozen)
    anchor.adopt(anchor.ahead(after(8)))
    assert anchor.at(after(5))[0] == first + 4, "the cursor has gone back above it"
    assert anchor.at(after(9))[0] == first + 4, "and what did not fit then is forgotten"


def test_a_request_after_a_move_in_idle_time_evaluates_next_to_nothing(tokenizer) -> None:  # type: ignore[no-untyped-def]
    completer, anchor = Completer(ScriptedVerifier(tokenizer), tokenizer, prompt_tokens=600), Anchor()

    def asked(place: Place, held: tuple[int, object], only: bool = False) -> int:
        line, frozen = held
        request = CompletionRequest(
            place.text(),
            place.offset(),
            anchor_line=line,
            frozen_prompt=frozen,  # type: ignore[arg-type]
            max_tokens=2,
            prompt_only=only,
        )
        completion = completer.start(request)
        completion.run()
        assert only == (completion.metrics.forwards == 0)
        return completion.metrics.new_tokens

    asked(after(0), anchor.at(after(0)))
    asked(after(4), anchor.at(after(4)))
    ahead = anchor.ahead(after(4))
    moved = asked(after(4), (ahead.place.line, ahead.frozen), only=True)
    anchor.adopt(ahead)
    assert asked(after(12), anchor.at(after(12))) < 100 < moved, (
        "one that had to move now would evaluate it all"
    )
