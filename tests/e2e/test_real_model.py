"""The real 0.5B model: equal to transformers, the same text with forced drafts, sensible code from the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.exactness import SAMPLINGS, Forced, ids_of, library_places
from speculation.draft import NoDrafter

pytestmark = [pytest.mark.model, pytest.mark.slow]
MODEL = "qwen2.5-coder-0.5b-q4"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def all_cores():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def eager():
    """The reference engine in float32; its prompts are short, as a pass costs 0.15 s and more."""
    from speculation.loading import load_engine

    return load_engine(MODEL, engine="eager", dtype="float32")


@pytest.fixture(scope="module")
def fast():
    """The default engine on this machine."""
    from speculation.loading import load_engine

    return load_engine(MODEL)


def places(count, tokens, lines=16):
    for request in library_places(count, seed=4):
        start = request.text.rfind("\n", 0, max(0, request.offset - 40 * lines)) + 1
        end = request.offset + 400
        yield replace(request, text=request.text[start:end], offset=request.offset - start, max_tokens=tokens)


@pytest.mark.parametrize("number", range(8))
def test_float32_text_is_the_same_with_forced_drafts(number, eager):
    request = list(places(8, 32))[number]
    request = replace(request, sampling=SAMPLINGS["sampled" if number % 2 else "greedy"])
    eager.drafter = NoDrafter()
    plain = ids_of(eager, request)
    forced = Forced(plain, eager.verifier.capabilities.vocab_size, min(eager.markers.end_ids), number, True)
    eager.drafter = forced
    assert ids_of(eager, request) == plain
    assert forced.drafted > 0


@pytest.mark.parametrize("number", range(3))
def test_greedy_ids_equal_transformers_generate(number, eager):
    import torch

    request = list(places(3, 16))[number]
    line_start = request.text.rfind("\n", 0, request.offset) + 1
    eager.drafter = NoDrafter()
    completion = eager.start(replace(request, offset=line_start))  # nothing typed: no healing mask
    completion.run()
    prompt = torch.tensor([completion.prompt.tokens])
    expected = eager.verifier._model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=16,
        do_sample=False,
        eos_token_id=sorted(eager.markers.end_ids),
        pad_token_id=min(eager.markers.end_ids),
    )
    assert completion.decoder.end.committed == expected[0, prompt.shape[1] :].tolist()


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("half", [0, 1])
def test_the_fast_engines_text_is_the_same_to_the_bit(sampling, half, fast):
    drafted = 0
    for number, request in enumerate(list(places(10, 24, lines=12))[half::2]):
        request = replace(request, sampling=SAMPLINGS[sampling])
        fast.drafter = NoDrafter()
        plain = ids_of(fast, request)
        forced = Forced(plain, fast.verifier.capabilities.vocab_size, min(fast.markers.end_ids), number, True)
        fast.drafter = forced
        assert ids_of(fast, request) == plain
        drafted += forced.drafted
    assert drafted > 100


def test_the_command_completes_a_file_of_300_lines_and_its_metrics_add_up(tmp_path):
    source = (REPOSITORY / "examples/inventory.py").read_text()
    head, tail = source.split('if __name__ == "__main__":')
    long = head + "\n\n".join(
        f"def restock_{n}(inventory: Inventory) -> Item:\n    return inventory.add('part {n}', {n}.5, {n})\n\n"
        for n in range(75)
    )
    file = tmp_path / "inventory.py"
    file.write_text(long + '\nif __name__ == "__main__":' + tail)
    assert file.read_text().count("\n") > 300
    done = subprocess.run(
        [f"{sys.prefix}/bin/spec-complete", "complete", file, "--at", "41:15", "--json", "--no-daemon"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    m = answer["metrics"]
    assert "price" in answer["text"] and "quantity" in answer["text"] and "items" in answer["text"]
    compile("def total_value(self):\n        return" + answer["text"], "answer", "exec")
    assert m["committed"] == m["text_tokens"] + m["end_tokens"] + m["trimmed_tokens"]
    assert len(answer["token_ids"]) == m["text_tokens"] and m["forwards"] <= m["committed"]
    assert m["drafted"] >= m["accepted"] and m["new_tokens"] == m["prompt_tokens"]
    stages = [m[f"{s}_ms"] for s in ("queue", "tokenise", "prefill", "draft", "verify", "sample", "post")]
    assert abs(m["total_ms"] - sum(stages)) <= max(0.02 * m["total_ms"], 1)


def test_typing_inside_a_word_completes_that_word(fast):
    from speculation.request import CompletionRequest

    fast.drafter = NoDrafter()
    for typed, word in (("impo", "import"), ("print(self.na", "self.name")):
        text = "class A:\n    def __init__(self, name):\n        self.name = name\n\n    def show(self):\n        "
        if typed == "impo":
            text = '"""Reads a table."""\n\n'
        completion = fast.start(
            CompletionRequest(text + typed, len(text + typed), max_tokens=12, stop="line")
        )
        completion.run()
        assert (typed + completion.text).startswith(word) or word in typed + completion.text
