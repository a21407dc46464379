"""A typing session against the real server process: latency by route, loop and keystroke cost.

    python -m benchmarks.session [--file PATH] [--keystrokes 200] [--runs 2] [-- COMMAND …]

A piece of a real file is deleted and typed again at a human rhythm, with an automatic request after each key, as VS
Code does (the request before it is cancelled). When the ghost text is what is to be typed anyway, it is accepted now
and then. Prints p50/p95/p99 per route as clients see them, what a keystroke costs the server, and how long the
event loop answers nothing at all.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lsp_server.documents import Document
from lsp_server.framing import frame, read_message_from

KEY_MS = (60, 240)
PAUSE_EVERY, PAUSE_MS = 12, 900  # a look at the screen
ACCEPT_SHARE = 0.1  # of the times that the ghost text fits
PING_MS = 25
LOAD_TIMEOUT_S = 300


class Editor:
    """A client on the server's standard streams. Replies carry the time of their arrival."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ids = 0
        self._lock = threading.Lock()
        self.sent: dict[int, float] = {}
        self.superseded: dict[int, float] = {}
        self.replies: dict[int, tuple[float, Any]] = {}
        self.arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.records: dict[str, dict[str, Any]] = {}
        self.order: list[dict[str, Any]] = []
        self.ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while (message := read_message_from(self._process.stdout)) is not None:
            now = time.perf_counter()
            params = message.get("params")
            if message.get("method") == "specComplete/status" and params["kind"] in ("ready", "error"):
                if params["kind"] == "error":
                    print(f"server: {params['message']}", file=sys.stderr)
                self.ready.set()
            elif message.get("method") == "specComplete/telemetry" and params["kind"] == "request":
                self.order.append(params)
            elif "id" in message and "method" not in message:
                self.replies[message["id"]] = (now, message.get("result"))
                self.arrived.put(message["id"])

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(frame({"jsonrpc": "2.0", **message}))
            self._process.stdin.flush()

    def notify(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: Any) -> int:
        with self._lock:
            self._ids += 1
            number = self._ids
            self.sent[number] = time.perf_counter()
        self.send({"id": number, "method": method, "params": params})
        return number

    def call(self, method: str, params: Any, timeout_s: float = 60.0) -> Any:
        number = self.request(method, params)
        deadline = time.monotonic() + timeout_s
        while number not in self.replies:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer to {method} in {timeout_s:.0f} s")
            time.sleep(0.0005)
        return self.replies[number][1]

    def latency_ms(self, number: int) -> float:
        return (self.replies[number][0] - self.sent[number]) * 1000

    def close(self) -> None:
        self.call("shutdown", None)
        self.notify("exit", None)
        self._process.wait(10)


