"""Drives a real VS Code (code-server with its extension host) in a headless Chromium, as users do.

`tests/e2e/install-code-server.sh DIR` installs it; DIR is `build/editors/vscode`, or `SPEC_COMPLETE_VSCODE`.
`make vsix` builds the extension that is installed here. Screenshots are kept in `artifacts/vscode`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).parents[3]
VSCODE = Path(os.environ.get("SPEC_COMPLETE_VSCODE", ROOT / "build/editors/vscode"))
PLUGIN = ROOT / "editor-plugins/vscode"
ARTIFACTS = ROOT / "artifacts/vscode"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
SETTINGS = {
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.minimap.enabled": False,
    "editor.fontSize": 15,
    "editor.suggestOnTriggerCharacters": False,
    "editor.parameterHints.enabled": False,
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.tips.enabled": False,
    "files.hotExit": "off",
    "window.confirmBeforeClose": "never",
    "specComplete.server.command": [str(Path(sys.executable).with_name("spec-complete")), "serve"],
}


def wait_for(what: Callable[[], Any], timeout_s: float = 10.0, about: str = "") -> Any:
    """The first true value of ``what()``; fails after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while not (value := what()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout_s:.0f} s for {about}; last value: {value!r}")
        time.sleep(0.1)
    return value


SETTLED_S = 15.0  # an answer that was cut at its deadline goes on for at most so long


class CodeServer:
    """One code-server with the extension installed; any number of windows on it."""

    def __init__(self, home: Path, environment: dict[str, str], settings: dict[str, Any]) -> None:
        executable = VSCODE / "code-server"
        vsix = sorted(PLUGIN.glob("*.vsix"))
        if not executable.exists() or not vsix:
            missing = pytest.fail if os.environ.get("SPEC_COMPLETE_REQUIRE_EDITORS") else pytest.skip
            missing("VS Code or the extension's package is missing: make editors-vscode vsix")
        self.home, self.data = home, home / "data"
        (self.data / "User").mkdir(parents=True)
        (self.data / "User/settings.json").write_text(json.dumps(SETTINGS | settings), encoding="utf-8")
        self.environment = os.environ | {
            "HOME": str(home),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            **environment,
        }
        Path(self.environment["XDG_RUNTIME_DIR"]).mkdir(mode=0o700, exist_ok=True)
        common = [f"--extensions-dir={home / 'extensions'}", f"--user-data-dir={self.data}"]
        self._run([str(executable), *common, "--install-extension", str(vsix[-1])])
        for _ in range(3):  # its two processes give each other ten seconds, which a busy machine may not
            if self._start([str(executable), *common]):
                return
        raise AssertionError((home / "code-server.log").read_text(encoding="utf-8"))

    def _start(self, command: list[str]) -> bool:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command += ["--auth=none", f"--bind-addr=127.0.0.1:{self.port}"]
        command += ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
        self.log_file = (self.home / "code-server.log").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=self.log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_for(lambda: self.process.poll() is not None or self._answers(), 60, "code-server")
        return self.process.poll() is None

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2):
                return True
        except OSError:
            return False

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.log_file.close()

    def records(self) -> list[dict[str, Any]]:
        """The server's own latency log."""
        files = Path(self.environment["XDG_STATE_HOME"]).rglob("telemetry.jsonl")
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def goes_on(self) -> bool:
        """Whether the last answer was cut at its deadline, so that more may come."""
        answers = [r for r in self.records() if r["kind"] == "request" and r["characters"] > 0]
        return bool(answers) and answers[-1]["finish_reason"] == "deadline"

    def log(self) -> str:
        """The extension's output channel, of all windows."""
        files = sorted(self.data.glob("logs/**/spec-complete.spec-complete/*.log"))
        return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


