"""What the command line drafts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cache.frozen_index import directory_for
from cache.index_builder import IndexBuilder
from cache.paths import index_dir
from cache.workspace import Workspace
from speculation.loading import _stores
from speculation.tokenizer import Tokenizer


def test_the_workspaces_index_is_ready_to_be_asked(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_COMPLETE_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text(
        "def helper(first, second):\n    return first_thing(second) + other_thing(first)\n"
    )
    assert _stores(tokenizer, str(root)).workspace is None
    IndexBuilder(directory_for(index_dir(), root, tokenizer.hash), Workspace(root), tokenizer.encode).run()
    workspace = _stores(tokenizer, str(root)).workspace
    assert workspace is not None
    match = workspace.query(tokenizer.encode("\n    return first_thing(second) +"), 1)[0]
    assert tokenizer.decode(workspace.continuation(match, 16)).startswith(" other_thing")
