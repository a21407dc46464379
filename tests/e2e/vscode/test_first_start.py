"""VS Code at the first start: no model, no server, no figures yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vscode, pytest.mark.slow, pytest.mark.timeout(240)]

MODEL = "qwen2.5-coder-0.5b-q4"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: Any, server_class: Any) -> Any:
    """A code-server whose cache has no model and whose log is empty."""
    home = tmp_path_factory.mktemp("bare")
    environment = {"XDG_CACHE_HOME": str(home / "cache"), "SPEC_COMPLETE_MODEL": MODEL}
    running = server_class(home, environment, {})
    yield running
    running.close()


def test_a_missing_model_says_what_to_do(bare: Any, browser: Any, window_class: Any) -> None:
    window = window_class(bare, browser, bare.home / "project")
    window.page.locator(".notification-toast").first.wait_for(state="visible", timeout=120_000)
    window.page.wait_for_timeout(1000)  # the notification slides in
    window.picture("no-model")
    assert f"spec-complete model pull {MODEL}" in window.notifications()
    assert "Download Model" in window.notifications()
    assert "wrong" in window.status()
    window.close()


def test_the_report_says_that_there_are_no_figures_yet(bare: Any, browser: Any, window_class: Any) -> None:
    window = window_class(bare, browser, bare.home / "project")
    window.page.locator(".statusbar-item[id*='specComplete'] a").first.wait_for(
        state="visible", timeout=60_000
    )
    window.command("Spec Complete: Show Latency Report")
    report = window.page.frame_locator("iframe.webview.ready").last.frame_locator("#active-frame")
    report.get_by_text("No request in this log").first.wait_for(state="attached", timeout=60_000)
    window.picture("report-empty")
    window.close()


def test_the_walkthrough_leads_through_the_first_start(bare: Any, browser: Any, window_class: Any) -> None:
    window = window_class(bare, browser, bare.home / "project")
    window.page.locator(".statusbar-item[id*='specComplete'] a").first.wait_for(
        state="visible", timeout=60_000
    )
    window.command("Welcome: Open Walkthrough")
    window.page.wait_for_timeout(800)
    window.type("Start with Spec Complete")
    window.page.wait_for_timeout(500)
    window.press("Enter")
    window.page.get_by_text("Download a model").first.wait_for(state="visible", timeout=30_000)
    window.page.wait_for_timeout(800)
    window.picture("walkthrough")
    window.close()


def test_a_missing_server_is_offered_to_be_installed(
    tmp_path: Path, browser: Any, server_class: Any, window_class: Any
) -> None:
    environment = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
    running = server_class(tmp_path / "none", environment, {"specComplete.server.command": []})
    try:
        window = window_class(running, browser, tmp_path / "project")
        window.page.locator(".notification-toast").first.wait_for(state="visible", timeout=90_000)
        window.picture("no-server")
        assert "Create Environment" in window.notifications()
        assert "not installed" in window.status()
    finally:
        running.close()
