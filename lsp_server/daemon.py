"""Finding the shared process that owns the model, or starting it.

One process per user and choice of engine listens on a Unix socket in a private directory. Whoever connects
says hello first, and which variables are set where it runs: a process that runs other code than we do is
retired (it serves the clients it has, and ends with them) and a new one is started. Imported by the thin
front end: standard library only.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from cache.paths import (
    CACHE_DIR_VARIABLE,
    STATE_DIR_VARIABLE,
    cache_dir,
    log_dir,
    runtime_dir,
    state_dir,
)
from lsp_server.framing import frame, read_message_from
from lsp_server.settings import (
    ENVIRONMENT_PREFIX,
    FILE_VARIABLE,
    Settings,
    own_variables,
    process_variables,
    settings_path,
)

HELLO, RETIRE = "specComplete/hello", "specComplete/retire"
# read by what the engine is made of, when it is loaded
LIBRARY_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
START_TIMEOUT_S = 20.0
POLL_S = 0.02


class DaemonError(Exception):
    """The shared process cannot be reached or started; says where its log is."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What makes two processes different."""

    model: str | None = None
    device: str = "auto"
    engine: str = "auto"
    dtype: str = "auto"

    @classmethod
    def of(cls, settings: Settings) -> EngineChoice:
        return cls(settings.model, settings.device, settings.engine, settings.dtype)

    def socket_path(self) -> Path:
        """Where its process listens. Raises `DaemonError` where no private directory can be had."""
        try:
            with warnings.catch_warnings():  # of a missing one is dealt with; stderr is the editor's log
                warnings.simplefilter("ignore")
                directory = runtime_dir()
            named = {**_surroundings(), **self.environment()}
        except OSError as error:
            raise DaemonError(f"no process can be shared: {error}") from error
        told = "\0".join(f"{name}={value}" for name, value in sorted(named.items()))
        return directory / f"{hashlib.sha256(told.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}.sock"

    def environment(self) -> dict[str, str]:
        """The variables it is started with; its working directory is not ours, so paths are absolute."""
        values = {"model": self.model, "device": self.device, "engine": self.engine, "dtype": self.dtype}
        if self.model is not None and (os.sep in self.model or self.model.endswith(".gguf")):
            values["model"] = str(Path(self.model).expanduser().absolute())
        file = settings_path().absolute()
        return {
            CACHE_DIR_VARIABLE: str(cache_dir()),
            STATE_DIR_VARIABLE: str(state_dir()),
            **({FILE_VARIABLE: str(file)} if file.exists() else {}),  # one that is not there sets nothing
            **{
                ENVIRONMENT_PREFIX + name.upper(): value
                for name, value in values.items()
                if value is not None
            },
        }


def _surroundings() -> dict[str, str]:
    """What else of our environment a process would live by: another needs another process.

    The other variables of ours are settings of each client, which tells them in its hello.
    """
    names = (*process_variables(), *LIBRARY_VARIABLES)
    return {name: os.environ[name] for name in names if name in os.environ}


def code_version() -> str:
    """Tells two states of our own code apart: where it lies, and when it last changed."""
    packages = Path(__file__).resolve().parents[1]
    files = [
        file for name in ("lsp_server", "speculation", "cache") for file in (packages / name).rglob("*.py")
    ]
    newest = max(file.stat().st_mtime_ns for file in files)
    return f"{packages}:{newest}"


def join(choice: EngineChoice) -> socket.socket:
    """A connection to the process that owns this engine, started if there is none. Raises `DaemonError`."""
    path = choice.socket_path()
    version = code_version()
    if (connection := _connect(path, version)) is not None:
        return connection
    with _locked(path.with_suffix(".lock")):
        if (connection := _connect(path, version)) is not None:  # another front end was faster
            return connection
        path.unlink(missing_ok=True)
        process = _start(path, choice)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            if (connection := _connect(path, version)) is not None:
                return connection
            time.sleep(POLL_S)
        process.kill()  # else it would come after all, beside the one that is started next
    raise DaemonError(f"the model's process did not start: see {_log_path()}")


def running(choice: EngineChoice) -> socket.socket | None:
    """A connection to the process that owns this engine, if there is one."""
    return _connect(choice.socket_path(), code_version())


def _connect(path: Path, version: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(START_TIMEOUT_S)
    try:
        connection.connect(str(path))
        told = _hello(connection, version)
    except OSError:
        connection.close()
        return None
    if told.get("version") == version:
        connection.settimeout(None)
        return connection
    connection.sendall(frame({"jsonrpc": "2.0", "method": RETIRE, "params": None}))
    connection.close()
    deadline = time.monotonic() + 2
    while path.exists() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return None


def _hello(connection: socket.socket, version: str) -> dict[str, Any]:
    params = {"version": version, "environment": own_variables()}
    connection.sendall(frame({"jsonrpc": "2.0", "id": "hello", "method": HELLO, "params": params}))
    with connection.makefile("rb", buffering=0) as unbuffered:  # takes no byte of what follows
        reply = read_message_from(cast(IO[bytes], unbuffered))
    if not isinstance(reply, dict) or not isinstance(reply.get("result"), dict):
        raise ConnectionError("no answer to hello")
    result: dict[str, Any] = reply["result"]
    return result


def _start(path: Path, choice: EngineChoice) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-m", "lsp_server", "serve", "--socket", str(path)]
    with _log_path().open("ab") as log:
        _log_path().chmod(0o600)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=path.parent,
            env={**os.environ, **choice.environment()},
            start_new_session=True,
        )


def _log_path() -> Path:
    return log_dir() / "daemon.log"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl  # not on every platform, but where there are sockets

    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
