"""How much context fits into a device's memory, and what is done when a pass runs out of it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from speculation.verifier.base import OutOfMemoryError

Result = TypeVar("Result")

RESERVE_BYTES = 768 << 20  # activations of a prefill chunk, captured passes, the allocator's own slack
LEAST_CONTEXT = 512  # positions below which a completion is not worth the model


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device; None where it is not the scarce kind (a CPU)."""
    if device.type != "cuda":
        return None
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + cached


def context_for(free: int | None, bytes_per_position: int, wanted: int) -> int:
    """Positions for the stage: as many as wanted if they take at most half of what is free after the reserve.

    The other half is for parked slots.

    Raises:
        OutOfMemoryError: fewer than `LEAST_CONTEXT` positions fit.
    """
    if free is None:
        return wanted
    fits = max(0, free - RESERVE_BYTES) // 2 // bytes_per_position
    if fits < min(wanted, LEAST_CONTEXT):
        raise OutOfMemoryError(
            f"{free >> 20} MB of device memory are left by the model, too little for {LEAST_CONTEXT} "
            f"positions of {bytes_per_position} bytes; close other programs or choose a smaller model"
        )
    return min(wanted, fits)


def retry_once(action: Callable[[], Result], free: Callable[[], object] = gc.collect) -> Result:
    """Runs ``action``; out of device memory, calls ``free``, empties the allocator and tries once more.

    Raises:
        OutOfMemoryError: it failed again.
    """
    try:
        return action()
    except torch.OutOfMemoryError:
        pass  # outside the handler nothing refers to the failed attempt any more
    free()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        return action()
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"out of device memory, also after freeing what could be freed: {error}"
        ) from error
