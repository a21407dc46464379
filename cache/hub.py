"""Fetches model files from the hub, pinned to the commit and the hashes that it states itself."""

from __future__ import annotations

import errno
import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cache.catalogue import Entry, ModelNotAvailable
from cache.progress import watch_growth

REACH_SECONDS = 5.0
"""How long the hub may take to answer before it counts as out of reach."""


class HubUnreachable(ModelNotAvailable):
    """The hub gave no answer about a repository."""


@dataclass(frozen=True)
class HubFile:
    """One file of a repository: name, size in bytes, and the SHA-256 of its LFS record or None."""

    name: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True)
class HubListing:
    """The files of an entry at one commit."""

    commit: str
    files: tuple[HubFile, ...]


def list_files(entry: Entry, revision: str | None) -> HubListing:
    """What the hub holds for `entry`, at `revision` or its newest commit; found out in seconds.

    Raises HubUnreachable where it gives no answer, ModelNotAvailable where files are missing there.
    """
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(
            str(entry.hub), revision=revision, files_metadata=True, timeout=REACH_SECONDS
        )
    except Exception as error:  # the library passes on whatever its HTTP client raises
        raise HubUnreachable(f"the hub gave no answer for {entry.hub} ({_first_line(error)})") from error
    files = tuple(
        HubFile(sibling.rfilename, sibling.size or 0, _lfs_sha256(sibling))
        for sibling in info.siblings or ()
        if any(fnmatch.fnmatchcase(sibling.rfilename, pattern) for pattern in entry.files)
    )
    if not any(file.name.endswith((".safetensors", ".gguf")) for file in files):
        raise ModelNotAvailable(f"{entry.hub} has no safetensors or GGUF file; other formats are not read")
    return HubListing(str(info.sha), files)


def fetch_from_hub(entry: Entry, listing: HubListing, partial: Path) -> None:
    """Downloads the listed files into `partial`; files half fetched by an earlier try are continued."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    total = sum(file.bytes for file in listing.files)
    try:
        with watch_growth(partial, total, f"Fetching {entry.name} from the hub"):
            for file in listing.files:
                hf_hub_download(
                    str(entry.hub),
                    file.name,
                    revision=listing.commit,
                    local_dir=partial,
                    etag_timeout=REACH_SECONDS,
                )
    except Exception as error:  # as above
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise
        raise HubUnreachable(
            f"the hub broke off while sending {entry.name} ({_first_line(error)})"
        ) from error


def _lfs_sha256(sibling: Any) -> str | None:
    return sibling.lfs.sha256 if sibling.lfs else None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
