"""Released packages as test data: fetched by name and version with their registry's own client, read as archives.

A wheel comes through pip, a tarball through npm; neither is installed, unpacked, imported or run. Archives named in
``packages.json`` must have the SHA-256 that stands there.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from platformdirs import user_cache_path

# what people write, by the end of the file's name
SOURCE_SUFFIXES = (
    *(".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".lua", ".luau"),
    *(".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".go", ".rs", ".java", ".kt", ".rb", ".sh"),
)
# what tools write beside it: declarations, minified files, compiled scripts
_MADE_BY_TOOLS = re.compile(
    r"\.d\.[cm]?ts$|[.-]min\.[cm]?js$|(^|/)(dist|build|umd|cjs|esm)/.*\.([cm]?js|jsx|[cm]?ts|tsx)$"
)


@dataclass(frozen=True, slots=True)
class Release:
    """One upgrade to replay: a package, the version it had and the version it got, and where it comes from."""

    name: str
    old: str
    new: str
    index: str = "pypi"

    @classmethod
    def parse(cls, text: str) -> Release:
        """``[INDEX:]NAME==OLD:NEW``, as the command line takes it."""
        name, _, versions = text.strip().partition("==")
        old, _, new = versions.partition(":")
        index, colon, rest = name.partition(":")
        index, name = (index, rest) if colon else ("pypi", name)
        if not (name and old and new and index in CLIENTS):
            raise ValueError(
                f"{text!r} is not [INDEX:]NAME==OLD:NEW with an index of {', '.join(CLIENTS)}, "
                "for example flask==3.0.0:3.1.0 or npm:rxjs==7.5.0:7.8.1"
            )
        return cls(name, old, new, index)

    @property
    def workspace(self) -> str:
        """Names the old release."""
        return f"{self.name}=={self.old}"

    def __str__(self) -> str:
        return f"{'' if self.index == 'pypi' else self.index + ':'}{self.name}=={self.old}:{self.new}"


@dataclass(frozen=True, slots=True)
class Client:
    """How archives of one index are fetched."""

    folder: str  # in the benchmark cache
    pattern: str  # of the archive's name
    command: Callable[[str, str, Path], list[str]]  # name, version, destination


def _pip(name: str, version: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    return [*command, "--disable-pip-version-check", "--dest", str(folder), f"{name}=={version}"]


def _npm(name: str, version: str, folder: Path) -> list[str]:
    command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
    return [*command, f"{name}@{version}"]


CLIENTS = {"pypi": Client("wheels", "*.whl", _pip), "npm": Client("tarballs", "*.tgz", _npm)}


class DownloadError(Exception):
    """A package could not be fetched or is not the one expected; the message says why."""


def benchmark_cache() -> Path:
    """Where benchmarks keep what they fetched and computed."""
    path = user_cache_path("spec-complete") / "benchmarks"
    path.mkdir(parents=True, exist_ok=True)
    return path


def wheel(name: str, version: str) -> Path:
    """The wheel of a package, fetched at most once.

    Raises:
        DownloadError: pip could not fetch it, or it is not the pinned one.
    """
    return archive("pypi", name, version)


def archive(index: str, name: str, version: str) -> Path:
    """The archive of a package, fetched at most once.

    Raises:
        DownloadError: the index's client could not fetch it, or it is not the pinned one.
    """
    client = CLIENTS[index]
    folder = benchmark_cache() / client.folder / f"{name.lstrip('@').replace('/', '-')}-{version}"
    found = sorted(folder.glob(client.pattern))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        reason = _fetch(client.command(name, version, folder), folder)
        found = sorted(folder.glob(client.pattern))
        if not found:
            raise DownloadError(f"cannot fetch {name}=={version}: {reason}")
    _check(found[0])
    return found[0]


def _fetch(command: list[str], folder: Path) -> str:
    """Runs a client; what it said last."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    return (done.stderr.strip().splitlines() or [f"{command[0]} said nothing"])[-1]


def _check(path: Path) -> None:
    """Removes an archive that is not the pinned one."""
    wanted = pins().get(path.name)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if wanted is not None and found != wanted:
        path.unlink()
        raise DownloadError(f"{path.name} has SHA-256 {found}, not {wanted}: removed, fetch it again")


@cache
def pins() -> dict[str, str]:
    """File names of archives to their SHA-256."""
    return json.loads(Path(__file__).with_name("packages.json").read_text(encoding="utf-8"))


def sources(path: Path, suffixes: tuple[str, ...] = SOURCE_SUFFIXES) -> dict[str, str]:
    """Path to text of every source file in an archive, line ends normalised.

    Files that are not UTF-8, or that tools made, are left out; of copies within a tarball the first is kept.
    """
    texts: dict[str, str] = {}
    seen = set()
    for name, content in _members(path):
        if not name.endswith(suffixes) or _MADE_BY_TOOLS.search(name):
            continue
        try:
            text = content().decode("utf-8-sig")
        except UnicodeDecodeError:
            continue
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if path.suffix == ".whl" or text not in seen:  # tarballs hold one file once for each module system
            texts[name] = text
            seen.add(text)
    return texts


def _members(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Names and contents of an archive's files in order; what lies outside the archive is never touched."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as zipped:
            for name in sorted(zipped.namelist()):
                yield name, partial(zipped.read, name)
        return
    with tarfile.open(path) as tarred:
        for member in sorted((m for m in tarred if m.isfile()), key=lambda m: m.name):
            file = tarred.extractfile(member)
            if file is not None:
                yield member.name.partition("/")[2], file.read
