"""Runs one program that nobody has read, inside the process that `benchmarks.infilling_sandbox` made for it.

Run as a script with ``-I -S -B``: program, limits and a word come on standard input as JSON, and the word goes to
standard output when the program came to its end, which neither ``os._exit`` nor ``sys.exit`` can feign. An audit hook
refuses writing outside the working directory, other processes, sockets, signals and foreign code. That keeps clumsy
programs harmless; it is no wall against clever ones.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = ("subprocess.", "socket.", "ctypes.", "signal.", "pty.", "syslog.", "os.exec", "os.posix_spawn")
_REFUSED_EXACTLY = {"os.system", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.putenv", "os.chdir"}
# event to which of its arguments are paths that change
_CHANGES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.link": (0, 1),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
    "shutil.rmtree": (0,),
    "shutil.move": (0, 1),
}


class RefusedError(PermissionError):
    """The program tried what it must not do."""


def guard(directory: str) -> None:
    """From here on only ``directory`` can be written to."""
    inside = os.path.realpath(directory) + os.sep

    def within(path: object) -> bool:
        if not isinstance(path, (str, bytes)):
            return False
        return os.path.realpath(os.fsdecode(path)).startswith(inside)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in _REFUSED_EXACTLY or event.startswith(_REFUSED):
            raise RefusedError(f"{event} is refused")
        if event == "open":
            path, mode, flags = arguments
            writes = (
                any(c in mode for c in "wax+") if isinstance(mode, str) else bool(int(str(flags)) & _WRITES)
            )
            if writes and not isinstance(path, int) and not within(path):
                raise RefusedError(f"writing {path!r} is refused")
        for at in _CHANGES.get(event, ()):
            if not within(arguments[at]):
                raise RefusedError(f"{event} of {arguments[at]!r} is refused")

    sys.addaudithook(hook)


def limit(limits: dict[str, int]) -> None:
    """Sets limits by the names that `resource` has for them; those that the system does not know are left out."""
    for name, most in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (AttributeError, OSError, ValueError):  # address space on macOS, for one
            continue


def main() -> None:
    """Runs the program and says the word."""
    order = json.load(sys.stdin)
    limit(order["limits"])
    sys.stdin = io.StringIO()
    answer, sys.stdout = sys.stdout, io.StringIO()
    guard(".")
    exec(compile(order["program"], "program", "exec"), {"__name__": "program"})
    answer.write(order["word"])
    answer.flush()


if __name__ == "__main__":
    main()
