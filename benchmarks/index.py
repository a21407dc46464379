"""What the n-gram indexes cost: ``python -m benchmarks.index [--model NAME] [--tokens N] [--json FILE]``.

Over the standard library's own sources: building (beside the straightforward way, a ``RecordTrie`` of all
positions filled from a loop, in the same run), bytes a token, mapping, a look-up, a keystroke in long
documents, and a query of all sources with 20 open files and a large frozen index. Building and keystrokes are
in CPU time, queries by the clock.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
from cache.ngrams import TokenIndex
from cache.segment import IndexedFile
from speculation.tokenizer import Tokenizer

LONG_DOCUMENTS = (10_000, 50_000)  # lines
OPEN_FILES = 20
SEGMENT_TOKENS = 1_000_000
PROMPT_TOKENS = 1_500
QUERIES = 2_000
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
    """Every source asked once for the same context, with the continuations of the best match."""
    chosen = up_to(files, limit)
    manifest = Manifest(str(base))
    part: list[tuple[IndexedFile, list[int]]] = []
    size = 0
    for number, tokens in enumerate(chosen):
        part.append((IndexedFile(f"{number}.py", 0, 0, ""), tokens))
        size += len(tokens)
        if size >= SEGMENT_TOKENS or number == len(chosen) - 1:
            name = f"part{len(manifest.segments)}"
            manifest.segments[name] = segment.write(base / name, part)
            part, size = [], 0
    manifest.write(base)
    frozen = FrozenIndex(base)
    frozen.refresh()
    hot = HotIndex(encode)
    for number, text in enumerate(texts[:OPEN_FILES]):
        hot.open(str(number), text)
    history = History(base, "", encode)
    for text in texts[OPEN_FILES : OPEN_FILES + 200]:
        history.record("completion", "a.py", text[1000:1200])
    rng = random.Random(3)
    times: dict[str, list[float]] = {"request": [], "open files": [], "history": [], "frozen": [], "all": []}
    for _ in range(QUERIES):
        file = rng.choice([tokens for tokens in files[:200] if len(tokens) > 2 * PROMPT_TOKENS])
        end = rng.randrange(PROMPT_TOKENS, len(file))
        prompt = file[end - PROMPT_TOKENS : end]
        request = TokenIndex(prompt)
        whole = 0.0
        stores: dict[str, Any] = {"request": request, "open files": hot, "history": history, "frozen": frozen}
        for name, store in stores.items():
            begun = perf_counter()
            hits = store.query(prompt)
            if hits:
                store.continuation(hits[0], 32)
            times[name].append(perf_counter() - begun)
            whole += times[name][-1]
        times["all"].append(whole)
    figures = {f"{name} µs, median": statistics.median(values) * 1e6 for name, values in times.items()}
    figures["all µs, p95"] = float(np.percentile(times["all"], 95)) * 1e6
    figures["frozen tokens"] = frozen.token_count
    figures["open tokens"] = hot.token_count
    return figures


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


def timed(action: Callable[[], object], repeats: int) -> float:
    """The median wall time of an action, in seconds."""
    times = []
    for _ in range(repeats):
        begun = perf_counter()
        action()
        times.append(perf_counter() - begun)
    return statistics.median(times)


def each(action: Callable[[str], object], keys: list[str]) -> float:
    """CPU µs of an action for each key, warm."""
    for key in keys:
        action(key)
    begun = process_time()
    for key in keys:
        action(key)
    return (process_time() - begun) / len(keys) * 1e6


def show(report: dict[str, Figures]) -> None:
    """Prints every figure on its own line."""
    for part, figures in report.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name:<28}{value:>14,.0f}" if value >= 1000 else f"  {name:<28}{value:>14.3f}")


if __name__ == "__main__":
    main()
