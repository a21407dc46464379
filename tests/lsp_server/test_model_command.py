"""`spec-complete model`: one clear line and the right exit code, whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from cache import models, paths
from lsp_server.cli import main


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.CACHE_DIR_VARIABLE, str(tmp_path / "cache"))


def test_list_shows_every_model_with_its_licence_and_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "list"]) == 0
    shown = capsys.readouterr().out
    for entry in models.catalogue().values():
        [line] = [line for line in shown.splitlines() if line.split()[:1] == [entry.name]]
        assert entry.licence in line and "not pulled" in line
        assert ("untried" in line) == entry.untried


@pytest.mark.parametrize("action", ["pull", "path", "verify"])
def test_an_unknown_model_is_exit_code_3_and_one_line(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", action, "no-such-model"]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Known models: qwen2.5-coder-0.5b-q4" in error


def test_path_of_a_model_that_is_not_pulled_says_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "path", "smollm2-135m-q4"]) == 3
    captured = capsys.readouterr()
    assert captured.out == "" and "spec-complete model pull smollm2-135m-q4" in captured.err


def test_verify_names_the_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [(tmp_path / "good", True), (tmp_path / "bad", False)]
    monkeypatch.setattr(models, "verify", lambda name: results)
    assert main(["model", "verify", "smollm2-135m-q4"]) == 3
    captured = capsys.readouterr()
    assert f"DAMAGED  {tmp_path / 'bad'}" in captured.out and f"ok  {tmp_path / 'good'}" in captured.out
    assert "model pull smollm2-135m-q4" in captured.err
