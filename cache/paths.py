"""Where the product keeps things on disk: the user's cache and state directories.

Models and indexes can be rebuilt, so they are in the cache directory; log and history are in the state
directory. All of it may hold pieces of the user's code: directories are created with mode 0700.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import platformdirs

APP_NAME = "spec-complete"
CACHE_DIR_VARIABLE = "SPEC_COMPLETE_CACHE_DIR"
STATE_DIR_VARIABLE = "SPEC_COMPLETE_STATE_DIR"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_dir() -> Path:
    """The root of what can be rebuilt; `SPEC_COMPLETE_CACHE_DIR` overrides it."""
    return private_dir(_root(CACHE_DIR_VARIABLE, platformdirs.user_cache_dir(APP_NAME, appauthor=False)))


def state_dir() -> Path:
    """The root of what is remembered; `SPEC_COMPLETE_STATE_DIR` overrides it."""
    return private_dir(_root(STATE_DIR_VARIABLE, platformdirs.user_state_dir(APP_NAME, appauthor=False)))


def models_dir() -> Path:
    """Pulled model files and their converted forms."""
    return private_dir(cache_dir() / "models")


def index_dir() -> Path:
    """Frozen n-gram indexes, one directory per workspace."""
    return private_dir(cache_dir() / "index")


def log_dir() -> Path:
    """The latency log."""
    return private_dir(state_dir() / "log")


def history_dir() -> Path:
    """Accepted completions and what the user wrote."""
    return private_dir(state_dir() / "history")


def runtime_dir() -> Path:
    """Sockets and locks of running processes: the user's runtime directory, or a private one beside it.

    A socket's path may have about 100 characters only, so a long runtime directory is replaced by a short
    one in the system's temporary directory. Raises OSError, which says what to do, where neither can be
    trusted: whoever can put a socket of their own there would be told all that is typed.
    """
    try:
        runtime = Path(platformdirs.user_runtime_dir(APP_NAME, appauthor=False))
        if len(str(runtime)) > 80:
            raise OSError("too long for a socket's path")
        return _trusted(private_dir(runtime))
    except OSError:
        user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
        return _trusted(private_dir(Path(tempfile.gettempdir()) / f"{APP_NAME}-{user}"))


def private_dir(path: Path) -> Path:
    """Creates `path` if it is missing, with mode 0700 for every directory that had to be made."""
    if not path.is_dir():
        if not path.parent.is_dir():
            private_dir(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def _trusted(path: Path) -> Path:
    """`path`, if nobody but its user (and root) can put files there, or another directory in its place."""
    if not hasattr(os, "getuid"):
        return path
    found, parent = path.lstat(), path.parent.stat()
    problem = ""
    if not stat.S_ISDIR(found.st_mode):
        problem = "is no directory of its own but a link" if path.is_symlink() else "is no directory"
    elif found.st_uid != os.getuid():
        problem = "belongs to another user"
    elif found.st_mode & OTHERS_WRITE:
        problem = "can be written by others"
    elif parent.st_uid not in (0, os.getuid()):
        problem = "lies in a directory of another user"
    elif parent.st_mode & OTHERS_WRITE and not parent.st_mode & stat.S_ISVTX:
        problem = "lies in a directory that others can change"
    if problem:
        raise PermissionError(
            f"{path} {problem}: remove it, or set XDG_RUNTIME_DIR to a directory of your own"
        )
    return path


def _root(variable: str, default: str) -> Path:
    chosen = os.environ.get(variable)
    return Path(chosen).expanduser().absolute() if chosen else Path(default)
