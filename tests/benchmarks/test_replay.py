"""The replay: hunks, judging, the peer's algorithm, and that nothing of the new release can be found."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from benchmarks import packages, replay_hunks
from benchmarks.packages import Release, sources
from benchmarks.replay_baselines import TransformersPromptLookup, lookup
from benchmarks.replay_forced import Pass, forced_summary
from benchmarks.replay_hunks import WIDE, Window, hunks, upgrade
from benchmarks.replay_model import ModelStream, prompt_key
from benchmarks.replay_run import accepted_path, ratio, replay, summary
from benchmarks.replay_tasks import Task, noise, sample, task_of
from speculation.costs import CostTable
from speculation.draft import Draft
from speculation.drafting import Stores, build_drafter
from speculation.policy import GainPolicy
from speculation.verifier.base import Capabilities

OLD = {"a.py": "one\ntwo\nthree\nfour\n", "gone.py": "x\n"}
NEW = {
    "a.py": "one\ntwo\nsomething that is long enough\nthree\nshort\n",
    "new.py": "y = 'a file that is new'\n",
}
INT8 = CostTable({1: 23, 2: 27, 4: 30, 8: 34, 16: 52, 32: 81})


def encode(text: str) -> list[int]:
    return list(text.encode())


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60))
def test_the_peer_drafts_exactly_what_transformers_drafts(tokens: list[int]) -> None:
    theirs = PromptLookupCandidateGenerator(
        num_output_tokens=10, max_matching_ngram_size=2, max_length=10_000
    )
    candidates, _ = theirs.get_candidates(torch.tensor([tokens]))
    assert lookup(tokens) == candidates[0, len(tokens) :].tolist()


def test_a_hunk_has_new_text_before_the_cursor_and_old_text_after_it() -> None:
    (hunk,) = hunks("pack", OLD, NEW, WIDE)
    assert hunk.written == "something that is long enough\n"
    assert (hunk.before, hunk.after, hunk.replaced) == ("one\ntwo\n", "three\nfour\n", "")
    assert hunk.name == "pack/a.py:3"


def test_the_window_bounds_what_is_seen() -> None:
    (hunk,) = hunks("pack", OLD, NEW, Window(1, 1))
    assert (hunk.before, hunk.after) == ("two\n", "three\n")


def make_wheel(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "pack-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


def test_an_upgrade_is_read_from_wheels_and_its_workspace_is_the_old_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "benchmark_cache", lambda: tmp_path)
    make_wheel(tmp_path / "wheels" / "pack-1", {**OLD, "note.txt": "no source"})
    make_wheel(tmp_path / "wheels" / "pack-2", NEW)
    found = upgrade(Release.parse("pack==1:2"), WIDE)
    assert found.workspace == OLD
    assert len(found.hunks) == 1


def test_a_workspace_with_a_file_of_the_new_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "benchmark_cache", lambda: tmp_path)
    make_wheel(tmp_path / "wheels" / "pack-1", OLD)
    make_wheel(tmp_path / "wheels" / "pack-2", NEW)
    monkeypatch.setattr(replay_hunks, "workspace_of", lambda old, new: {**old, **new})
    with pytest.raises(AssertionError, match="new release"):
        upgrade(Release.parse("pack==1:2"), WIDE)


def test_sources_are_text_with_unix_line_ends(tmp_path: Path) -> None:
    make_wheel(tmp_path / "w", {"a.py": "x\r\ny\r", "b.txt": "no"})
    assert sources(tmp_path / "w" / "pack-py3-none-any.whl") == {"a.py": "x\ny\n"}


@pytest.mark.parametrize("text", ["flask", "flask==1", "flask==1:", "==1:2"])
def test_a_release_that_names_no_upgrade_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME==OLD:NEW"):
        Release.parse(text)


def test_a_tree_is_followed_where_the_target_goes() -> None:
    draft = Draft([1, 3, 2, 5, 7], parents=[-1, 0, -1, 2, 3])
    assert accepted_path(draft, [2, 5, 9]) == [2, 3]
    assert accepted_path(draft, [1, 5]) == [0]
    assert accepted_path(Draft([4, 5, 6]), [4, 5, 6, 7]) == [0, 1, 2]
    assert accepted_path(draft, [9]) == []


def test_forwards_and_costs_add_up() -> None:
    text = list(range(50, 90))
    task = Task("t", "", prefix=[*text, 1, *text[:3]], suffix=(), replaced=(), target=text[3:])
    outcome = replay(task, build_drafter(Stores(), GainPolicy(INT8)), INT8, 1000)
    assert outcome.tokens == 37 == sum(outcome.accepted.values()) + outcome.forwards
    assert outcome.plain_cost == 37 * 23
    assert outcome.cost < outcome.plain_cost / 2
    figures = summary([outcome])
    assert figures["n"] == 1 and figures["accepted"] == 37 - outcome.forwards


def test_the_interval_holds_the_ratio_and_is_narrow_where_tasks_are_alike() -> None:
    alike = ratio([2.0] * 50, [1.0] * 50)
    assert alike == {"value": 2.0, "low": 2.0, "high": 2.0}
    draw = random.Random(1)
    mixed = ratio([draw.uniform(1, 3) for _ in range(50)], [1.0] * 50)
    assert 1.5 < mixed["low"] < mixed["value"] < mixed["high"] < 2.5


def test_noise_has_no_repetition_and_nothing_is_drafted_on_it() -> None:
    workload = noise(50_000)
    task = workload.tasks[0]
    everything = [*task.prefix, *task.suffix, *task.target]
    assert len(set(everything)) == len(everything)
    outcome = replay(task, build_drafter(Stores(), GainPolicy(INT8)), INT8, 50_000)
    assert outcome.cost == outcome.plain_cost


def test_drafts_on_a_few_tokens_without_order_cost_little() -> None:
    tasks = [task for task in noise(50_000).tasks if task.name.startswith("noise/10 tokens/")]
    drafter = build_drafter(Stores(), GainPolicy(INT8))
    outcomes = [replay(task, drafter, INT8, 50_000) for task in tasks]
    assert sum(o.plain_cost for o in outcomes) > 0.98 * sum(o.cost for o in outcomes)


def test_the_sample_is_always_the_same() -> None:
    tasks = [task_of(hunk, "", encode) for hunk in hunks("pack", OLD, NEW, WIDE)] * 9
    assert sample(tasks, 4) == sample(tasks, 4)
    assert len(sample(tasks, 400)) == 9


def test_a_stream_is_kept_per_engine_and_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.replay_model.benchmark_cache", lambda: tmp_path)
    stream = ModelStream("eager", "a" * 64)
    stream.put(prompt_key([1, 2]), [3, 4])
    assert ModelStream("eager", "a" * 64).get(prompt_key([1, 2])) == [3, 4]
    assert ModelStream("int8", "a" * 64).get(prompt_key([1, 2])) is None
    assert ModelStream("eager", "a" * 64).get(prompt_key([1, 3])) is None
    assert json.loads(stream.path.read_text())


def test_the_peer_looks_in_the_suffix_first() -> None:
    task = Task("t", "", prefix=[1, 2, 30, 1, 2], suffix=[1, 2, 40], replaced=(), target=[40, 1])
    outcome = replay(task, TransformersPromptLookup(), CostTable.flat(), 100)
    assert outcome.accepted["request"] == 1


class Counter:
    """A verifier that keeps lengths and nothing else."""

    def __init__(self) -> None:
        self.capabilities = Capabilities("fake", "m", "cpu", "none", 1000, 4096, True, True, True, 0, 0)
        self.lengths: dict[int, int] = {}
        self.passes = 0

    def open_slot(self) -> int:
        self.lengths[len(self.lengths)] = 0
        return len(self.lengths) - 1

    def close_slot(self, slot: int) -> None:
        self.lengths[slot] = -1

    def prefill(self, slot: int, tokens: list[int]) -> None:
        self.lengths[slot] += len(tokens)

    def verify(self, slot: int, tokens: list[int], parents: list[int] | None = None) -> None:
        self.passes += 1

    def commit(self, slot: int, path: list[int]) -> None:
        self.lengths[slot] += len(path)


def test_forced_decoding_makes_a_pass_per_round_both_ways_and_gives_its_slots_back() -> None:
    text = list(range(50, 90))
    tasks = [Task(f"t{n}", "", [*text, 1, *text[:3]], (), (), text[3:]) for n in range(3)]
    verifier = Counter()
    drafter = build_drafter(Stores(), GainPolicy(INT8))
    figures = forced_summary(tasks, lambda task: drafter, Pass(verifier))  # type: ignore[arg-type]
    assert figures["n"] == 3
    assert figures["tokens_per_forward"]["value"] > 4
    assert verifier.passes == 4 * 37 + round(3 * 37 / figures["tokens_per_forward"]["value"])
    assert set(verifier.lengths.values()) == {-1}
