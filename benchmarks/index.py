"""What the n-gram indexes cost: ``python -m benchmarks.index [--model NAME] [--tokens N] [--json FILE]``.

Over the standard library's own sources: building (beside the straightforward way, a ``RecordTrie`` of all
positions filled from a loop, in the same run), bytes a token, mapping, a look-up, a keystroke in long
documents, and a query of all sources of a drafter, one by one, with 20 open files and a large frozen index.
Building, look-ups and keystrokes are in CPU time, queries by the clock. Figures that have a bound say whether they
keep it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import marisa_trie
import numpy as np
from rich.console import Console
from rich.progress import track

from cache import gram_trie, models, segment
from cache.file_text import UnwantedError, decode
from cache.frozen_index import FrozenIndex, Manifest
from cache.history import History
from cache.hot_index import HotIndex
from cache.replaced_text import ReplacedText
from cache.segment import IndexedFile
from cache.short_grams import MAX_TOKENS, WithShortGrams, recent_texts
from speculation.costs import CostTable
from speculation.draft import DraftRequest
from speculation.drafting import Stores, WorkspaceDrafter, build_drafter
from speculation.policy import GainPolicy
from speculation.proposers.base import Context
from speculation.tokenizer import Tokenizer

LONG_DOCUMENTS = (10_000, 50_000)  # lines
OPEN_FILES = 20
SEGMENT_TOKENS = 1_000_000
PROMPT_TOKENS = 1_500
QUERIES = 2_000
REPEATS = 5
PASS_MS = {
    1: 23.0,
    2: 27.0,
    4: 30.0,
    8: 34.0,
    16: 52.0,
    32: 81.0,
}  # an int8 pass over so many positions, measured
BOUNDS = {
    ("build", "build s"): 6.0,
    ("build", "bytes a token"): 8.0,
    ("build", "map ms"): 0.2,
    ("build", "look-up µs"): 3.5,
    ("keystroke, 10,000 lines", "median ms"): 1.0,
    ("keystroke, 50,000 lines", "median ms"): 5.0,
    ("query, all sources", "all µs, median"): 80.0,
    ("query, all sources", "query and draft µs, median"): 0.005 * 1e3 * PASS_MS[1],
}
Encode = Callable[[str], Sequence[int]]
Figures = dict[str, float]


def main() -> None:
    """Measures everything and prints it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=models.default_model("cpu"), help="whose tokenizer is used")
    parser.add_argument("--tokens", type=int, default=2_600_000, help="size of the build that is measured")
    parser.add_argument(
        "--frozen-tokens", type=int, default=5_000_000, help="size of the index that is queried"
    )
    parser.add_argument("--json", metavar="FILE", type=Path)
    arguments = parser.parse_args()
    path = Path(arguments.model)
    encode = Tokenizer.from_file(
        path if path.suffix == ".json" else models.resolve(arguments.model).tokenizer
    ).encode
    texts = list(sources())
    report: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        files = tokenised(texts, encode, max(arguments.tokens, arguments.frozen_tokens), report)
        report["build"] = build(base, files, arguments.tokens)
        for lines in LONG_DOCUMENTS:
            report[f"keystroke, {lines:,} lines"] = keystrokes(texts, encode, lines)
        report["query, all sources"] = query_all(base, files, texts, encode, arguments.frozen_tokens)
    show(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


def sources() -> Iterator[str]:
    """Texts of the standard library, in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if "site-packages" not in path.parts and path.stat().st_size < 1 << 20:
            try:
                yield decode(path.read_bytes())
            except UnwantedError:
                continue


def tokenised(texts: list[str], encode: Encode, limit: int, report: dict[str, Figures]) -> list[list[int]]:
    """The tokens of as many texts as make ``limit`` tokens; the texts come round again where they run out."""
    files: list[list[int]] = []
    total = 0
    begun = process_time()
    for text in track(texts, "tokenising", console=Console(stderr=True), transient=True):
        files.append(list(encode(text)))
        total += len(files[-1])
        if total >= limit:
            break
    report["tokenise"] = {"tokens": total, "µs a token": (process_time() - begun) / total * 1e6}
    shift = 0
    while total < limit:  # the same shapes with other names: every id moved
        shift += 1
        for file in files[: len(texts)]:
            files.append([(token + 997 * shift) % 150_000 for token in file])
            total += len(file)
            if total >= limit:
                break
    return files


def build(base: Path, files: list[list[int]], limit: int) -> Figures:
    """Our segment and the straightforward trie over the same tokens, both in this run."""
    chosen = up_to(files, limit)
    count = sum(map(len, chosen))
    contents = [(IndexedFile(f"{i}.py", 0, 0, ""), tokens) for i, tokens in enumerate(chosen)]
    begun = process_time()
    sums = segment.write(base / "one", contents)
    ours = process_time() - begun
    flat = [token for tokens in chosen for token in (*tokens, gram_trie.SEPARATOR)]
    begun = process_time()
    plain = plain_trie(flat)
    theirs = process_time() - begun
    plain.save(str(base / "plain"))
    verify = timed(lambda: segment.verify(base / "one", sums), 5)
    mapping = timed(lambda: gram_trie.GramTrie(base / "one"), 50)
    mapped = marisa_trie.RecordTrie("<I")
    mapped.mmap(str(base / "plain"))
    trie = gram_trie.GramTrie(base / "one")
    rng = random.Random(1)
    grams = (flat[at : at + gram_trie.GRAM] for at in rng.sample(range(len(flat) - gram_trie.GRAM), 20_000))
    keys = [gram_trie.gram_key(gram) for gram in grams if gram_trie.SEPARATOR not in gram]
    on_disk = sum((base / "one" / part).stat().st_size for part in segment.PARTS)
    return {
        "tokens": count,
        "build s": ours,
        "build s, plain RecordTrie": theirs,
        "bytes a token": on_disk / count,
        "bytes a token, plain": (base / "plain").stat().st_size / count + 4,
        "verify ms": verify * 1e3,
        "map ms": mapping * 1e3,
        "look-up µs": each(trie.positions, keys),
        "look-up µs, plain": each(mapped.get, keys),
    }


def plain_trie(flat: list[int]) -> Any:
    """A RecordTrie from every 4-gram to its last 32 positions, the straightforward way."""
    grams: dict[tuple[int, ...], list[int]] = {}
    for at in range(len(flat) - 3):
        gram = tuple(flat[at : at + 4])
        if gram_trie.SEPARATOR not in gram:
            grams.setdefault(gram, []).append(at + 3)
    return marisa_trie.RecordTrie(
        "<I",
        (
            (gram_trie.gram_key(gram), (at,))
            for gram, found in grams.items()
            for at in found[-gram_trie.MAX_POSITIONS :]
        ),
    )


def keystrokes(texts: list[str], encode: Encode, lines: int) -> Figures:
    """Typing and deleting at random places of a document of that many lines."""
    document = "\n".join("\n".join(texts).split("\n")[:lines])
    index = HotIndex(encode)
    begun = process_time()
    index.open("d", document)
    opened = process_time() - begun
    rng = random.Random(2)
    times = []
    for _ in range(60):
        at = rng.randrange(len(document))
        for character in "self.x = 1\n":
            begun = process_time()
            index.edit("d", at, at, character)
            times.append(process_time() - begun)
            at += 1
    return {
        "open s": opened,
        "tokens": index.token_count,
        "median ms": statistics.median(times) * 1e3,
        "p99 ms": float(np.percentile(times, 99)) * 1e3,
        "max ms": max(times) * 1e3,
    }


def query_all(base: Path, files: list[list[int]], texts: list[str], encode: Encode, limit: int) -> Figures:
    """Every source of a drafter asked for the same context, as a round of a request does it.

    Each query is timed when first made and then again; what else the machine does can only make one slower, so
    the fastest of them is the query's time.
    """
    frozen = frozen_index(base, up_to(files, limit))
    drafter = drafter_over(base, frozen, texts, encode)
    long_files = [tokens for tokens in files[:200] if len(tokens) > 2 * PROMPT_TOKENS]
    rng = random.Random(3)
    first: list[float] = []
    fastest: list[dict[str, float]] = []
    drafts: list[float] = []
    for _ in range(QUERIES):
        file = rng.choice(long_files)
        end = rng.randrange(PROMPT_TOKENS, len(file))
        prompt = file[end - PROMPT_TOKENS : end]
        drafter.start(DraftRequest(prompt, suffix=file[end : end + 200], document="here.py"))
        context = Context(prompt)
        times = []
        for _ in range(REPEATS):
            times.append({p.name: seconds(partial(p.propose, context, 64)) for p in drafter.proposers})
            drafts.append(seconds(partial(drafter.draft, 64)))
        first.append(sum(times[0].values()))
        fastest.append({name: min(time[name] for time in times) for name in times[0]})
        drafts[-REPEATS:] = [min(drafts[-REPEATS:])]
    figures = {
        f"{name} µs, median": statistics.median(times[name] for times in fastest) * 1e6 for name in fastest[0]
    }
    whole = [sum(times.values()) for times in fastest]
    figures["all µs, median"] = statistics.median(whole) * 1e6
    figures["all µs, p95"] = float(np.percentile(whole, 95)) * 1e6
    figures["all µs, median, first time"] = statistics.median(first) * 1e6
    figures["query and draft µs, median"] = statistics.median(drafts) * 1e6
    figures["frozen tokens"] = frozen.token_count
    figures["segments"] = len(frozen.segments)
    return figures


def frozen_index(base: Path, files: list[list[int]]) -> FrozenIndex:
    """A frozen index over files, in segments as a build makes them."""
    manifest = Manifest(str(base))
    part: list[tuple[IndexedFile, list[int]]] = []
    size = 0
    for number, tokens in enumerate(files):
        part.append((IndexedFile(f"{number}.py", 0, 0, ""), tokens))
        size += len(tokens)
        if size >= SEGMENT_TOKENS or number == len(files) - 1:
            name = f"part{len(manifest.segments)}"
            manifest.segments[name] = segment.write(base / name, part)
            part, size = [], 0
    manifest.write(base)
    index = FrozenIndex(base)
    index.refresh()
    return index


def drafter_over(base: Path, frozen: FrozenIndex, texts: list[str], encode: Encode) -> WorkspaceDrafter:
    """A drafter over all stores there are: open files, history, replaced text and the frozen index."""
    hot = HotIndex(encode)
    for number, text in enumerate(texts[:OPEN_FILES]):
        hot.open(str(number), text)
    history = History(base, "", encode)
    replaced = ReplacedText(encode)
    for number, text in enumerate(texts[OPEN_FILES : OPEN_FILES + 200]):
        history.record("completion", "a.py", text[1000:1200])
        replaced.add(f"{number}.py", 0, text[1200:1400])
    workspace = WithShortGrams(frozen)
    workspace.fill(recent_texts(frozen.segments, 4 * MAX_TOKENS))
    newline = encode("\n")[0]
    stores = Stores(hot, workspace, history, lambda request: replaced.passages("", 8), lambda t: t == newline)
    return build_drafter(stores, GainPolicy(CostTable(PASS_MS)))


def up_to(files: list[list[int]], limit: int) -> list[list[int]]:
    """The first files that together have ``limit`` tokens."""
    chosen: list[list[int]] = []
    total = 0
    for tokens in files:
        if total >= limit:
            break
        chosen.append(tokens)
        total += len(tokens)
    return chosen


def seconds(action: Callable[[], object]) -> float:
    """The wall time of an action, in seconds."""
    begun = perf_counter()
    action()
    return perf_counter() - begun


def timed(action: Callable[[], object], repeats: int) -> float:
    """The median wall time of an action, in seconds."""
    return statistics.median(seconds(action) for _ in range(repeats))


def each(action: Callable[[str], object], keys: list[str]) -> float:
    """CPU µs of an action for each key, warm."""
    for key in keys:
        action(key)
    begun = process_time()
    for key in keys:
        action(key)
    return (process_time() - begun) / len(keys) * 1e6


def show(report: dict[str, Figures]) -> None:
    """Prints every figure on its own line, beside its bound where it has one."""
    for part, figures in report.items():
        print(part)
        for name, value in figures.items():
            line = f"  {name:<28}{value:>14,.0f}" if value >= 1000 else f"  {name:<28}{value:>14.3f}"
            bound = BOUNDS.get((part, name))
            if bound is not None:
                line += f"   ≤ {bound:g}: {'pass' if value <= bound else 'miss'}"
            print(line)


if __name__ == "__main__":
    main()
