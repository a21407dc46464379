"""Model files by name or path: what is pulled, what it weighs, and whether it is still whole.

`resolve` is what the engines call. Only safetensors and GGUF are read, and code that comes with a model
is never run. After a pull nothing here touches the network.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cache.catalogue import Entry, ModelNotAvailable, catalogue, default_model, find_entry
from cache.convert import (
    convert_gguf,
    converted_dir,
    file_sha256,
    forget_conversion,
    gguf_parameters,
    is_converted,
    read_meta,
)
from cache.convert import stored_dtype as stored_dtype
from cache.paths import models_dir
from cache.progress import working
from cache.pull import damaged_files, pull, read_source, source_dir
from cache.sealed import is_sealed_and_whole, sample

__all__ = [
    "ModelFiles",
    "ModelNotAvailable",
    "catalogue",
    "default_model",
    "ensure",
    "find_entry",
    "is_ready",
    "pull_model",
    "resolve",
    "verify",
]

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


@dataclass(frozen=True)
class ModelFiles:
    """A model directory that transformers and `Tokenizer.from_file` load as it is.

    `hash` changes whenever the weights, the configuration or the tokenizer do: a key for what is derived
    from them. `dtype` is the stored one ("float32", "bfloat16", …).
    """

    name: str
    directory: Path
    hash: str
    config: Path
    tokenizer: Path
    weights: tuple[Path, ...]
    dtype: str


def resolve(name_or_path: str) -> ModelFiles:
    """The files of a pulled model, or of a local directory or GGUF file (converted at first use).

    Raises ModelNotAvailable, whose message says what to do.
    """
    if name_or_path in catalogue():
        return _resolve_entry(catalogue()[name_or_path])
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return _resolve_directory(path.absolute())
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise ModelNotAvailable(f"{path}: {_no_pickle()}")
    if path.is_file():
        return _resolve_gguf(path.absolute())
    if os.sep in name_or_path or path.suffix:
        raise ModelNotAvailable(
            f"there is no model at {path}: give the path of a model directory or GGUF file"
        )
    find_entry(name_or_path)
    raise AssertionError("find_entry raises for an unknown name")


def ensure(name_or_path: str) -> ModelFiles:
    """`resolve`, after pulling the model where it is a known one that is not ready."""
    if name_or_path in catalogue() and not is_ready(name_or_path):
        pull_model(name_or_path)
    return resolve(name_or_path)


def pull_model(name: str, origin: str | None = None) -> ModelFiles:
    """Fetches, checks and converts a known model; a damaged one is replaced. See `cache.pull.pull`."""
    entry = find_entry(name)
    root = models_dir()
    source = read_source(root, entry)
    if source is not None and _damaged_conversion(root, entry, source):
        forget_conversion(_conversion(root, entry, source))
    pull(entry, root, origin)
    return resolve(name)


def is_ready(name: str) -> bool:
    """Whether a known model is pulled and converted; looks at sizes and samples, not at all (see `verify`)."""
    entry, root = find_entry(name), models_dir()
    source = read_source(root, entry)
    if source is None:
        return False
    return entry.format != "gguf" or is_converted(_conversion(root, entry, source))


def verify(name: str) -> list[tuple[Path, bool]]:
    """Every file of a known model with whether its hash is right: the source's, the converted ones, and the
    weights that engines made of them."""
    entry, root = find_entry(name), models_dir()
    source = read_source(root, entry)
    if source is None:
        raise ModelNotAvailable(_not_pulled(entry))
    known = {file: {"sha256": sha} for file, sha in (entry.sha256 or {}).items()}
    checks = [(source_dir(root, entry), {**source["files"], **known})]
    if entry.format == "gguf":
        conversion = _conversion(root, entry, source)
        meta = read_meta(conversion)
        if meta is None:
            raise ModelNotAvailable(f"{name} is not converted: run spec-complete model pull {name}")
        checks.append((conversion, meta["files"]))
    result = []
    for directory, files in checks:
        damaged = damaged_files(directory, files)
        result += [(directory / file, file not in damaged) for file in files]
    if all(intact for _, intact in result):
        key = resolve(name).hash[:24]
        result += [(path, is_sealed_and_whole(path)) for path in sorted(made_weights(root).glob(f"{key}-*"))]
    return result


def made_weights(root: Path) -> Path:
    """Where engines keep weights in their own form, sealed; the names begin with 24 digits of `ModelFiles.hash`."""
    return root / "int8"


def _resolve_entry(entry: Entry) -> ModelFiles:
    root = models_dir()
    source = read_source(root, entry)
    if source is None:
        raise ModelNotAvailable(_not_pulled(entry))
    directory = source_dir(root, entry)
    if entry.format != "gguf":
        for file, record in source["files"].items():
            if record.get("sample", "") not in ("", sample(directory / file)):
                raise ModelNotAvailable(
                    f"{directory / file} is damaged: run spec-complete model pull {entry.name}"
                )
        return _resolve_directory(directory, entry.name)
    conversion = _conversion(root, entry, source)
    if not is_converted(conversion):
        [(name, file)] = source["files"].items()
        print(f"The converted form of {entry.name} is missing or damaged: it is made again", file=sys.stderr)
        convert_gguf(directory / name, file["sha256"], root)
    return _resolve_directory(conversion, entry.name)


def _resolve_gguf(path: Path) -> ModelFiles:
    with path.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ModelNotAvailable(f"{path} is not a GGUF file: give a GGUF file or a model directory")
    root = models_dir()
    sha256 = _local_sha256(path, root)
    target = converted_dir(root, sha256, stored_dtype(gguf_parameters(path)))
    return _resolve_directory(target if is_converted(target) else convert_gguf(path, sha256, root), path.stem)


def _resolve_directory(directory: Path, name: str | None = None) -> ModelFiles:
    files = {path.name: path for path in directory.iterdir()}
    weights = tuple(sorted(path for path in files.values() if path.suffix == ".safetensors"))
    if not weights:
        ggufs = [path for path in files.values() if path.suffix == ".gguf"]
        if len(ggufs) == 1:
            return _resolve_gguf(ggufs[0])
        if any(path.suffix in PICKLE_SUFFIXES for path in files.values()):
            raise ModelNotAvailable(f"{directory}: {_no_pickle()}")
        raise ModelNotAvailable(f"{directory} holds no model: no *.safetensors and no single *.gguf in it")
    for needed in ("config.json", "tokenizer.json"):
        if needed not in files:
            raise ModelNotAvailable(
                f"{directory} has no {needed}: save model and tokenizer there "
                f"with transformers' save_pretrained"
            )
    config = _read_json(files["config.json"])
    missing = [shard for shard in _indexed_shards(files) if shard not in files]
    if missing:
        raise ModelNotAvailable(f"{directory} is not whole: {missing[0]} is missing. Fetch the model again")
    for path in weights:
        if not _is_whole_safetensors(path):
            raise ModelNotAvailable(f"{path} is damaged or half downloaded: fetch the model again")
    return ModelFiles(
        name=name or directory.name,
        directory=directory,
        hash=_directory_hash(files["config.json"], files["tokenizer.json"], weights, name is None),
        config=files["config.json"],
        tokenizer=files["tokenizer.json"],
        weights=weights,
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "float32"),
    )


def _directory_hash(config: Path, tokenizer: Path, weights: tuple[Path, ...], foreign: bool) -> str:
    """A hash over small files' bytes and the weights' headers, sizes and times: all of them takes seconds.

    Of a ``foreign`` directory, which others write to, samples of the weights count too.
    """
    digest = hashlib.sha256()
    for path in (config, tokenizer):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for path in weights:
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}".encode())
        digest.update(_safetensors_header(path) or b"")
        if foreign:
            digest.update(sample(path).encode())
    return digest.hexdigest()


def _safetensors_header(path: Path) -> bytes | None:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(path.stat().st_size, 100_000_000):
            return None
        return stream.read(length)


def _is_whole_safetensors(path: Path) -> bool:
    """Whether the file is as long as its header says; a broken-off download is found without reading it."""
    header = _safetensors_header(path)
    if header is None:
        return False
    try:
        tensors = [value for key, value in json.loads(header).items() if key != "__metadata__"]
        end = max((tensor["data_offsets"][1] for tensor in tensors), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False
    return bool(path.stat().st_size == 8 + len(header) + end)


def _indexed_shards(files: dict[str, Path]) -> set[str]:
    index = files.get("model.safetensors.index.json")
    return set(_read_json(index).get("weight_map", {}).values()) if index else set()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelNotAvailable(f"{path} cannot be read ({error}): fetch the model again") from error
    if not isinstance(value, dict):
        raise ModelNotAvailable(f"{path} is not a JSON object: fetch the model again")
    return value


def _local_sha256(path: Path, root: Path) -> str:
    """The hash of a local GGUF file, remembered by path, size and time."""
    status = path.stat()
    identity = f"{path} {status.st_size} {status.st_mtime_ns}"
    record = root / "local" / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.sha256"
    if record.is_file() and len(known := record.read_text("ascii").strip()) == 64:
        return known
    record.parent.mkdir(mode=0o700, exist_ok=True)
    with working(f"Reading {path.name}"):
        sha256 = file_sha256(path)
    record.write_text(sha256 + "\n", "ascii")
    return sha256


def _conversion(root: Path, entry: Entry, source: dict[str, Any]) -> Path:
    [file] = source["files"].values()
    return converted_dir(root, file["sha256"], stored_dtype(entry.parameters or 0))


def _damaged_conversion(root: Path, entry: Entry, source: dict[str, Any]) -> bool:
    if entry.format != "gguf":
        return False
    conversion = _conversion(root, entry, source)
    meta = read_meta(conversion)
    return meta is None or bool(damaged_files(conversion, meta["files"]))


def _not_pulled(entry: Entry) -> str:
    return f"{entry.name} is not there yet, or only in part: run spec-complete model pull {entry.name}"


def _no_pickle() -> str:
    return "pickled weights (.bin, .pt) can run code and are not read. Use its safetensors or GGUF form"
