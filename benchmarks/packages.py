"""Released packages as test data: wheels fetched by name and version with pip, read as zip files, never imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path


@dataclass(frozen=True, slots=True)
class Release:
    """One upgrade to replay: a package, the version it had and the version it got."""

    name: str
    old: str
    new: str

    @classmethod
    def parse(cls, text: str) -> Release:
        """``NAME==OLD:NEW``, as the command line takes it."""
        name, _, versions = text.strip().partition("==")
        old, _, new = versions.partition(":")
        if not (name and old and new):
            raise ValueError(f"{text!r} is not NAME==OLD:NEW, for example flask==3.0.0:3.1.0")
        return cls(name, old, new)


class DownloadError(Exception):
    """A package could not be fetched; the message is pip's own last line."""


def benchmark_cache() -> Path:
    """Where benchmarks keep what they fetched and computed."""
    path = user_cache_path("spec-complete") / "benchmarks"
    path.mkdir(parents=True, exist_ok=True)
    return path


def wheel(name: str, version: str) -> Path:
    """The wheel of a package, fetched at most once.

    Raises:
        DownloadError: pip could not fetch it.
    """
    folder = benchmark_cache() / "wheels" / f"{name}-{version}"
    found = sorted(folder.glob("*.whl"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", str(folder), f"{name}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True)
        found = sorted(folder.glob("*.whl"))
        if not found:
            reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise DownloadError(f"cannot fetch {name}=={version}: {reason}")
    return found[0]


def sources(archive: Path, suffixes: tuple[str, ...] = (".py",)) -> dict[str, str]:
    """Path to text of every source file in a wheel, line ends normalised; files that are not UTF-8 are left out."""
    texts = {}
    with zipfile.ZipFile(archive) as zipped:
        for path in sorted(zipped.namelist()):
            if path.endswith(suffixes):
                try:
                    text = zipped.read(path).decode("utf-8-sig")
                except UnicodeDecodeError:
                    continue
                texts[path] = text.replace("\r\n", "\n").replace("\r", "\n")
    return texts
