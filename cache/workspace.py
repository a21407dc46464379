"""The files of a workspace that are worth remembering, and the reason why each other one is not.

Links are not followed, so there are no loops and nothing outside the root is read. A root inside this root is
left to its own index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from pathlib import Path, PurePath
from typing import NamedTuple

from cache.file_text import MAX_BYTES, UnwantedError, decode, read_bytes
from cache.ignore_rules import EXCLUDE, IgnoreRules
from cache.secrets import is_named, is_secret

REASONS = {
    "ignored": "excluded by .gitignore or .ignore",
    "secret": "may hold secrets",
    "vendored": "other people's code or a tool's own files",
    "generated": "made by a program",
    "minified": "lines too long to be written by hand",
    "data": "data, not code",
    "binary": "not text",
    "encoding": "text in no encoding that could be told",
    "huge": "too large",
    "empty": "nothing in it",
    "link": "a symbolic link",
    "loop": "a directory that contains itself",
    "special": "a pipe, a socket or a device",
    "unreadable": "not permitted to read",
    "vanished": "gone before it was read",
    "other root": "belongs to another workspace root",
    "over the limit": "the index is full",
}
VENDORED = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj", ".bzr", "CVS", "node_modules", "bower_components"),
        *("jspm_packages", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache"),
        *(".pytest_cache", ".hypothesis", ".gradle", ".terraform", ".eggs", ".cache"),
        *(".venv", "site-packages"),
    }
)
GENERATED_NAMES = (
    *("*.min.js", "*.min.css", "*.min.mjs", "*.map", "*.lock", "package-lock.json"),
    *("npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum", "*.pb.go", "*_pb2.py"),
    *("*_pb2.pyi", "*_pb2_grpc.py", "*.g.dart", "*.designer.cs", "*.snap"),
)
DATA_SUFFIXES = frozenset(
    {
        *("csv", "tsv", "jsonl", "ndjson", "log", "svg", "parquet", "avro", "npy", "npz"),
        *("pkl", "pickle", "pt", "pth", "onnx", "gguf", "safetensors", "bin", "db", "sqlite"),
        *("png", "jpg", "jpeg", "gif", "webp", "ico", "bmp", "tif", "tiff", "pdf", "ps"),
        *("eps", "zip", "gz", "bz2", "xz", "zst", "7z", "rar", "tar", "jar", "war", "whl"),
        *("egg", "class", "pyc", "pyo", "so", "o", "a", "dll", "dylib", "exe", "woff"),
        *("woff2", "ttf", "otf", "eot", "mp3", "mp4", "wav", "ogg", "webm", "avi", "mov"),
    }
)
_GENERATED = re.compile("|".join(map(translate, GENERATED_NAMES)), re.IGNORECASE)


class FileEntry(NamedTuple):
    """A file that may be indexed, as it was when listed."""

    path: str  # relative to the root, with "/"
    size: int  # bytes
    mtime_ns: int


class Skipped(NamedTuple):
    """A file or directory that is not indexed."""

    path: str
    reason: str  # a key of REASONS


def concerns(root: str, path: str) -> bool:
    """Whether a change of a path may matter to a root, by names alone: tools write files of their own all the time."""
    if not PurePath(path).is_relative_to(root):
        return False
    below = PurePath(path).relative_to(root)
    return VENDORED.isdisjoint(below.parts) or below == EXCLUDE


class Workspace:
    """One workspace root."""

    def __init__(
        self,
        root: str | Path,
        other_roots: Iterable[str | Path] = (),
        secret_patterns: Sequence[str] = (),
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """``secret_patterns`` add to the built-in ones. Raises OSError when the root is no directory."""
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise NotADirectoryError(f"{root} is not a directory")
        self._base = self.root.as_posix().rstrip("/") + "/"
        others = {Path(os.path.realpath(other)).as_posix() for other in other_roots}
        self._other_roots = others - {self.root.as_posix()}
        self._secret_patterns = tuple(secret_patterns)
        self._max_bytes = max_bytes

    def walk(self) -> Iterator[FileEntry | Skipped]:
        """Everything below the root; of a directory that is skipped, only the directory itself."""
        seen: set[tuple[int, int]] = set()
        todo = [(self.root, IgnoreRules.for_root(self.root))]
        while todo:
            directory, rules = todo.pop()
            try:
                status = directory.stat()
                with os.scandir(directory) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError:
                yield Skipped(self._relative(directory.as_posix()), "unreadable")
                continue
            if (identity := (status.st_dev, status.st_ino)) in seen and identity[1] != 0:
                yield Skipped(self._relative(directory.as_posix()), "loop")
                continue
            seen.add(identity)
            for entry in entries:
                verdict = self._judge(entry, rules)
                if isinstance(verdict, Path):
                    todo.append((verdict, IgnoreRules.below(rules, verdict)))
                else:
                    yield verdict

    def entry(self, path: str | Path) -> FileEntry | Skipped | None:
        """What ``walk`` would say of one file, for a watched-file event; None outside the root."""
        absolute = Path(os.path.normpath(Path(path).absolute()))
        real_parent = Path(os.path.realpath(absolute.parent))
        absolute = real_parent / absolute.name
        if not absolute.as_posix().startswith(self._base):
            return None
        rules = IgnoreRules.for_root(self.root)
        directory = self.root
        for part in absolute.relative_to(self.root).parts:
            try:
                with os.scandir(directory) as listing:
                    found = next((entry for entry in listing if entry.name == part), None)
            except OSError:
                found = None
            if found is None:
                return Skipped(self._relative(absolute.as_posix()), "vanished")
            verdict = self._judge(found, rules)
            if not isinstance(verdict, Path):
                return verdict._replace(path=self._relative(absolute.as_posix()))
            directory = verdict
            rules = IgnoreRules.below(rules, directory)
        return None

    def keeps(self, path: str | Path) -> bool:
        """Whether a file of this path would be indexed, be it there already or not, as far as names can tell."""
        absolute = Path(os.path.normpath(Path(path).absolute()))
        absolute = Path(os.path.realpath(absolute.parent)) / absolute.name
        if not absolute.as_posix().startswith(self._base):
            return False
        rules = IgnoreRules.for_root(self.root)
        directory = self.root
        for part in absolute.relative_to(self.root).parts[:-1]:
            directory /= part
            shown = directory.as_posix()
            if self._against_directory(directory, self._relative(shown), rules):
                return False
            rules = IgnoreRules.below(rules, directory)
        shown = absolute.as_posix()
        return not self._against_file(absolute.name, shown, self._relative(shown), 1, rules)

    def read(self, path: str) -> tuple[FileEntry, bytes]:
        """A listed file's content and what the file was then; raises UnwantedError."""
        data, status = read_bytes(self.root / path, self._max_bytes)
        return FileEntry(path, status.st_size, status.st_mtime_ns), data

    @staticmethod
    def text(data: bytes) -> str:
        """The text of a file's content, with ``\\n`` line ends; raises UnwantedError."""
        text = decode(data)
        if not text.strip():
            raise UnwantedError("empty")
        return text

    def _relative(self, path: str) -> str:
        return path[len(self._base) :] if path.startswith(self._base) else "."

    def _judge(self, entry: os.DirEntry[str], rules: IgnoreRules | None) -> FileEntry | Skipped | Path:
        """A file, the reason against it, or a directory to go into."""
        absolute = Path(entry.path).as_posix()
        path = self._relative(absolute)
        try:
            if entry.is_symlink():
                return Skipped(path, "link")
            if entry.is_dir(follow_symlinks=False):
                reason = self._against_directory(Path(entry.path), path, rules)
                return Skipped(path, reason) if reason else Path(entry.path)
            status = entry.stat(follow_symlinks=False)
            if not entry.is_file(follow_symlinks=False):
                return Skipped(path, "special")
        except OSError:
            return Skipped(path, "unreadable")
        reason = self._against_file(entry.name, absolute, path, status.st_size, rules)
        return Skipped(path, reason) if reason else FileEntry(path, status.st_size, status.st_mtime_ns)

    def _is_secret(self, absolute: str, path: str, is_directory: bool = False) -> bool:
        """Ours are about what lies in the root; the user may have meant any part of the path."""
        return is_secret(path, (), is_directory) or is_named(absolute, self._secret_patterns, is_directory)

    def _against_directory(self, directory: Path, path: str, rules: IgnoreRules | None) -> str | None:
        absolute = directory.as_posix()
        if directory.name in VENDORED or (directory / "pyvenv.cfg").exists():
            return "vendored"
        if absolute in self._other_roots:
            return "other root"
        if self._is_secret(absolute, path, is_directory=True):
            return "secret"
        return "ignored" if rules is not None and rules.ignores(absolute, is_directory=True) else None

    def _against_file(
        self, name: str, absolute: str, path: str, size: int, rules: IgnoreRules | None
    ) -> str | None:
        if self._is_secret(absolute, path):
            return "secret"
        if rules is not None and rules.ignores(absolute, is_directory=False):
            return "ignored"
        if name.rpartition(".")[2].lower() in DATA_SUFFIXES:
            return "data"
        if _GENERATED.match(name):
            return "generated"
        if size > self._max_bytes:
            return "huge"
        return "empty" if size == 0 else None
