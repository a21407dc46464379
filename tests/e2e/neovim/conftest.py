"""Drives real Neovims (0.12 with its own inline completion, 0.11 without) as users do: keys in, screen out.

`tests/e2e/install-neovim.sh DIR` installs both; DIR is `build/editors/neovim`, or `SPEC_COMPLETE_NEOVIM`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pynvim = pytest.importorskip("pynvim")

ROOT = Path(__file__).parents[3]
EDITORS = Path(os.environ.get("SPEC_COMPLETE_NEOVIM", ROOT / "build/editors/neovim"))
PLUGIN = ROOT / "editor-plugins/neovim"
FAKE_SERVER = ROOT / "tests/e2e/fake_server.py"
ARTIFACTS = ROOT / "artifacts/neovim"
COLUMNS, LINES = 90, 24

# what the README tells people to write
INIT = """
vim.opt.runtimepath:append({plugin})
vim.opt.swapfile = false
vim.opt.autoindent = true
vim.g.spec_complete = vim.json.decode({options})
vim.lsp.config('spec_complete', {{ settings = {{ specComplete = vim.json.decode({settings}) }} }})
vim.lsp.enable('spec_complete')
vim.keymap.set('i', '<Tab>', function()
  return require('spec-complete').accept() and '' or '<Tab>'
end, {{ expr = true }})
vim.keymap.set('i', '<M-w>', '<Plug>(spec-complete-accept-word)')
vim.keymap.set('i', '<M-l>', '<Plug>(spec-complete-accept-line)')
vim.keymap.set('i', '<M-n>', '<Plug>(spec-complete-next)')
vim.keymap.set('i', '<M-x>', '<Plug>(spec-complete-dismiss)')
vim.keymap.set('i', '<M-t>', '<Plug>(spec-complete-trigger)')
vim.opt.statusline = "%f %= %{{v:lua.require'spec-complete'.statusline()}}"
"""


def wait_for(what: Callable[[], Any], timeout_s: float = 10.0, about: str = "") -> Any:
    """The first true value of ``what()``; fails with its last value after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout_s:.0f} s for {about or what}; last value: {value!r}")
        time.sleep(0.02)


