"""From a model's name to a completer: files, engine, tokenizer, drafter. Shared by the server and the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cache.models import ModelFiles
    from speculation.completion import Completer
    from speculation.drafting import Stores
    from speculation.tokenizer import Tokenizer

Progress = Callable[[str, float], None]

NUMBER_FORMATS = ("auto", "float32", "bfloat16", "float16", "float64")
ENGINES = ("auto", "eager", "int8", "graphs")


class LoadingError(Exception):
    """The engine cannot be started as asked; says what to do."""

    exit_code = 2


def pick_device(device: str) -> str:
    """ "auto" is the first GPU if torch can use one, else the CPU."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def find_model(model: str | None, device: str) -> ModelFiles:
    """The files of a model by name or path, or of the default for this device; never the network.

    Where the GPU's default is not pulled but the CPU's is, that one is taken.
    """
    from cache.models import default_model, is_ready, resolve

    if model is not None:
        return resolve(model)
    name = default_model("cuda" if device.startswith("cuda") else "cpu")
    if not is_ready(name) and is_ready(default_model("cpu")):
        name = default_model("cpu")
    return resolve(name)


def load_engine(
    model: str | None = None,
    device: str = "auto",
    engine: str = "auto",
    dtype: str = "auto",
    progress: Progress = lambda message, fraction: None,
    root: str | None = None,
) -> Completer:
    """A completer that is ready to work; it drafts from the request and, given ``root``, from that workspace's
    frozen index. A server with stores of its own puts another drafter in its place.

    Raises:
        cache.models.ModelNotAvailable: the model is unknown, not pulled or damaged (exit code 3).
        LoadingError: the engine, device or dtype cannot be used here (exit code 2).
    """
    for value, known, what in ((engine, ENGINES, "engine"), (dtype, NUMBER_FORMATS, "dtype")):
        if value not in known:
            raise LoadingError(f"unknown {what} {value!r}: use one of {', '.join(known)}")
    progress("finding the model", 0.0)
    device = pick_device(device)
    files = find_model(model, device)
    progress(f"loading {files.name}", 0.1)
    from cache.paths import cache_dir
    from speculation.completion import Completer
    from speculation.costs import costs_of
    from speculation.drafting import build_drafter
    from speculation.policy import GainPolicy
    from speculation.tokenizer import Tokenizer
    from speculation.verifier.base import VerifierError
    from speculation.verifier.choice import choose

    tokenizer = Tokenizer.from_file(files.tokenizer)
    try:
        verifier = choose(device, engine, dtype, files)
    except (VerifierError, RuntimeError, AssertionError, ValueError, ImportError, OSError) as error:
        # torch and transformers have no errors of their own for a device or a shape they cannot use
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LoadingError(f"{files.name} cannot run with engine {engine} on {device}: {reason}") from error
    tokenizer.prepare()
    progress("measuring", 0.9)
    completer = Completer(verifier, tokenizer, costs=costs_of(verifier, cache_dir() / "costs"))
    completer.drafter = build_drafter(_stores(tokenizer, root), GainPolicy(completer.costs))
    progress("ready", 1.0)
    return completer


def _stores(tokenizer: Tokenizer, root: str | None) -> Stores:
    from cache.frozen_index import FrozenIndex, directory_for
    from cache.paths import index_dir
    from cache.short_grams import FrozenWithShortGrams
    from speculation.drafting import Stores

    workspace = None
    if root:
        directory = directory_for(index_dir(), root, tokenizer.hash)
        if directory.is_dir():
            frozen = FrozenIndex(directory)
            frozen.refresh()
            workspace = FrozenWithShortGrams(frozen)
    return Stores(workspace=workspace, ends_line=lambda token: b"\n" in tokenizer.bytes_of(token))