class Window:
    """One browser page with VS Code on a folder."""

    def __init__(self, server: CodeServer, browser: Any, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.notified: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.context = browser.new_context(viewport={"width": 1100, "height": 700})
        self.page = self.context.new_page()
        self.page.goto(f"http://127.0.0.1:{server.port}/?folder={folder}", wait_until="commit")
        self.page.wait_for_selector(".monaco-workbench", timeout=150_000)
        self.page.wait_for_selector("[id='status.workbench.keybindingsUnused'], .statusbar", timeout=60_000)

    def close(self) -> None:
        self.context.close()

    def command(self, title: str) -> None:
        """Runs a command by its title in the palette."""
        self.page.keyboard.press("F1")
        box = self.page.locator(".quick-input-widget input.input").first
        box.wait_for(state="visible")
        box.fill(f">{title}")
        self.page.locator(".quick-input-list .monaco-list-row").first.wait_for(state="visible")
        self.page.wait_for_timeout(300)
        self.page.keyboard.press("Enter")

    def open(self, name: str) -> None:
        """Opens a file of the folder and puts the cursor at its end."""
        for attempt in range(3):
            self.page.keyboard.press("Control+P")
            box = self.page.locator(".quick-input-widget input.input").first
            box.wait_for(state="visible")
            box.fill(str(self.folder / name))
            self.page.wait_for_timeout(500 + 500 * attempt)
            self.page.keyboard.press("Enter")
            tab = self.page.locator(f".tab.active[data-resource-name='{name}']")
            try:
                tab.wait_for(state="visible", timeout=5000)
                break
            except playwright.TimeoutError:
                self.page.keyboard.press("Escape")
        self.dismiss_notifications()
        self.page.locator(".editor-instance .view-lines").first.click()
        self.page.keyboard.press("Control+End")

    def write(self, name: str, text: str, newline: str = "\n") -> Path:
        path = self.folder / name
        path.write_bytes(text.replace("\n", newline).encode())
        return path

    def type(self, text: str, delay_ms: float = 40) -> None:
        self.page.keyboard.type(text, delay=delay_ms)

    def press(self, keys: str) -> None:
        self.page.keyboard.press(keys)

    def ghost(self) -> str:
        """The ghost text on the screen, line by line."""
        lines = self.page.evaluate(
            """() => {
              const editor = document.querySelector('.editor-instance');
              if (!editor) return [];
              const inline = [...editor.querySelectorAll('.view-lines [class*=ghost-text-decoration]')]
                .map(e => e.textContent).join('');
              const below = [...editor.querySelectorAll('.suggest-preview-text .view-line, .ghost-text .view-line')]
                .map(e => e.textContent);
              return inline || below.length ? [inline, ...below] : [];
            }"""
        )
        return "\n".join(lines).replace("\u00a0", " ").replace("\u200b", "").rstrip()

    def wait_ghost(self, timeout_s: float = 60.0) -> str:
        try:
            return str(wait_for(self.ghost, timeout_s, "ghost text"))
        except AssertionError:
            self.picture("no-ghost-text")
            raise

    def settled_ghost(self, timeout_s: float = 60.0) -> str:
        """The ghost text once it has stopped growing: no answer is under way, and it stays for a while."""
        ghost, since = self.wait_ghost(timeout_s), time.monotonic()
        end = since + SETTLED_S
        while time.monotonic() - since < 2:
            if (now := self.ghost()) != ghost or (self.server.goes_on() and time.monotonic() < end):
                ghost, since = now, time.monotonic()
            time.sleep(0.05)
        assert ghost
        return ghost

    def expect_saved(self, name: str, expected: str | bytes) -> None:
        """Saves, and compares with what is on disk."""
        content = expected.encode() if isinstance(expected, str) else expected
        end = time.monotonic() + 8
        while (self.folder / name).read_bytes() != content and time.monotonic() < end:
            self.press("Control+S")
            time.sleep(0.3)
        assert (self.folder / name).read_bytes() == content

    def status(self) -> str:
        """The accessible label of our status bar item."""
        item = self.page.locator(".statusbar-item[id*='specComplete'] a").first
        return str(item.get_attribute("aria-label") or "") if item.count() else ""

    def picture(self, name: str) -> None:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(ARTIFACTS / f"{name}.png"))

    def notifications(self) -> str:
        return " ".join(self.page.locator(".notification-toast").all_inner_texts())

    def dismiss_notifications(self) -> None:
        """Keeps what pop-ups say for the test's end and clears them: they lie over the editor."""
        if text := self.notifications():
            self.picture(f"notification-{len(self.notified)}")
            self.notified.append(text)
            self.command("Notifications: Clear All Notifications")
            self.page.locator(".notification-toast").first.wait_for(state="detached")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeServer]:
    environment = {"SPEC_COMPLETE_MODEL": "qwen2.5-coder-0.5b-q4", "SPEC_COMPLETE_IDLE_EXIT_MINUTES": "0.2"}
    running = CodeServer(tmp_path_factory.mktemp("vscode"), environment, {})
    yield running
    running.close()


@pytest.fixture(scope="module")
def window(server: CodeServer, browser: Any) -> Iterator[Window]:
    """A window whose server is ready."""
    opened = Window(server, browser, server.home / "project")
    wait_for(lambda: re.search("Ready|wrong", opened.status()), 180, "the status bar item to say ready")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def no_pop_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """What goes wrong is told in the status bar: no test here expects a pop-up in the shared window."""
    yield
    if "window" in request.fixturenames:
        window: Window = request.getfixturevalue("window")
        window.dismiss_notifications()
        said, window.notified = window.notified, []
        assert not said, f"{said}\n{window.server.log()[-3000:]}"


@pytest.fixture(scope="session")
def window_class() -> type[Window]:
    return Window


@pytest.fixture(scope="session")
def server_class() -> type[CodeServer]:
    return CodeServer
