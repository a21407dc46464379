"""p equals transformers' own logits processors, and draws follow p."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from speculation.sampling import SamplingParameters, distribution, draw, processed_logits, uniform

CASES = [
    SamplingParameters(temperature=t, top_k=k, top_p=p, min_p=m, repetition_penalty=r)
    for t in (0.3, 1.0, 1.7)
    for k in (0, 1, 7, 5000)
    for p in (1.0, 0.95, 0.3)
    for m in (0.0, 0.1)
    for r in (1.0, 1.3, 0.8)
]


def transformers_p(logits, context, parameters):
    steps = LogitsProcessorList()
    if parameters.repetition_penalty != 1:
        steps.append(RepetitionPenaltyLogitsProcessor(parameters.repetition_penalty))
    if parameters.temperature != 1:
        steps.append(TemperatureLogitsWarper(parameters.temperature))
    if parameters.top_k:
        steps.append(TopKLogitsWarper(parameters.top_k))
    if parameters.top_p < 1:
        steps.append(TopPLogitsWarper(parameters.top_p))
    if parameters.min_p:
        steps.append(MinPLogitsWarper(parameters.min_p))
    return steps(context[None], logits[None].clone())[0].softmax(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_p_equals_transformers_own_for_every_parameter(dtype):
    generator = torch.Generator().manual_seed(3)
    for number, parameters in enumerate(CASES):
        logits = (torch.randn(300, generator=generator) * 3).to(dtype)
        context = torch.randint(0, 300, (40,), generator=generator)
        ours = distribution(logits, parameters, context)
        assert torch.equal(ours, transformers_p(logits, context, parameters)), (number, parameters)


def test_greedy_takes_the_penalised_argmax():
    logits = torch.tensor([5.0, 4.9, -1.0])
    parameters = SamplingParameters(repetition_penalty=1.5)
    scores = processed_logits(logits, parameters, torch.tensor([0, 2]))
    assert scores.argmax() == 1 and scores[2] == -1.5


def test_a_mask_leaves_only_allowed_tokens_and_renormalises():
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    p = distribution(logits, SamplingParameters(temperature=1.0), allowed=torch.tensor([3, 9]))
    assert p.nonzero().flatten().tolist() == [3, 9]
    assert torch.allclose(p[3] / p[9], (logits[3] - logits[9]).exp())


def test_draws_are_the_inverse_cumulative_distribution_in_id_order():
    p = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    assert [draw(p, u) for u in (0.0, 0.2499, 0.25, 0.74, 0.75, 0.999999)] == [1, 1, 3, 3, 4, 4]
    assert draw(torch.tensor([0.3, 0.3, 0.4, 0.0]), float(np.nextafter(1.0, 0))) == 2


def test_draws_with_keyed_uniforms_follow_p():
    p = torch.tensor([0.1, 0.2, 0.05, 0.65])
    counts = np.bincount([draw(p, uniform(1, position)) for position in range(40_000)], minlength=4)
    assert chisquare(counts, p.double().numpy() / p.double().sum().item() * 40_000).pvalue > 1e-3


def test_uniforms_depend_on_seed_position_and_stream_and_on_nothing_else():
    assert uniform(3, 7) == uniform(3, 7)
    values = {uniform(s, n, t) for s in range(5) for n in range(50) for t in range(3)}
    assert len(values) == 750 and all(0 <= v < 1 for v in values)
    assert 0 <= uniform(2**64 - 1, 2**40) < 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1},
        {"min_p": -0.1}, {"min_p": 2}, {"repetition_penalty": 0}, {"seed": -1}, {"seed": 2**64},
    ],
)  # fmt: skip
def test_impossible_parameters_are_refused_with_their_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("_", "[ -]")):
        SamplingParameters(**wrong)
