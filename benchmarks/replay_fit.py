"""Fits the weights that a fresh installation starts with (`speculation/priors.json`) on replayed edits.

    python -m benchmarks.replay_fit [--packages 'NAME==OLD:NEW,…'] [--rounds N]

Each place of the replay where tokens were suggested is one sample: the branches, and which of them came. The weights
maximise the likelihood of what came (multinomial logistic regression with a "none of them" class, L2-penalised,
L-BFGS). Replaying with better weights visits other places, hence the rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.packages import Release
from benchmarks.replay import tokenizer_of
from benchmarks.replay_run import replay
from benchmarks.replay_sources import ReplayedStores
from benchmarks.replay_tasks import Workload, edits
from speculation.costs import CostTable
from speculation.evidence import Branch, Evidence, priors_of, untrained_weights
from speculation.policy import GainPolicy

TUNED_ON = ("httpx==0.27.0:0.28.1", "click==8.1.7:8.2.1", "starlette==0.37.0:0.46.0")
MOST_BRANCHES = 12
PENALTY = 1e-5

Sample = tuple[list[list[int]], int]  # the cells of each branch, and which branch came (-1: none)


class Recorder(Evidence):
    """Evidence that notes every observation and learns nothing."""

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__(weights, learn=False)
        self.samples: list[Sample] = []

    def observe(self, branches: Sequence[Branch], token: int) -> None:
        """Notes the sample."""
        kept = branches[:MOST_BRANCHES]
        came = next((n for n, branch in enumerate(kept) if branch.token == token), -1)
        self.samples.append(([branch.cells() for branch in kept], came))


def fit(samples: Sequence[Sample], start: Sequence[float]) -> list[float]:
    """The likeliest weights."""
    cells = [cell for branches, _ in samples for branch in branches for cell in branch]
    branch_of_cell, sample_of_branch, came = [], [], []
    count = 0
    for number, (branches, which) in enumerate(samples):
        for n, branch in enumerate(branches):
            branch_of_cell += [count] * len(branch)
            sample_of_branch.append(number)
            if n == which:
                came.append(count)
            count += 1
    cell_index, of_branch = torch.tensor(cells), torch.tensor(branch_of_cell)
    of_sample, target = torch.tensor(sample_of_branch), torch.tensor(came)
    weights = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=80, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        scores = torch.zeros(count, dtype=torch.float64).index_add(0, of_branch, weights[cell_index])
        total = torch.ones(len(samples), dtype=torch.float64).index_add(
            0, of_sample, scores.clamp(max=30).exp()
        )
        value = (total.log().sum() - scores[target].sum()) / len(samples) + PENALTY * (weights**2).sum()
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach().tolist()


def record(
    workload: Workload, stores: ReplayedStores, weights: Sequence[float], vocabulary: int
) -> list[Sample]:
    """One replay of everything, drafts as long as they go."""
    recorder = Recorder(weights)
    flat = CostTable.flat()
    drafters = {
        key: stores.drafter(key, GainPolicy(flat), recorder)
        for key in {task.workspace for task in workload.tasks}
    }
    forwards = sum(
        replay(task, drafters[task.workspace], flat, vocabulary).forwards for task in workload.tasks
    )
    tokens = sum(len(task.target) for task in workload.tasks)
    print(f"{tokens / forwards:.4f} tokens per forward, {len(recorder.samples)} samples")
    return recorder.samples


def main() -> None:
    """Fits and writes the priors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay_fit")
    parser.add_argument("--packages", default=",".join(TUNED_ON))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokenizer", help="a tokenizer.json; that of the default model by default")
    parser.add_argument("--out", default="speculation/priors.json")
    options = parser.parse_args()
    tokenizer = tokenizer_of(options.tokenizer)
    workload = edits(tokenizer.encode, map(Release.parse, options.packages.split(",")))
    stores = ReplayedStores(workload, tokenizer)
    weights = untrained_weights()
    for _ in range(options.rounds):
        weights = fit(record(workload, stores, weights, tokenizer.vocab_size), weights)
    record(workload, stores, weights, tokenizer.vocab_size)
    Path(options.out).write_text(json.dumps(priors_of(weights)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
