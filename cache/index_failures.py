"""Why the last build of an index failed, kept beside it for whoever asks: `doctor` and `index --stats`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from cache.durable import replace_synced
from cache.paths import private_dir

FAILURE = "failure.json"


def note(directory: Path, root: str, what: str) -> None:
    """Writes down what went wrong; where that cannot be written, nobody will know."""
    with contextlib.suppress(OSError):
        private_dir(directory)
        replace_synced(directory / FAILURE, json.dumps({"root": root, "what": what}).encode())


def forget(directory: Path) -> None:
    """A build succeeded."""
    with contextlib.suppress(OSError):
        (directory / FAILURE).unlink(missing_ok=True)


def is_noted(directory: Path) -> bool:
    """Whether the last build is known to have failed."""
    return (directory / FAILURE).exists()


def failed_builds(base: Path) -> dict[str, str]:
    """What went wrong, by workspace root, of all indexes below ``base`` whose last build failed."""
    found = {}
    for path in base.glob(f"*/{FAILURE}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            row = json.loads(path.read_bytes())
            found[str(row["root"])] = str(row["what"])
    return found
