"""Whether the editor's process is still there; a standard input that others inherited does not tell."""

from __future__ import annotations

import os
import sys

PARENT_CHECK_S = 1.0


def is_alive(pid: int) -> bool:
    """Whether a process has this id; True where that cannot be asked."""
    if sys.platform == "win32":  # signal 0 is no question there
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
