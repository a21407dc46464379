"""Tiny model directories and wheels, made in the test: nothing is downloaded."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel


def write_model_directory(directory: Path) -> Path:
    """A directory in the shape of a transformers causal LM, with one small tensor."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "qwen2", "dtype": "bfloat16", "architectures": ["Qwen2ForCausalLM"]}
    (directory / "config.json").write_text(json.dumps(config))
    Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(directory / "tokenizer.json"))
    save_file({"w": np.arange(64, dtype=np.float32)}, directory / "model.safetensors")
    return directory


def write_wheel(directory: Path, part: int, member: str, data: bytes) -> Path:
    """A wheel `fake-model-partN==1.0` that carries `data` as `member`."""
    name = f"fake_model_part{part}"
    info = f"{name}-1.0.dist-info"
    path = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, data)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('a wheel must never be run')")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: fake-model-part{part}\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path
