"""A server process with a scripted engine: `python scripted_server.py '{"script": ["says", "text"], …}'`.

Everything but the engine is the product's own: the same host, transports and server objects.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lsp_server.hosting import Host
from lsp_server.process import end_process, keep_log, run
from lsp_server.service import CompletionService, Progress
from lsp_server.telemetry import TelemetryWriter
from lsp_testkit.engine import SCRIPTS, ScriptedEngine


def main(options: dict) -> None:
    keep_log()
    name, *arguments = options.get("script", ["says", "scripted()"])
    log = Path(options["log"]) if "log" in options else None

    def load(progress: Progress) -> ScriptedEngine:
        for step in range(options.get("load_steps", 0)):
            progress("loading", step / options["load_steps"])
            time.sleep(0.05)
        if "load_error" in options:
            raise RuntimeError(options["load_error"])
        return ScriptedEngine(
            SCRIPTS[name](*arguments),
            options.get("token_ms", 0.0),
            options.get("finish", "end"),
            log,
            options.get("fails", ""),
            options.get("notes_text", False),
        )

    records = Path(options["records"]) if "records" in options else None
    host = Host(CompletionService(load), TelemetryWriter(records), options.get("idle_exit_s", 0.0))
    if "socket" in options:
        end_process(host, run(host.on_socket(Path(options["socket"]))))
    end_process(host, run(host.on_standard_streams()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
