"""Converts a GGUF file once into what loads in a second: safetensors, config.json and tokenizer.json.

Dequantised values are kept in float32 up to `FLOAT32_PARAMETERS_MAX`, because rounding them to 16 bits
would make another model of them; larger models are kept in bfloat16, else they would not fit in memory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

from filelock import FileLock

from cache.catalogue import ModelNotAvailable
from cache.durable import sync_directory
from cache.progress import working
from cache.sealed import sample

FORMAT_VERSION = 1
META_FILE = "meta.json"
WEIGHTS_FILE = "model.safetensors"
FLOAT32_PARAMETERS_MAX = 2_000_000_000
DISK_FULL = "no disk space. Make room, or set SPEC_COMPLETE_CACHE_DIR to a directory on another disk"
ROOM_BYTES = 64 << 20
"""Left free on the disk beside what a download or a conversion writes."""


def converted_dir(root: Path, source_sha256: str, dtype: str) -> Path:
    """Where the converted form of a source file with this hash is kept."""
    return root / "converted" / f"{source_sha256[:24]}-{dtype}"


def is_converted(directory: Path) -> bool:
    """Whether `directory` holds a whole conversion of this format: every file there, with its size and, in
    samples, its content (`require_whole` reads all of it)."""
    meta = read_meta(directory)
    if meta is None or meta.get("format") != FORMAT_VERSION:
        return False
    for name, record in meta["files"].items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != record["bytes"]:
            return False
        if sample(path) != record.get("sample"):
            return False
    return True


def require_whole(directory: Path) -> None:
    """Raises ModelNotAvailable where `directory` is a conversion and a file there is not what was written.

    Reads all of it. Such a conversion is forgotten, so that the model is converted again when it is next asked for.
    """
    meta = read_meta(directory)
    for name, record in (meta or {"files": {}})["files"].items():
        path = directory / name
        if not path.is_file() or file_sha256(path) != record["sha256"]:
            forget_conversion(directory)
            raise ModelNotAvailable(f"{path} is damaged. Run the same command again to convert it again")


def forget_conversion(directory: Path) -> None:
    """The conversion in `directory` no longer counts as one."""
    (directory / META_FILE).unlink(missing_ok=True)


def read_meta(directory: Path) -> dict[str, Any] | None:
    """The record of a conversion, or None where there is none that can be read."""
    try:
        meta = json.loads((directory / META_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return meta if isinstance(meta, dict) and isinstance(meta.get("files"), dict) else None


def stored_dtype(parameters: int) -> str:
    """The dtype a model of this many parameters is kept in."""
    return "float32" if parameters <= FLOAT32_PARAMETERS_MAX else "bfloat16"


def gguf_parameters(gguf: Path) -> int:
    """The number of weights in a GGUF file; raises ModelNotAvailable where it is not whole."""
    from gguf import GGUFReader

    try:
        return sum(int(tensor.n_elements) for tensor in GGUFReader(str(gguf)).tensors)
    except Exception as error:  # the reader raises whatever the broken bytes led it to
        raise ModelNotAvailable(f"{gguf} is not a whole GGUF file ({error}): fetch it again") from error


def convert_gguf(gguf: Path, source_sha256: str, root: Path) -> Path:
    """The converted form of `gguf` under `root`, made now if it is not there yet.

    It is written beside its place and renamed when whole; on failure nothing is left behind.
    Raises ModelNotAvailable with the reason and what to do.
    """
    parameters = gguf_parameters(gguf)
    dtype = stored_dtype(parameters)
    target = converted_dir(root, source_sha256, dtype)
    if is_converted(target):
        return target
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(str(target) + ".lock"):
        if is_converted(target):
            return target
        require_space(target.parent, parameters * (4 if dtype == "float32" else 2), f"converting {gguf.name}")
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
        partial.mkdir(mode=0o700)
        try:
            with working(f"Converting {gguf.name} to {dtype} (once)"):
                _write(gguf, partial, source_sha256, dtype)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
            sync_directory(target.parent)
        except (OSError, ValueError, KeyError, NotImplementedError, RuntimeError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise ModelNotAvailable(f"{gguf} could not be converted: {_reason(error)}") from error
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return target


def require_space(directory: Path, needed_bytes: int, purpose: str) -> None:
    """Raises ModelNotAvailable unless the disk of `directory` has room for `needed_bytes`."""
    free = shutil.disk_usage(directory).free
    if free < needed_bytes + ROOM_BYTES:
        raise ModelNotAvailable(
            f"no disk space: {purpose} needs {needed_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free in "
            f"{directory}. Make room, or set SPEC_COMPLETE_CACHE_DIR to a directory on another disk"
        )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _write(gguf: Path, directory: Path, source_sha256: str, dtype: str) -> None:
    import torch
    import transformers
    from safetensors.torch import save_file

    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, local_files_only=True
    )
    tokenizer.save_pretrained(directory)
    with contextlib.redirect_stderr(io.StringIO()):  # its bar for the tensors cannot be turned off
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=getattr(torch, dtype), local_files_only=True
        )
    save_file(_unshared(model.state_dict()), directory / WEIGHTS_FILE, metadata={"format": "pt"})
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):  # no longer true of what is written
        config.pop(key, None)
    config["dtype"] = dtype
    config["architectures"] = [type(model).__name__]
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path), "sample": sample(path)}
        for path in sorted(directory.iterdir())
        if path.is_file()
    }
    meta = {
        "format": FORMAT_VERSION,
        "source": gguf.name,
        "source_sha256": source_sha256,
        "dtype": dtype,
        "converter": f"transformers {transformers.__version__}",
        "files": files,
    }
    (directory / META_FILE).write_text(json.dumps(meta, indent=2) + "\n", "utf-8")
    for path in directory.iterdir():
        path.chmod(0o600)
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    sync_directory(directory)


def _unshared(state: dict[str, Any]) -> dict[str, Any]:
    """The tensors without those that another name already holds (tied embeddings are stored once)."""
    kept: dict[tuple[int, tuple[int, ...]], str] = {}
    result = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if place in kept:
            continue
        kept[place] = name
        result[name] = tensor.contiguous()
    return result


def is_disk_full(error: BaseException) -> bool:
    """Whether `error` says that the disk is full, in whichever library's words."""
    words = str(error)
    return getattr(error, "errno", None) == errno.ENOSPC or "No space left" in words or "os error 28" in words


def _reason(error: BaseException) -> str:
    if is_disk_full(error):
        return DISK_FULL
    return (str(error).splitlines() or [type(error).__name__])[0]
