"""What every peer is asked: workloads as lists of tasks whose prompts are token ids, the same for all."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from benchmarks.languages import language_tasks, languages
from benchmarks.packages import Release
from benchmarks.replay_hunks import NARROW, Hunk, upgrade
from benchmarks.replay_model import prompt_ids
from benchmarks.replay_tasks import MOST_TOKENS, Task, fresh, noise, sample, task_of
from speculation.families import Markers
from speculation.tokenizer import Tokenizer

MOST_PROMPT = 700  # tokens; longer prompts are left out, so that a run takes an hour and not two
BLOCK_LINES = (8, 24)  # of a function that is to be rewritten
BLOCK_TOKENS = (80, 160)
NOISE_PROMPT = (
    192  # tokens of the prompts of `noise`: drafts need a place to copy from, time is for the passes
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PeerTask:
    """One completion to ask every peer for."""

    name: str
    prompt: Sequence[int]
    max_tokens: int
    texts: tuple[str, ...] = ()  # what the prompt was tokenised from, to check the peers' tokenisers with
    written: str = ""  # what the developer wrote, as many tokens of it as are asked for
    workspace: str = ""
    prefix: Sequence[int] = ()
    suffix: Sequence[int] = ()
    replaced: Sequence[int] = ()
    next_line: str = ""
    forced: Sequence[int] = ()  # the text that comes, whatever the model says
    language: str = "python"

    def request(self) -> dict[str, Any]:
        """What a worker needs of it."""
        names = ("name", "prompt", "max_tokens", "workspace", "prefix", "suffix", "replaced", "next_line")
        plain = {name: getattr(self, name) for name in names}
        return {k: v if isinstance(v, (str, int)) else list(v) for k, v in plain.items()} | {
            "forced": list(self.forced)
        }


@dataclass(slots=True)
class Workload:
    """Tasks in a fixed random order, and the files of each workspace."""

    tasks: list[PeerTask]
    workspaces: dict[str, Mapping[str, str]] = field(default_factory=dict)


class Workloads:
    """Makes workloads for one tokenizer and family of markers."""

    def __init__(self, tokenizer: Tokenizer, markers: Markers, releases: Sequence[Release]) -> None:
        self.tokenizer, self.markers = tokenizer, markers
        self._releases = releases
        self._upgrades: tuple[list[tuple[str, Hunk]], dict[str, Mapping[str, str]]] | None = None
        self._makers: dict[str, Callable[[], Workload]] = {
            "edits": self.edits,
            "languages": self.languages,
            "fresh": self.fresh,
            "noise": self.noise,
            "rewrite": self.rewrite,
        }

    def make(self, name: str) -> Workload:
        """A workload by name."""
        return self._makers[name]()

    def hunks(self) -> tuple[list[tuple[str, Hunk]], dict[str, Mapping[str, str]]]:
        """Every hunk with the key of its workspace, and the workspaces; comparing the files takes a while, once."""
        if self._upgrades is None:
            found, workspaces = [], {}
            for release in self._releases:
                made = upgrade(release, NARROW)
                key = f"{release.name}=={release.old}"
                workspaces[key] = made.workspace
                found += [(key, hunk) for hunk in made.hunks]
            self._upgrades = found, workspaces
        return self._upgrades

    def edits(self) -> Workload:
        """The hunks that the replay samples, 60 lines before and 25 after the cursor, as far as prompts are short."""
        found, workspaces = self.hunks()
        tasks = [self.of_hunk(hunk, key) for key, hunk in some(found)]
        return Workload([task for task in tasks if len(task.prompt) <= MOST_PROMPT], workspaces)

    def of_hunk(self, hunk: Hunk, workspace: str, language: str = "python") -> PeerTask:
        """A hunk as a task: 64 tokens, whatever they are."""
        return self._task(
            task_of(hunk, workspace, self.tokenizer.encode), (hunk.before, hunk.after), language
        )

    def fresh(self) -> Workload:
        """HumanEval problems, nothing around them."""
        tasks = sample(fresh(self.tokenizer.encode).tasks)
        return Workload([self._task(task, (self.tokenizer.decode(task.prefix),)) for task in tasks])

    def languages(self) -> Workload:
        """Hunks of other languages' packages, the languages in turns."""
        decode, encode = self.tokenizer.decode, self.tokenizer.encode
        by_language: list[list[PeerTask]] = []
        workspaces: dict[str, Mapping[str, str]] = {}
        for language in languages():
            found = language_tasks(language, encode, NARROW)
            workspaces |= {key: dict(texts) for key, texts in found.workspaces.items()}
            tasks = [
                self._task(t, (decode(t.prefix), decode(t.suffix)), language) for t in sample(found.tasks)
            ]
            by_language.append([task for task in tasks if len(task.prompt) <= MOST_PROMPT])
        return Workload([task for row in zip(*by_language, strict=False) for task in row], workspaces)

    def noise(self) -> Workload:
        """The replay's text without order, after shorter prompts; the kinds in turns."""
        tasks = []
        for task in _in_turns(noise(self.tokenizer.vocab_size).tasks):
            prefix = task.prefix[-NOISE_PROMPT:]
            tasks.append(
                PeerTask(
                    task.name, [*prefix], len(task.target), prefix=prefix, forced=task.target, language=""
                )
            )
        return Workload(tasks)

    def rewrite(self) -> Workload:
        """Functions of the old releases, to be written again with one of their parameters renamed."""
        _, workspaces = self.hunks()
        tasks = [
            self.of_block(key, path, block)
            for key, texts in workspaces.items()
            for path, text in texts.items()
            for block in blocks(text)
        ]
        small, large = BLOCK_TOKENS
        return Workload(some([t for t in tasks if small <= t.max_tokens <= large]), workspaces)

    def of_block(self, workspace: str, path: str, block: Block) -> PeerTask:
        """The function, what is to change, and room for the function as it should become."""
        change = f"{block.old} renamed to {block.new}"
        prefix = f"# {path}\n# before:\n{block.before}\n\n# after, with {change}:\n"
        encode = self.tokenizer.encode
        name = f"{workspace}/{path}:{block.line}"
        task = Task(name, workspace, encode(prefix), (), (), encode(block.after))
        return self._task(task, (prefix,), count=len(task.target))

    def _task(
        self, task: Task, texts: tuple[str, ...], language: str = "python", count: int = MOST_TOKENS
    ) -> PeerTask:
        return PeerTask(
            name=task.name,
            prompt=prompt_ids(task, self.markers),
            max_tokens=count,
            texts=texts,
            written=self.tokenizer.decode(task.target[:count]),
            workspace=task.workspace,
            prefix=task.prefix,
            suffix=task.suffix,
            replaced=task.replaced,
            next_line=task.next_line,
            language=language,
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A function before and after one of its parameters was renamed."""

    line: int
    before: str
    after: str
    old: str
    new: str


def blocks(text: str) -> Iterator[Block]:
    """The functions of a file that are neither short nor long and use a parameter of theirs more than once."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    lines = text.splitlines(keepends=True)
    least, most = BLOCK_LINES
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.end_lineno is None or node.decorator_list:
            continue
        if not least <= node.end_lineno - node.lineno + 1 <= most:
            continue
        before = "".join(lines[node.lineno - 1 : node.end_lineno])
        names = [a.arg for a in node.args.args if len(a.arg) > 2 and a.arg not in ("self", "cls")]
        for old in names:
            word = re.compile(rf"\b{re.escape(old)}\b")
            if len(word.findall(before)) >= 3:
                new = f"new_{old}"
                yield Block(node.lineno, before, word.sub(new, before), old, new)
                break


def some(items: Sequence[T]) -> list[T]:
    """The replay's fixed random sample, of anything."""
    anything: Any = items
    return cast("list[T]", sample(anything))


def _in_turns(tasks: Sequence[Task]) -> list[Task]:
    """Tasks reordered so that each kind (the name up to its last part) comes in turn."""
    kinds: dict[str, list[Task]] = {}
    for task in tasks:
        kinds.setdefault(task.name.rpartition("/")[0], []).append(task)
    return [task for row in zip(*kinds.values(), strict=True) for task in row]
