"""Which files of a workspace are listed and read, and why the others are not, in trees made to do harm."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cache.file_text import UnwantedError, decode
from cache.ignore_rules import IgnoreRules
from cache.workspace import REASONS, FileEntry, Skipped, Workspace

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "root"
    root.mkdir()

    def write(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root

    return write


def listed(root: Path, **options: object) -> set[str]:
    return {item.path for item in Workspace(root, **options).walk() if isinstance(item, FileEntry)}  # type: ignore[arg-type]


def skipped(root: Path, **options: object) -> dict[str, str]:
    found = {i.path: i.reason for i in Workspace(root, **options).walk() if isinstance(i, Skipped)}  # type: ignore[arg-type]
    assert set(found.values()) <= set(REASONS)
    return found


def test_nested_ignore_files_with_negation_follow_git(tree: Tree) -> None:
    root = tree(
        {
            ".gitignore": "*.log.py\n/build/\n!keep.log.py\nonly_dir/\n**/deep.py\n# comment\n\\#hash.py\n",
            "a.log.py": "x",
            "keep.log.py": "x",
            "build/out.py": "x",
            "sub/build/in.py": "x",
            "sub/.gitignore": "!a.log.py\n*.tmp.py\n!/z.tmp.py\n",
            "sub/a.log.py": "x",
            "sub/b.tmp.py": "x",
            "sub/z.tmp.py": "x",
            "sub/q/z.tmp.py": "x",
            "only_dir": "a file",
            "sub/only_dir/x.py": "x",
            "p/q/deep.py": "x",
            "#hash.py": "x",
            "b.tmp.py": "x",
        }
    )
    assert listed(root) == {
        *(".gitignore", "keep.log.py", "sub/build/in.py", "sub/.gitignore", "sub/a.log.py", "sub/z.tmp.py"),
        *("only_dir", "b.tmp.py"),
    }


def test_what_lies_in_an_excluded_directory_cannot_be_brought_back(tree: Tree) -> None:
    root = tree({".gitignore": "out/\n!out/a.py\n", "out/a.py": "x", "out/.gitignore": "!a.py\n"})
    assert listed(root) == {".gitignore"}
    assert skipped(root) == {"out": "ignored"}


def test_dot_ignore_comes_before_gitignore(tree: Tree) -> None:
    root = tree({".gitignore": "a.py\n", ".ignore": "!a.py\nb.py\n", "a.py": "x", "b.py": "x"})
    assert listed(root) == {".gitignore", ".ignore", "a.py"}


def test_a_root_inside_a_repository_obeys_the_repository(tree: Tree) -> None:
    root = tree({".gitignore": "*.gen.py\n/pkg/x.py\n", ".git/info/exclude": "mine.py\n", "pkg/x.py": "x"})
    tree({"pkg/a.gen.py": "x", "pkg/mine.py": "x", "pkg/y.py": "x"})
    assert listed(root / "pkg") == {"y.py"}


def test_broken_ignore_lines_are_passed_over(tree: Tree) -> None:
    root = tree({".gitignore": b"[\n\xff\xfe\n!\n/\n\\\na.py\n", "a.py": "x", "b.py": "x"})
    assert listed(root) == {".gitignore", "b.py"}


def test_ignore_files_are_read_as_git_does_and_cannot_take_for_ever(tmp_path: Path) -> None:
    rules = b"\xef\xbb\xbffirst.py\r\n[z-a].py\n" + b"a*" * 20 + b"b\nx\x0cy.py\nlast.py\n"
    (tmp_path / ".gitignore").write_bytes(rules)
    found = IgnoreRules.below(None, tmp_path)
    assert found is not None
    for name, ignored in (("first.py", True), ("last.py", True), ("y.py", False), ("a" * 60, False)):
        assert found.ignores(f"{tmp_path.as_posix()}/{name}", is_directory=False) is ignored


def test_secrets_are_not_listed_even_where_an_ignore_file_brings_them_back(tree: Tree) -> None:
    root = tree({".gitignore": "!.env\n", ".env": "K=1", "a/.ssh/x.py": "x", "mine/a.py": "x", "ok.py": "x"})
    assert listed(root, secret_patterns=["mine"]) == {".gitignore", "ok.py"}
    assert skipped(root) == {".env": "secret", "a/.ssh": "secret"}


def test_the_users_patterns_hold_for_files_directories_and_whole_paths(tree: Tree) -> None:
    root = tree({"src/a.py": "x", "src/x.py": "x", "src/deep/b.txt": "x", "docs/plan.txt": "x", "c.txt": "x"})
    everything = listed(root)
    for patterns, gone in (
        (["*.py"], {"src/a.py", "src/x.py"}),
        (["x*"], {"src/x.py"}),
        (["src/"], {"src/a.py", "src/x.py", "src/deep/b.txt"}),
        (["src/deep"], {"src/deep/b.txt"}),
        ([f"{root}/docs"], {"docs/plan.txt"}),
        ([f"{root}/c.*"], {"c.txt"}),
    ):
        assert everything - listed(root, secret_patterns=patterns) == gone, patterns
        for path in everything:
            verdict = Workspace(root, secret_patterns=patterns).entry(root / path)
            assert isinstance(verdict, FileEntry) is (path not in gone), (patterns, path)


def test_generated_vendored_huge_and_empty_files_are_told_apart(tree: Tree) -> None:
    root = tree(
        {
            "node_modules/a.js": "x",
            "venv/pyvenv.cfg": "x",
            "venv/lib/a.py": "x",
            "app.min.js": "x",
            "poetry.lock": "x",
            "table.csv": "1,2",
            "big.py": "x" * 2000,
            "empty.py": "",
            "ok.py": "x",
        }
    )
    assert listed(root, max_bytes=1000) == {"ok.py"}
    assert skipped(root, max_bytes=1000) == {
        "node_modules": "vendored",
        "venv": "vendored",
        "app.min.js": "generated",
        "poetry.lock": "generated",
        "table.csv": "data",
        "big.py": "huge",
        "empty.py": "empty",
    }


def test_links_pipes_and_sockets_are_not_followed(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree({"a/b.py": "x"})
    (tmp_path / "outside.py").write_text("secret")
    (root / "loop").symlink_to(root)
    (root / "a" / "up").symlink_to("..")
    (root / "broken").symlink_to("nowhere")
    (root / "out.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(root / "pipe.py")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(root)  # a socket's path is short
        server.bind("s.py")
        assert listed(root) == {"a/b.py"}
        found = skipped(root)
    assert found == {
        **dict.fromkeys(("loop", "a/up", "broken", "out.py"), "link"),
        **dict.fromkeys(("pipe.py", "s.py"), "special"),
    }


def test_a_file_that_became_a_pipe_or_a_link_is_not_read(tree: Tree, tmp_path: Path) -> None:
    root = tree({"a.py": "x", "b.py": "x", "c.py": "x"})
    workspace = Workspace(root)
    (tmp_path / "outside.py").write_text("secret")
    for name in ("a.py", "b.py", "c.py"):
        (root / name).unlink()
    os.mkfifo(root / "a.py")
    (root / "b.py").symlink_to(tmp_path / "outside.py")
    reasons = []
    for name in ("a.py", "b.py", "c.py", "a\0.py"):
        with pytest.raises(UnwantedError) as caught:
            workspace.read(name)
        reasons.append(str(caught.value))
    assert reasons == ["special", "unreadable", "vanished", "unreadable"]


def test_a_file_that_grows_while_it_is_read_is_huge(tree: Tree) -> None:
    root = tree({"a.py": "x" * 100})
    workspace = Workspace(root, max_bytes=100)
    assert workspace.read("a.py")[1] == b"x" * 100
    (root / "a.py").write_text("x" * 101)
    with pytest.raises(UnwantedError, match="huge"):
        workspace.read("a.py")


def test_a_device_is_no_file() -> None:
    with pytest.raises(UnwantedError, match="special"):
        Workspace("/dev").read("zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_reported(tree: Tree) -> None:
    root = tree({"shut/a.py": "x", "b.py": "x"})
    (root / "shut").chmod(0)
    try:
        assert skipped(root) == {"shut": "unreadable"}
    finally:
        (root / "shut").chmod(0o700)


def test_an_unreadable_directory_costs_only_itself(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree({"shut/a.py": "x", "b.py": "x"})
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "shut":
            raise PermissionError(13, "no", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert listed(root) == {"b.py"}
    assert skipped(root) == {"shut": "unreadable"}


def test_hostile_file_names_are_listed_and_read(tree: Tree) -> None:
    names = {"a\nb.py", "\\back.py", "*.py", " .py", "-rf.py", "ünï.py", "a" * 250 + ".py", "'\".py", "\t"}
    root = tree(dict.fromkeys(names, "x"))
    raw = os.fsencode(root) + b"/bad\xff.py"
    with open(raw, "w") as file:  # noqa: PTH123 (no valid str path)
        file.write("x")
    found = listed(root)
    assert found == names | {"bad\udcff.py"}
    for name in found:
        assert Workspace(root).read(name)[1] == b"x"


def test_a_root_inside_this_root_is_left_to_its_own_index(tree: Tree) -> None:
    root = tree({"a.py": "x", "inner/b.py": "x", "inner2/c.py": "x"})
    assert listed(root, other_roots=[root / "inner", root]) == {"a.py", "inner2/c.py"}
    assert skipped(root, other_roots=[root / "inner"]) == {"inner": "other root"}


def test_a_root_reached_by_a_link_is_the_same_root(tree: Tree, tmp_path: Path) -> None:
    root = tree({"a.py": "x"})
    (tmp_path / "alias").symlink_to(root)
    assert Workspace(tmp_path / "alias").root == root
    assert listed(tmp_path / "alias") == {"a.py"}
    with pytest.raises(OSError, match="not a directory"):
        Workspace(root / "a.py")


def test_one_file_is_judged_as_in_the_walk(tree: Tree, tmp_path: Path) -> None:
    root = tree(
        {
            ".gitignore": "x.py\nout/\n",
            "a.py": "x",
            "x.py": "x",
            "out/y.py": "x",
            "s/.env": "k",
            "s/b.py": "x",
        }
    )
    workspace = Workspace(root)
    assert workspace.entry(root / "a.py") in set(workspace.walk())
    assert workspace.entry(root / "s" / "b.py") in set(workspace.walk())
    assert workspace.entry(root / "x.py") == Skipped("x.py", "ignored")
    assert workspace.entry(root / "out/y.py") == Skipped("out/y.py", "ignored")
    assert workspace.entry(root / "s/.env") == Skipped("s/.env", "secret")
    assert workspace.entry(root / "gone.py") == Skipped("gone.py", "vanished")
    assert workspace.entry(tmp_path / "elsewhere.py") is None
    assert workspace.entry(root / ".." / "elsewhere.py") is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\rc\n", "a\nb\nc\n"),
        (b"\xef\xbb\xbfa = 1", "a = 1"),
        ("a = 'ü'\n".encode("utf-16"), "a = 'ü'\n"),
        ("a = 'ü'\n".encode("utf-32"), "a = 'ü'\n"),
        (
            "größe = 'Überlänge für alle Fälle'\n".encode("latin-1") * 5,
            "größe = 'Überlänge für alle Fälle'\n" * 5,
        ),
    ],
)
def test_text_is_decoded(data: bytes, text: str) -> None:
    assert decode(data) == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"abc\0def", "binary"),
        (b"\xff\xfea", "encoding"),
        (bytes(range(1, 256)) * 20, "binary"),
        (b"// Code generated by protoc. DO NOT EDIT.\nx", "generated"),
        (b"# @generated\nx", "generated"),
        (b"x" * 6000, "minified"),
        ((b"x" * 800 + b"\n") * 20, "minified"),
    ],
)
def test_what_is_no_hand_written_text_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnwantedError) as caught:
        decode(data)
    assert str(caught.value) in (reason, "encoding" if reason == "binary" else reason)


def test_blank_text_counts_as_empty() -> None:
    with pytest.raises(UnwantedError, match="empty"):
        Workspace.text(b" \n\n\t")
