"""The server as an editor starts it: seconds until it can complete, and its peak memory. Run by `benchmarks.engine`.

``python -m benchmarks.engine_server MODEL``; JSON on stdout. The model runs in the server's own process, so that
there is one process to measure.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from benchmarks.session import LOAD_TIMEOUT_S, Editor

COMMAND = [sys.executable, "-I", "-m", "lsp_server", "serve", "--no-daemon"]
LINES = "".join(f"def f{i}(a, b):\n    return a + b * {i}\n\n" for i in range(120))
URI = "file:///spec-complete-benchmark/functions.py"


def start(model: str) -> dict[str, Any]:
    """Starts the server, has it complete after a prompt of about a thousand tokens, and ends it."""
    began = time.perf_counter()
    editor = Editor(COMMAND)
    options = {"model": model, "status": True, "telemetry": True, "deadlineMs": 10_000, "clientDebounceMs": 0}
    editor.call(
        "initialize",
        {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": options},
    )
    editor.notify("initialized", {})
    if not editor.ready.wait(LOAD_TIMEOUT_S):
        raise TimeoutError("the model was not loaded")
    ready_s = time.perf_counter() - began
    text = LINES + "def g("
    document = {"uri": URI, "languageId": "python", "version": 1, "text": text}
    editor.notify("textDocument/didOpen", {"textDocument": document})
    at = {"line": text.count("\n"), "character": len("def g(")}
    answer = editor.call(
        "textDocument/inlineCompletion",
        {"textDocument": {"uri": URI}, "position": at, "context": {"triggerKind": 1}},
        LOAD_TIMEOUT_S,
    )
    prompt = editor.order[-1].get("prompt_tokens") if editor.order else None
    editor.close()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "ready_s": round(ready_s, 2),
        "peak_bytes": peak,
        "prompt_tokens": prompt,
        "answered": bool(answer and answer["items"]),
    }


def main() -> None:
    """Prints one JSON value: the best start of three, the largest memory of them."""
    runs = [start(sys.argv[1]) for _ in range(3)]
    best = min(runs, key=lambda run: run["ready_s"])
    print(json.dumps({**best, "peak_bytes": max(run["peak_bytes"] for run in runs), "n": len(runs)}))


if __name__ == "__main__":
    main()
