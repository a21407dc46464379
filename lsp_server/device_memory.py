"""How much memory a process has in use on its device."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

READ_EVERY_S = 1.0  # reading it takes longer than the rest of a record
STATM = Path("/proc/self/statm")


class DeviceMemory:
    """Bytes in use: allocated by torch on a GPU, resident on a CPU; None where that can't be told."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._bytes: int | None = None
        self._read_at_s = -READ_EVERY_S

    def __call__(self) -> int | None:
        now = time.monotonic()
        if now - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = now
            self._bytes = self._read()
        return self._bytes

    def _read(self) -> int | None:
        torch = sys.modules.get("torch")  # whoever has a model there has imported it
        if self._device.startswith("cuda") and torch is not None:
            return int(torch.cuda.memory_allocated(self._device))
        if self._device != "cpu":
            return None
        try:
            return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):  # only Linux tells it like this
            return None
