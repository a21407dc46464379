"""The frozen index finds what a plain search finds, follows the files, and survives damage."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache import gram_trie, segment
from cache.frozen_index import FrozenIndex, Manifest, directory_for, indexes_of
from cache.gram_trie import GRAM, MAX_POSITIONS, SEPARATOR, GramTrie, gram_key
from cache.index_builder import IndexBuilder, IndexBusyError, read_stats, remove
from cache.ngrams import MAX_MATCH
from cache.packed import pack_few
from cache.segment import IndexedFile, Segment
from cache.workspace import Workspace


def encode(text: str) -> list[int]:
    """Bytes as tokens: quick, and every gram is easy to read."""
    return list(text.encode("utf-8", "surrogateescape"))


class Bench:
    """A workspace, its builder and its index."""

    def __init__(self, base: Path, segment_tokens: int = 10_000, **options: object) -> None:
        self.root = base / "root"
        self.root.mkdir(exist_ok=True)
        self.directory = base / "index"
        self.workspace = Workspace(self.root, **options)  # type: ignore[arg-type]
        self.builder = IndexBuilder(self.directory, self.workspace, encode, segment_tokens)
        self.index = FrozenIndex(self.directory)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def build(self, paths: Sequence[str] | None = None) -> None:
        self.stats = self.builder.run(paths)
        self.index.refresh()

    def found(self, text: str, shortest: int = 32) -> list[tuple[str, str]]:
        """(path, what follows) of each place where the whole text, or its last ``shortest`` bytes, stands."""
        least = min(len(text), shortest)
        hits = [hit for hit in self.index.query(encode(text)) if hit.length >= least]
        return [(hit.document, bytes(self.index.continuation(hit, 5)).decode()) for hit in hits]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def trie_over(directory: Path, tokens: Sequence[int]) -> GramTrie:
    gram_trie.write(directory, np.array(tokens, np.uint32))
    return GramTrie(directory)


ids = st.integers(0, 3) | st.sampled_from(
    [0xD6FF, 0xD700, 0xD701, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 151_935, SEPARATOR]
)


@given(st.lists(ids, max_size=80))
@settings(max_examples=100, deadline=None)
def test_the_trie_gives_every_gram_its_positions(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[int]
) -> None:
    trie = trie_over(tmp_path_factory.mktemp("trie"), tokens)
    expected: dict[tuple[int, ...], list[int]] = {}
    for end in range(GRAM, len(tokens) + 1):
        gram = tuple(tokens[end - GRAM : end])
        if SEPARATOR not in gram:
            expected.setdefault(gram, []).insert(0, end - 1)
    for gram, positions in expected.items():
        assert list(trie.positions(gram_key(gram))) == positions[:MAX_POSITIONS]
    assert list(trie.positions(gram_key([9, 9, 9, 9]))) == []


def test_of_many_equal_grams_the_most_recent_are_kept(tmp_path: Path) -> None:
    trie = trie_over(tmp_path, [1, 2, 3, 4] * 100)
    assert list(trie.positions(gram_key([1, 2, 3, 4]))) == list(range(399, 399 - 4 * MAX_POSITIONS, -4))


documents = st.lists(st.lists(st.sampled_from([0, 0, 1, 151_935]), max_size=60), min_size=1, max_size=4)


@given(documents, documents, st.data())
@settings(max_examples=60, deadline=None)
def test_agreement_is_counted_as_a_plain_search_counts_it(
    tmp_path_factory: pytest.TempPathFactory,
    older: list[list[int]],
    newer: list[list[int]],
    data: st.DataObject,
) -> None:
    base = tmp_path_factory.mktemp("index")
    manifest = Manifest(str(base))
    for name, texts in (("1", older), ("2", newer)):
        contents = [(IndexedFile(f"{name}/{n}", 0, 0, ""), tokens) for n, tokens in enumerate(texts)]
        manifest.segments[name] = segment.write(base / name, contents)
    manifest.write(base)
    index = FrozenIndex(base)
    index.refresh()
    text = data.draw(st.sampled_from([*older, *newer]))
    end = data.draw(st.integers(0, len(text)))
    odd = data.draw(st.lists(st.integers(0, 1), max_size=2))  # what stands nowhere before it
    context = odd + text[data.draw(st.integers(0, end)) : end]
    expected: list[tuple[int, str, list[int]]] = []
    for name, texts in (("2", newer), ("1", older)):
        places = []
        for number, tokens in enumerate(texts):
            for at in range(len(tokens)):
                length = 0
                while length < min(MAX_MATCH, len(context), at + 1):
                    if tokens[at - length] != context[-1 - length]:
                        break
                    length += 1
                if length >= GRAM:
                    places.append((length, f"{name}/{number}", tokens[at + 1 : at + 9]))
        expected += places[::-1][:MAX_POSITIONS]
    expected.sort(key=lambda place: -place[0])  # stable: the most recent first among equals
    found = index.query(context, 10)
    assert [(hit.length, hit.document, index.continuation(hit, 8)) for hit in found] == expected[:10]


def test_token_0_agrees_with_nothing_beyond_the_ends_of_context_and_segment(tmp_path: Path) -> None:
    contents = [(IndexedFile("a", 0, 0, ""), [1, 2, 3, 4, 5, 0, 0, 0, 6, 7, 8, 9])]
    Manifest("/", {"s": segment.write(tmp_path / "s", contents)}).write(tmp_path)
    index = FrozenIndex(tmp_path)
    index.refresh()
    assert [hit.length for hit in index.query([0, 0, 0, 1, 2, 3, 4])] == [4]
    assert [hit.length for hit in index.query([6, 7, 8, 9])] == [4]
    assert [hit.length for hit in index.query([0, 6, 7, 8, 9])] == [5]


def test_more_tokens_than_positions_can_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too many"):
        gram_trie.write(tmp_path, np.broadcast_to(np.uint32(7), gram_trie.MOST_TOKENS))


def test_matches_are_the_longest_then_the_most_recent(bench: Bench) -> None:
    bench.write("a.py", "one two three A")
    bench.write("b.py", "two three B; zone two three C")
    os.utime(bench.root / "a.py", (1, 1))
    bench.build()
    assert bench.found("zone two three ", 4) == [("b.py", "C"), ("a.py", "A"), ("b.py", "B; zo")]
    assert bench.index.query(encode("two")) == bench.index.query([]) == []


def test_nothing_is_matched_or_copied_across_files(bench: Bench) -> None:
    bench.write("a.py", "abcdef")
    bench.write("b.py", "ghijkl")
    bench.build()
    assert bench.found("cdef") == [("a.py", "")]
    assert bench.found("efgh") == []
    assert bench.found("abcdefghij", 4) == [("b.py", "kl")]
    assert [hit.length for hit in bench.index.query(encode("abcdefghij"))] == [4]


def test_changed_new_and_deleted_files_are_followed(bench: Bench) -> None:
    bench.write("a.py", "alpha = 1")
    bench.write("b.py", "beta = 1")
    bench.build()
    assert bench.found("alpha = ") == [("a.py", "1")]
    bench.write("a.py", "alpha = 22")
    bench.write("c.py", "gamma = 3")
    (bench.root / "b.py").unlink()
    bench.build()
    assert bench.found("alpha = ") == [("a.py", "22")]
    assert bench.found("beta = ") == []
    assert bench.found("gamma = ") == [("c.py", "3")]
    assert bench.stats.files == 2


def test_a_change_that_keeps_size_and_time_stamp_is_seen_while_it_is_recent(bench: Bench) -> None:
    path = bench.write("a.py", "alpha = 1")
    bench.build()
    status = path.stat()
    path.write_text("alpha = 2")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    bench.build()
    assert bench.found("alpha = ") == [("a.py", "2")]


def test_files_that_did_not_change_are_not_read_again(bench: Bench) -> None:
    for name in ("a.py", "b.py"):
        os.utime(bench.write(name, f"text of {name}"), (1000, 1000))
    bench.build()
    assert bench.stats.read == 2
    bench.build()
    assert bench.stats.read == 0
    os.utime(bench.root / "a.py", (2000, 2000))
    before = bench.stats.segments
    bench.build()
    assert (bench.stats.read, bench.stats.segments) == (1, before)


def test_only_the_named_paths_are_looked_at(bench: Bench) -> None:
    bench.write("a.py", "alpha = 1")
    bench.write("d/b.py", "beta = 1")
    bench.write("d/c.py", "gamma = 1")
    bench.build()
    a = bench.write("a.py", "alpha = 22")
    bench.write("d/b.py", "beta = 22")
    bench.build([str(a)])
    assert bench.found("alpha = ") == [("a.py", "22")]
    assert bench.found("beta = ") == [("d/b.py", "1")]
    for path in (bench.root / "d").iterdir():
        path.unlink()
    (bench.root / "d").rmdir()
    bench.build([str(bench.root / "d")])
    assert bench.found("beta = ") == bench.found("gamma = ") == []


def test_the_hot_index_overrides_files(bench: Bench) -> None:
    bench.write("a.py", "alpha = 1")
    bench.write("b.py", "alpha = 2")
    bench.build()
    bench.index.override({"a.py"})
    assert bench.found("alpha = ") == [("b.py", "2")]
    bench.write("c.py", "other text")
    bench.build()
    assert bench.found("alpha = ") == [("b.py", "2")]
    bench.index.override(set())
    assert len(bench.found("alpha = ")) == 2


def test_overriding_goes_by_the_manifest_that_the_segments_are_of(bench: Bench) -> None:
    bench.write("a.py", "unique_thing(one)\n")
    bench.write("b.py", "another_word(two)\n")
    bench.build()
    bench.write("a.py", "unique_thing(three)\n")
    bench.builder.run()  # not taken over yet: the copy that is known stays the one that is found
    bench.index.override({"b.py"})
    assert bench.found("unique_thing(") == [("a.py", "one)\n")]
    assert bench.found("another_word(") == []


def test_small_segments_are_merged_and_nothing_is_lost(tmp_path: Path) -> None:
    bench = Bench(tmp_path, segment_tokens=1000)
    for number in range(30):
        bench.write(f"f{number}.py", f"value_{number:03d} = {number:04d};")
        bench.build()
        assert bench.stats.segments <= 6
    for number in range(30):
        assert bench.found(f"value_{number:03d} = ")[0] == (f"f{number}.py", f"{number:04d};")


def test_what_became_secret_or_ignored_leaves_the_disk(bench: Bench) -> None:
    bench.write("a.py", "alpha = 1")
    bench.write("notes.py", "password hunter2 is mine")
    bench.build()
    tokens = pack_few(encode("hunter2"))

    def on_disk() -> bool:
        return any(tokens in path.read_bytes() for path in bench.directory.rglob("tokens"))

    assert on_disk()
    bench.builder = IndexBuilder(bench.directory, Workspace(bench.root, secret_patterns=["notes.*"]), encode)
    bench.build()
    assert not on_disk()
    assert bench.found("alpha = ") == [("a.py", "1")]


def test_files_are_private(bench: Bench) -> None:
    bench.write("a.py", "alpha = 1")
    bench.build()
    for path in [bench.directory, *bench.directory.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("part", segment.PARTS)
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty", "directory"])
def test_a_damaged_segment_is_dropped_and_made_again(bench: Bench, part: str, damage: str) -> None:
    rng = random.Random(f"{part}{damage}")
    bench.write("a.py", "alpha = 1;\n" * 200 + "".join(rng.choice("abcdefgh\n") for _ in range(5000)))
    bench.build()
    (path,) = bench.directory.rglob(part)
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flip":
        for _ in range(32):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "directory":
        path.mkdir()
    index = FrozenIndex(bench.directory)
    index.refresh()
    assert index.query(encode("alpha = ")) == []
    assert index.damaged
    fresh = IndexBuilder(bench.directory, bench.workspace, encode)
    assert fresh.run().damaged
    index.refresh()
    assert index.query(encode("alpha = "))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"root": 1}', '{"root":"","segments":{"../x":{}},"outdated":{}}']
)
def test_a_damaged_manifest_is_as_none(bench: Bench, content: str) -> None:
    bench.write("a.py", "alpha = 1")
    bench.build()
    (bench.directory / "manifest.json").write_text(content)
    index = FrozenIndex(bench.directory)
    index.refresh()
    assert index.query(encode("alpha = ")) == []
    IndexBuilder(bench.directory, bench.workspace, encode).run()
    index.refresh()
    assert index.query(encode("alpha = "))


def test_an_index_belongs_to_its_tokenizer_and_root(tmp_path: Path) -> None:
    one = directory_for(tmp_path, tmp_path / "a", "hash")
    assert one != directory_for(tmp_path, tmp_path / "a", "other hash")
    assert one != directory_for(tmp_path, tmp_path / "b", "hash")
    assert one == directory_for(tmp_path, tmp_path / "b" / ".." / "a", "hash")
    directory_for(tmp_path, "bad\udcff", "hash")


def test_an_empty_workspace_has_an_empty_index(bench: Bench) -> None:
    bench.build()
    assert bench.stats.files == bench.stats.tokens == bench.stats.segments == 0
    assert bench.found("anything") == []
    bench.write("a.py", "abc")  # too short for a gram
    bench.build()
    assert bench.stats.files == 1


def test_two_builders_do_not_meet(bench: Bench) -> None:
    bench.write("a.py", "alpha = 1")
    second = IndexBuilder(bench.directory, bench.workspace, encode)
    refused = []

    def meet(stats: object) -> None:
        with pytest.raises(IndexBusyError) as caught:
            second.run()
        refused.append(caught.value)
        with pytest.raises(IndexBusyError):
            remove(bench.directory)

    bench.builder.run(on_progress=meet)
    assert refused
    second.run()


def test_cancelling_keeps_what_was_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path, segment_tokens=10)
    for number in range(10):
        bench.write(f"f{number}.py", f"value_{number} = {number}; and more")
    calls = iter(range(100))
    bench.builder.run(cancelled=lambda: next(calls) >= 4)
    bench.index.refresh()
    assert sum(bool(bench.found(f"value_{number} = ")) for number in range(10)) == 4


def test_files_that_vanish_or_change_while_building_do_no_harm(bench: Bench) -> None:
    for number in range(6):
        bench.write(f"f{number}.py", f"value_{number} = {number}")
    victims = iter([bench.root / f"f{n}.py" for n in (5, 3)])

    def strike(stats: object) -> None:
        path = next(victims, None)
        if path is not None:
            path.unlink(missing_ok=True)
            os.mkfifo(path)

    stats = bench.builder.run(on_progress=strike)
    bench.index.refresh()
    assert stats.files + stats.skipped["special"] == 6
    assert len([n for n in range(6) if bench.found(f"value_{n} = ")]) == stats.files


def test_queries_go_on_while_segments_are_replaced(tmp_path: Path) -> None:
    bench = Bench(tmp_path, segment_tokens=100)
    bench.write("a.py", "alpha = 1; " * 5)
    bench.build()
    failures: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                assert bench.found("alpha = ")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        for number in range(20):
            bench.write(f"f{number}.py", f"other text {number}")
            bench.build()
    finally:
        done.set()
        thread.join()
    assert not failures


def test_indexes_are_found_by_root_and_removed(bench: Bench, tmp_path: Path) -> None:
    bench.write("a.py", "alpha = 1")
    bench.build()
    assert indexes_of(tmp_path, bench.root) == [bench.directory]
    assert indexes_of(tmp_path, tmp_path) == []
    stats = read_stats(bench.directory)
    assert stats is not None and stats.files == 1
    remove(bench.directory)
    assert not bench.directory.exists()


def test_flipped_bytes_in_a_trie_never_crash_the_process(tmp_path: Path) -> None:
    """Opened unverified, such tries crash the process or answer wrongly; verified, never."""
    script = (
        "import sys, pathlib, random\n"
        "from cache import segment\n"
        "from cache.frozen_index import FrozenIndex, Manifest\n"
        "from cache.segment import IndexedFile\n"
        "base = pathlib.Path(sys.argv[1]); rng = random.Random(3)\n"
        "tokens = [rng.randrange(60) for _ in range(20000)]\n"
        "sums = segment.write(base / 's', [(IndexedFile('a', 1, 1, 'x'), tokens)])\n"
        "Manifest('/', {'s': sums}).write(base)\n"
        "whole = (base / 's' / 'trie').read_bytes()\n"
        "for trial in range(40):\n"
        "    data = bytearray(whole)\n"
        "    for _ in range(32): data[rng.randrange(len(data))] ^= 255\n"
        "    (base / 's' / 'trie').write_bytes(data)\n"
        "    index = FrozenIndex(base); index.refresh()\n"
        "    for at in range(40, 20000, 97): assert index.query(tokens[at - 40 : at]) == []\n"
        "(base / 's' / 'trie').write_bytes(whole)\n"
        "index = FrozenIndex(base); index.refresh(); assert index.query(tokens[:40])\n"
        "print('alive')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr


def test_segment_names_and_files_read_back(tmp_path: Path) -> None:
    sums = segment.write(tmp_path / "s", [(IndexedFile("a\udcff\n.py", 3, 4, "x"), [1, 2, 3, 4, 5])])
    opened = Segment(tmp_path / "s", sums)
    assert opened.files == [IndexedFile("a\udcff\n.py", 3, 4, "x", 0, 5)]
    assert list(opened.tokens_of(opened.files[0])) == [1, 2, 3, 4, 5]
    assert Manifest.read(tmp_path) == Manifest()