def session(command: Sequence[str], file: Path, keystrokes: int, seed: int) -> dict[str, list[float]]:
    """One run; milliseconds by route, and of the loop's pings and the keystrokes' handling."""
    chosen = random.Random(seed)
    started = time.perf_counter()
    editor = Editor(command)
    uri = file.resolve().as_uri()
    options = {"status": True, "telemetry": True, "clientDebounceMs": 0, "contextFiles": False}
    root = file.resolve().parents[1].as_uri()
    editor.call(
        "initialize",
        {
            "processId": None,
            "rootUri": root,
            "workspaceFolders": [{"uri": root, "name": "root"}],
            "capabilities": {"general": {"positionEncodings": ["utf-32"]}},
            "initializationOptions": options,
        },
    )
    initialized_ms = (time.perf_counter() - started) * 1000
    editor.notify("initialized", {})
    if not editor.ready.wait(LOAD_TIMEOUT_S):
        raise TimeoutError("the model was not loaded")

    text = file.read_text(encoding="utf-8")
    lines = text.split("\n")
    first = chosen.randrange(len(lines) // 3, 2 * len(lines) // 3)
    while not lines[first].startswith("def ") and first > 0:
        first -= 1
    before = "\n".join(lines[: first + 1]) + "\n"
    target = text[len(before) :]
    typed_end = min(len(target), keystrokes * 3)
    after = target[typed_end:]
    document = {"uri": uri, "languageId": "python", "version": 1, "text": before + after}
    editor.notify("textDocument/didOpen", {"textDocument": document})

    pings: list[float] = []
    stop = threading.Event()
    pinger = threading.Thread(target=_ping, args=(editor, pings, stop), daemon=True)
    pinger.start()
    requests = _type(editor, uri, before, target[:typed_end], keystrokes, chosen)
    time.sleep(2)
    stop.set()
    pinger.join()
    editor.close()

    figures: dict[str, list[float]] = defaultdict(list)
    figures["initialize"].append(initialized_ms)
    figures["event loop (ping)"] = pings
    for number, record in zip(requests, editor.order, strict=False):
        route = record["route"]
        if record["reason"] not in ("superseded", "cancelled"):
            figures[route].append(editor.latency_ms(number))
        elif number in editor.superseded:  # from what superseded it, not from its own beginning
            figures["superseded"].append((editor.replies[number][0] - editor.superseded[number]) * 1000)
    for count in (1_000, 10_000, 50_000):
        figures[f"keystroke, {count // 1000} k lines"] = keystroke_costs(count)
    return figures


def keystroke_costs(lines: int) -> list[float]:
    """What a keystroke costs the event loop in a document of so many lines, in this process."""
    document = Document("file:///a.py", "python", 1, "a line of some usual length, about 46 chars\n" * lines)
    times = []
    for number in range(200):
        at = {"line": lines // 2, "character": number % 40}
        started = time.perf_counter()
        document.apply({"range": {"start": at, "end": at}, "text": "x"}, "utf-16")
        document.place(lines // 2, number % 40 + 1, "utf-16")
        times.append((time.perf_counter() - started) * 1000)
    return times


def _ping(editor: Editor, pings: list[float], stop: threading.Event) -> None:
    """How long the loop takes to refuse an unknown method: what a keystroke would wait."""
    while not stop.wait(PING_MS / 1000):
        number = editor.request("specComplete/ping", None)
        while number not in editor.replies and not stop.is_set():
            time.sleep(0.0002)
        if number in editor.replies:
            pings.append(editor.latency_ms(number))


def _type(
    editor: Editor, uri: str, before: str, target: str, keystrokes: int, chosen: random.Random
) -> list[int]:
    """Types the target, asking after every key; the ids of the requests."""
    done, version, open_request, requests = 0, 1, None, []
    for key in range(keystrokes):
        if done >= len(target):
            break
        item = _shown(editor, open_request)
        text = before + target[:done]
        line, column = text.count("\n"), len(text) - text.rfind("\n") - 1
        piece = target[done]
        if item is not None:
            rest = item["insertText"][column:]
            if rest and target.startswith(rest, done) and chosen.random() < ACCEPT_SHARE:
                piece = rest
        if open_request is not None and open_request not in editor.replies:
            editor.superseded[open_request] = time.perf_counter()
            editor.notify("$/cancelRequest", {"id": open_request})
        version += 1
        at = {"line": line, "character": column}
        change = {"range": {"start": at, "end": at}, "text": piece}
        editor.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]},
        )
        done += len(piece)
        text = before + target[:done]
        at = {"line": text.count("\n"), "character": len(text) - text.rfind("\n") - 1}
        open_request = editor.request(
            "textDocument/inlineCompletion",
            {"textDocument": {"uri": uri}, "position": at, "context": {"triggerKind": 2}},
        )
        requests.append(open_request)
        pause = PAUSE_MS if key % PAUSE_EVERY == PAUSE_EVERY - 1 else chosen.uniform(*KEY_MS)
        time.sleep(pause / 1000)
    return requests


def _shown(editor: Editor, request: int | None) -> dict[str, Any] | None:
    reply = editor.replies.get(request) if request is not None else None
    return reply[1]["items"][0] if reply is not None and reply[1] else None


def quantile(values: Sequence[float], q: float) -> float:
    """The value that a share ``q`` of the values stay below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--file", type=Path, default=Path(__file__).parents[1] / "lsp_server" / "documents.py"
    )
    parser.add_argument("--keystrokes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("command", nargs="*", default=[sys.executable, "-I", "-m", "lsp_server", "serve"])
    arguments = parser.parse_args()
    runs = [
        session(arguments.command, arguments.file, arguments.keystrokes, seed)
        for seed in range(arguments.runs)
    ]
    rows = []
    for number, figures in enumerate(runs, 1):
        for name, values in figures.items():
            row = {"run": number, "what": name, "n": len(values)}
            row |= {f"p{q}": round(quantile(values, q / 100), 1) for q in (50, 95, 99)}
            rows.append(row)
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"{'run':>3}  {'ms':<22}{'n':>6}{'p50':>9}{'p95':>9}{'p99':>9}")
    for row in rows:
        print(f"{row['run']:>3}  {row['what']:<22}{row['n']:>6}{row['p50']:>9}{row['p95']:>9}{row['p99']:>9}")


if __name__ == "__main__":
    main()
