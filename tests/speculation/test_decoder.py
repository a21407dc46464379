"""The decoder is right: equal to transformers' own generation, and the same with and without drafts."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from speculation.completion import Completer
from speculation.decoder import Decoder
from speculation.draft import NoDrafter
from speculation.healing import Healing
from speculation.request import CompletionMetrics, CompletionRequest
from speculation.sampling import SamplingParameters
from speculation.stop import StopRules
from speculation.text_end import TextEnd
from speculation.verifier.base import OutOfMemoryError
from speculation.verifier.eager import EagerVerifier
from speculation.verifier.graphs import GraphsVerifier
from tests.conftest import random_model
from tests.speculation.forcing import ForcingDrafter

SETTINGS = {
    "greedy": SamplingParameters(),
    "warm": SamplingParameters(temperature=0.8),
    "top-k": SamplingParameters(temperature=1.0, top_k=20),
    "top-p": SamplingParameters(temperature=1.3, top_p=0.9, repetition_penalty=1.2),
    "min-p": SamplingParameters(temperature=1.0, min_p=0.05, repetition_penalty=0.9),
}


def decode(verifier, tokenizer, prompt, drafter, sampling, max_tokens=24, end_ids=(), checks=None):
    """Decodes a prompt of ids on a fresh slot; (committed ids, metrics)."""
    slot = verifier.open_slot()
    verifier.prefill(slot, prompt[:-1])
    metrics = CompletionMetrics()
    stop = StopRules("none", end_ids, max_tokens)
    end = TextEnd(
        prompt,
        sampling=sampling,
        stop=stop,
        healing=Healing(tokenizer, b"", verifier.capabilities.vocab_size),
        tokenizer=tokenizer,
        first_position=0,
    )
    decoder = Decoder(verifier, slot, end, drafter, metrics)
    while not decoder.done:
        before = len(end.committed)
        committed = decoder.round()
        assert committed and end.committed[before:] == committed
        assert verifier.length(slot) == len(prompt) + len(end.committed) - 1
    verifier.close_slot(slot)
    return end.committed, metrics


def prompts(count, vocab_size, seed=0):
    chooser = random.Random(seed)
    return [[chooser.randrange(vocab_size) for _ in range(chooser.randrange(2, 40))] for _ in range(count)]


@pytest.mark.parametrize("kind", ["qwen2", "llama", "starcoder2"])
def test_greedy_ids_equal_transformers_generate(kind, tokenizer):
    model = random_model(kind, dtype="float32")
    verifier = EagerVerifier(model)
    for prompt in prompts(20, 640):
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        ids, _ = decode(verifier, tokenizer, prompt, NoDrafter(), SamplingParameters())
        assert ids == expected[0, len(prompt) :].tolist()


@pytest.mark.timeout(400)  # half a minute, and machines may be busy
@pytest.mark.parametrize("setting", SETTINGS)
def test_text_is_the_same_with_and_without_speculation(setting, tiny_model, tokenizer):
    verifier = EagerVerifier(tiny_model)
    drafted = accepted = 0
    for number, prompt in enumerate(prompts(20, 640)):
        for seed in range(1 if setting == "greedy" else 5):
            base = SETTINGS[setting]
            sampling = SamplingParameters(
                base.temperature, base.top_k, base.top_p, base.min_p, base.repetition_penalty, seed
            )
            plain, _ = decode(verifier, tokenizer, prompt, NoDrafter(), sampling, max_tokens=10)
            end_ids = [plain[-1]] if number % 3 == 0 else []
            plain = plain[: plain.index(end_ids[0]) + 1] if end_ids else plain
            forcing = ForcingDrafter(
                number * 7 + seed, 640, truth=plain, end_ids=end_ids, trees=bool(seed % 2)
            )
            drafts, metrics = decode(verifier, tokenizer, prompt, forcing, sampling, 10, end_ids)
            assert drafts == plain
            assert metrics.accepted <= metrics.drafted and metrics.forwards <= metrics.committed
            drafted += metrics.drafted
            accepted += metrics.accepted
    assert drafted > 200 and accepted > 40, "drafts were forced and some were right"


@pytest.mark.parametrize("trees", [False, True])
def test_where_the_engine_gives_the_best_tokens_greedy_decoding_asks_for_no_logits(
    trees, tiny_model, tokenizer, monkeypatch
):
    verifier = GraphsVerifier(copy.deepcopy(tiny_model))  # it puts its own attention into the model
    prompt = prompts(1, 640, seed=3)[0]
    expected, _ = decode(EagerVerifier(tiny_model), tokenizer, prompt, NoDrafter(), SamplingParameters())
    warm = SamplingParameters(temperature=0.8)
    warm_ids, _ = decode(verifier, tokenizer, prompt, NoDrafter(), warm)
    monkeypatch.setattr(verifier, "verify", lambda *_: pytest.fail("logits were asked for"))
    for drafter in (NoDrafter(), ForcingDrafter(1, 640, truth=expected, trees=trees)):
        assert decode(verifier, tokenizer, prompt, drafter, SamplingParameters())[0] == expected
    monkeypatch.undo()
    monkeypatch.setattr(verifier, "verify_best", lambda *_: pytest.fail("p cannot be had from them"))
    assert decode(verifier, tokenizer, prompt, NoDrafter(), warm)[0] == warm_ids
    for sampling in (warm, SamplingParameters(repetition_penalty=1.2)):
        decode(verifier, tokenizer, prompt, ForcingDrafter(1, 640), sampling)


def test_the_best_tokens_do_not_do_while_typed_text_is_spelled(tokenizer):
    for required in (b"", b"ret"):
        end = TextEnd(
            [1],
            sampling=SamplingParameters(),
            stop=StopRules("none", (), 9),
            healing=Healing(tokenizer, required, 640),
            tokenizer=tokenizer,
            first_position=0,
        )
        assert end.takes_best == (not required)


@pytest.mark.parametrize("accepted", range(9))
def test_kv_holds_prompt_and_committed_but_the_last_for_every_accepted_length(
    accepted, tiny_model, tokenizer
):
    verifier = EagerVerifier(tiny_model)
    prompt = prompts(1, 640)[0]
    truth, _ = decode(verifier, tokenizer, prompt, NoDrafter(), SamplingParameters(), 20)

    class Exactly(ForcingDrafter):
        def draft(self, limit):
            draft = super().draft(limit)
            right = self._truth[self._done : self._done + accepted]
            wrong = [(t + 1) % 640 for t in self._truth[self._done + accepted : self._done + 8]]
            return type(draft)([*right, *wrong], draft.origin)

    drafter = Exactly(1, 640, truth)
    ids, _ = decode(verifier, tokenizer, prompt, drafter, SamplingParameters(), 20)
    assert ids == truth
    assert {len(r.accepted) for r in drafter.rounds[:1]} == {accepted}


def test_an_end_token_inside_an_accepted_draft_ends_the_text(tiny_model, tokenizer):
    verifier = EagerVerifier(tiny_model)
    prompt = prompts(1, 640, seed=5)[0]
    truth, _ = decode(verifier, tokenizer, prompt, NoDrafter(), SamplingParameters(), 20)
    end = truth[3]
    first = truth.index(end)
    ids, _ = decode(
        verifier, tokenizer, prompt, ForcingDrafter(3, 640, truth), SamplingParameters(), 20, [end]
    )
    assert ids == truth[: first + 1]


def test_the_context_end_stops_generation_without_an_error(tiny_model, tokenizer):
    verifier = EagerVerifier(tiny_model)
    prompt = [5] * 500
    ids, metrics = decode(verifier, tokenizer, prompt, ForcingDrafter(1, 640), SamplingParameters(), 100)
    assert len(ids) == 512 - 499 and metrics.forwards >= 1


class Repeating(ForcingDrafter):
    """Always drafts the same tokens."""

    def draft(self, limit):
        from speculation.draft import Draft

        return Draft([1, 2, 3])


def test_completer_runs_and_its_metrics_add_up(tiny_model, tokenizer):
    completer = Completer(
        EagerVerifier(tiny_model, "tiny"), tokenizer, drafter=Repeating(0, 640), prompt_tokens=200
    )
    text = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return "
    for stop in ("none", "line", "block"):
        completion = completer.start(CompletionRequest(text, len(text), max_tokens=12, stop=stop))
        completion.run()
        m = completion.metrics
        assert completion.finish_reason in {"length", "line", "block", "end", "suffix"}
        assert m.committed == m.text_tokens + m.end_tokens + m.trimmed_tokens
        assert len(completion.token_ids) == m.text_tokens
        assert m.reused_tokens + m.new_tokens == m.prompt_tokens
        assert m.forwards <= m.committed and m.accepted <= m.drafted


def test_a_second_request_reuses_the_anchored_prompt(tiny_model, tokenizer):
    completer = Completer(EagerVerifier(tiny_model, "tiny"), tokenizer, prompt_tokens=300)
    text = "import os\n" * 20 + "def f(x):\n    ret"
    first = completer.start(CompletionRequest(text, len(text), max_tokens=4))
    first.run()
    typed = text + "urn"
    second = completer.start(CompletionRequest(typed, len(typed), max_tokens=4))
    second.run()
    assert second.metrics.new_tokens <= 3
    fresh = Completer(EagerVerifier(tiny_model, "tiny"), tokenizer, prompt_tokens=300)
    again = fresh.start(CompletionRequest(typed, len(typed), max_tokens=4))
    again.run()
    assert again.token_ids == second.token_ids


class Starved(EagerVerifier):
    """Runs out of memory a given number of times."""

    failures = 0

    def _forward(self, *arguments, **options):
        if self.failures:
            self.failures -= 1
            raise OutOfMemoryError("no memory left")
        return super()._forward(*arguments, **options)


def test_out_of_memory_is_answered_once_with_a_shorter_prompt(tiny_model, tokenizer):
    text = "import os\n" * 80
    verifier = Starved(tiny_model, "tiny")
    completer = Completer(verifier, tokenizer, prompt_tokens=400)
    verifier.failures = 1
    completion = completer.start(CompletionRequest(text, len(text), max_tokens=4))
    before = len(completion.prompt.tokens)
    completion.run()
    assert completion.finish_reason and completion.metrics.prompt_tokens < before
    assert completer.prompt_tokens == 200
    assert completion.metrics.new_tokens + completion.metrics.reused_tokens == len(completion.prompt.tokens)


def test_out_of_memory_twice_is_the_callers_and_leaves_the_completer_working(tiny_model, tokenizer):
    text = "import os\n" * 20
    verifier = Starved(tiny_model, "tiny")
    completer = Completer(verifier, tokenizer, prompt_tokens=400)
    verifier.failures = 2
    with pytest.raises(OutOfMemoryError):
        completer.start(CompletionRequest(text, len(text), max_tokens=4)).run()
    again = completer.start(CompletionRequest(text, len(text), max_tokens=4))
    again.run()
    assert again.finish_reason and again.metrics.committed
