"""What a keystroke evaluates, and the typist who makes the keystrokes."""

import argparse
import configparser
import statistics
import textwrap

import pytest

from benchmarks.keystrokes import LIMIT, Replay
from benchmarks.keystrokes_typist import Typist
from speculation.tokenizer import Tokenizer


def typed_out(text, first, last):
    typist = Typist(text, first, last)
    keys = []
    while typist.rest:
        keys.append(typist.press())
    return typist, keys


@pytest.mark.parametrize(
    "typed",
    [
        "def f(a, b):\n    return a[0] + b(1)\n\n\ndef g():\n    pass",
        "if x:\n    if y:\n        print('it', \"is\")\n    else:\n        pass\nz = {}",
        "it's = 1  # isn't it",
        "f(g(h([1])))",
    ],
)
def test_what_the_typist_types_is_what_was_missing(typed):
    text = f"import a\n{typed}\nend = 1"
    typist, _ = typed_out(text, 1, 1 + typed.count("\n") + 1)
    assert typist.place.text() == text
    assert typist.place.offset() == len("import a\n") + len(typed)


def test_brackets_close_themselves_and_are_typed_over():
    _, keys = typed_out("\nf(x)\n", 1, 2)
    assert keys == ["key", "open", "key", "over"]


def test_enter_indents_and_backspace_takes_it_back():
    _, keys = typed_out("\nif x:\n    y\nz\n", 1, 4)
    assert keys == ["key"] * 5 + ["enter", "key", "enter", "backspace", "key"]


def test_an_accepted_answer_takes_the_closer_with_it():
    typist = Typist("\nf(x)\n", 1, 2)
    typist.press()
    typist.press()
    assert typist.place.after == ")"
    typist.accept("x)", replaced=1)
    assert typist.place.text() == "\nf(x)\n" and not typist.rest


def check(report):
    assert len(report.new) == 500
    assert {"open", "over", "enter", "backspace", "accept", "key"} <= set(report.keys)
    assert report.returns and max(report.returns) <= LIMIT
    assert min(report.arrivals) > 300  # what is counted is not nothing


@pytest.mark.slow
def test_a_keystroke_that_keeps_the_anchor_evaluates_few_new_tokens(tokenizer):
    report = Replay(tokenizer, [configparser, textwrap]).run(500)
    check(report)
    kept = len(report.new) - len(report.moving)
    assert (sum(report.new) - sum(report.moving)) / kept <= LIMIT
    assert statistics.median(report.new) <= 1


@pytest.mark.model
@pytest.mark.slow
def test_a_keystroke_evaluates_few_new_tokens_with_the_default_models_tokenizer():
    from cache.models import default_model, resolve

    tokenizer = Tokenizer.from_file(resolve(default_model("cpu")).tokenizer)
    report = Replay(tokenizer, [argparse, configparser]).run(500)
    check(report)
    assert statistics.mean(report.new) <= LIMIT