class Neovim:
    """One running Neovim with a screen of `COLUMNS` × `LINES`."""

    def __init__(
        self,
        version: str,
        home: Path,
        options: dict[str, Any],
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        binary = EDITORS / f"nvim-{version}/bin/nvim"
        if not binary.exists():
            missing = pytest.fail if os.environ.get("SPEC_COMPLETE_REQUIRE_EDITORS") else pytest.skip
            missing(f"{binary} is not there: make editors-neovim")
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        init = home / "init.lua"
        quoted = {
            "plugin": json.dumps(str(PLUGIN)),
            "options": f"[==[{json.dumps(options)}]==]",
            "settings": f"[==[{json.dumps(settings or {'model': None})}]==]",
        }
        init.write_text(INIT.format(**quoted), encoding="utf-8")
        whole = os.environ | {
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **(environment or {}),
        }
        whole.pop("VIMRUNTIME", None)
        Path(whole["XDG_RUNTIME_DIR"]).mkdir(mode=0o700, exist_ok=True)
        saved = os.environ.copy()
        os.environ.update(whole)
        try:
            argv = [str(binary), "--embed", "--clean", "-u", str(init)]
            self.nvim = pynvim.attach("child", argv=argv)
        finally:
            os.environ.clear()
            os.environ.update(saved)
        self.nvim.ui_attach(COLUMNS, LINES, rgb=True)

    def close(self) -> None:
        try:
            self.nvim.command("qall!", async_=True)
            self.nvim.close()
        except OSError:
            pass

    def lua(self, code: str, *arguments: Any) -> Any:
        return self.nvim.exec_lua(code, *arguments)

    def open(self, path: Path) -> None:
        self.nvim.command(f"edit {path}")
        wait_for(self.attached, 60, "the server to attach")

    def attached(self) -> bool:
        return bool(
            self.lua(
                "local c = vim.lsp.get_clients({name='spec_complete', bufnr=0})[1]"
                " return c ~= nil and c.initialized == true"
            )
        )

    def keys(self, keys: str) -> None:
        """Types keys in Vim's notation, each on its own, and lets Neovim handle them."""
        self.nvim.input(keys)
        self.nvim.eval("1")

    def type(self, text: str, pause_s: float = 0.03) -> None:
        for character in text:
            self.keys({"<": "<lt>", "\n": "<CR>"}.get(character, character))
            time.sleep(pause_s)

    def text(self) -> str:
        return "\n".join(self.nvim.current.buffer[:])

    def cursor(self) -> tuple[int, int]:
        row, column = self.nvim.current.window.cursor
        return row, column

    def ghost(self) -> str:
        """The ghost text in the current buffer: virtual text, then virtual lines."""
        return str(
            self.lua(
                """
                local text = {}
                for _, name in ipairs({ 'nvim.lsp.inline_completion', 'spec-complete' }) do
                  local namespace = vim.api.nvim_create_namespace(name)
                  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, {details=true})) do
                    local function add(chunks)
                      local line = ''
                      for _, chunk in ipairs(chunks) do line = line .. chunk[1] end
                      text[#text + 1] = line
                    end
                    add(mark[4].virt_text or {})
                    for _, chunks in ipairs(mark[4].virt_lines or {}) do add(chunks) end
                  end
                end
                return table.concat(text, '\\n')
                """
            )
        )

    def wait_ghost(self, timeout_s: float = 10.0) -> str:
        return str(wait_for(self.ghost, timeout_s, "ghost text"))

    def wait_no_ghost(self, timeout_s: float = 10.0) -> None:
        wait_for(lambda: not self.ghost(), timeout_s, "the ghost text to go")

    def screen(self) -> list[str]:
        """What a user sees, row by row."""
        self.nvim.command("redraw")
        rows = self.lua(
            """
            local rows = {}
            for row = 1, vim.o.lines do
              local cells = {}
              for column = 1, vim.o.columns do
                cells[column] = vim.fn.screenstring(row, column)
              end
              rows[row] = table.concat(cells)
            end
            return rows
            """
        )
        return [str(row).rstrip() for row in rows]

    def keep_screen(self, name: str) -> list[str]:
        """Keeps the screen as a test artefact."""
        rows = self.screen()
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        (ARTIFACTS / f"{name}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
        return rows

    def log(self) -> str:
        path = Path(self.lua("return require('spec-complete.log').path()"))
        return path.read_text(encoding="utf-8") if path.exists() else ""


class Script:
    """The fake server's script and what it received."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(answers=[])

    def write(self, **script: Any) -> None:
        self.path.write_text(json.dumps(script), encoding="utf-8")

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(FAKE_SERVER), str(self.path)]

    def received(self, method: str) -> list[dict[str, Any]]:
        path = self.path.with_suffix(".received")
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [message for line in lines if (message := json.loads(line)).get("method") == method]


@pytest.fixture(params=["0.12", "0.11"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(version: str, tmp_path: Path) -> Iterator[Callable[..., Neovim]]:
    """Starts a Neovim with a server command: ``start(cmd=[...], OPTION=...)``."""
    running: list[Neovim] = []

    def begin(**options: Any) -> Neovim:
        running.append(Neovim(version, tmp_path / "home", options))
        return running[-1]

    yield begin
    for neovim in running:
        neovim.close()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path / "script.json")


@pytest.fixture
def neovim(start: Callable[..., Neovim], script: Script, tmp_path: Path) -> Neovim:
    """A Neovim on the scripted server, with an empty Python file, in insert mode."""
    editor = start(cmd=script.command)
    editor.open(tmp_path / "sample.py")
    editor.keys("i")
    return editor


@pytest.fixture(scope="session")
def editor_class() -> type[Neovim]:
    """For tests that choose the version, the home and the environment themselves."""
    return Neovim
