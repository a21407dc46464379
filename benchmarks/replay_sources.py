"""The stores of a replayed task: the old release as the workspace, the replaced lines as deleted text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.replay_tasks import Task, Workload
from cache.history import History
from cache.hot_index import HotIndex
from cache.short_grams import WithShortGrams
from speculation.draft import DraftRequest
from speculation.drafting import Stores, WorkspaceDrafter, build_drafter
from speculation.evidence import Evidence
from speculation.policy import GainPolicy
from speculation.tokenizer import Tokenizer

SOURCES = ("request", "suffix", "deleted", "workspace", "realigned")


class ReplayedStores:
    """Builds the drafter of each workspace; tells the deleted text of the task at hand."""

    def __init__(self, workload: Workload, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._replaced: Mapping[str, Sequence[int]] = {task.name: task.replaced for task in workload.tasks}
        self._indexes: dict[str, WithShortGrams] = {}
        for key, texts in workload.workspaces.items():
            index = HotIndex(tokenizer.encode, max_tokens=1 << 62)
            for path, text in texts.items():
                index.open(path, text, key)
            self._indexes[key] = WithShortGrams(index)
            self._indexes[key].fill((index.tokens(path), None) for path in texts)

    def drafter(
        self, workspace: str, policy: GainPolicy, evidence: Evidence, without: Sequence[str] = ()
    ) -> WorkspaceDrafter:
        """A drafter over one workspace."""
        stores = Stores(
            workspace=self._indexes.get(workspace),
            deleted=self._deleted,
            ends_line=lambda token: self._tokenizer.bytes_of(token).endswith(b"\n"),
        )
        return build_drafter(stores, policy, evidence=evidence, without=without)

    def _deleted(self, request: DraftRequest) -> Sequence[Sequence[int]]:
        return (self._replaced[request.document],)

    def with_history(
        self, directory: Path, policy: GainPolicy, evidence: Evidence
    ) -> Callable[[Task], WorkspaceDrafter]:
        """Drafters for tasks in order: each finds the tasks before it as history."""
        history = History(directory, "replay", self._tokenizer.encode)
        stores = Stores(
            history=history,
            ends_line=lambda token: self._tokenizer.bytes_of(token).endswith(b"\n"),
        )
        drafter = build_drafter(stores, policy, evidence=evidence)
        written: list[Task] = []

        def next_drafter(task: Task) -> WorkspaceDrafter:
            if written:
                earlier = written[-1]
                text = self._tokenizer.decode([*earlier.prefix, *earlier.target])
                history.record("completion", earlier.name, text)
            written.append(task)
            return drafter

        return next_drafter
