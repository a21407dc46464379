"""A scripted language server for the editor plugins' own tests: answers come from a JSON file, not a model.

``fake_server.py SCRIPT``: the script is an object with ``answers``, a list of ``{"before": TEXT,
"insert": TEXT, "replace": N, "delay_ms": MS}``. A request is answered by the first entry whose ``before``, or
``before`` and a part of ``insert``, ends the text before the cursor; the item's range begins at the start of
the line and covers ``replace`` characters after the cursor.
Everything that was received is appended to ``SCRIPT.received`` as JSON lines. Other keys of the script:
``notify``: notifications sent after initialising; ``exit_on``: text before the cursor that kills the process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.argv[1])
RECEIVED = SCRIPT.with_suffix(".received")
lock = threading.Lock()
documents: dict[str, str] = {}
cancelled: set[int] = set()


def send(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    with lock:
        sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        sys.stdout.buffer.flush()


def read() -> dict[str, Any] | None:
    length = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return json.loads(sys.stdin.buffer.read(length)) if length else None


def lines_of(uri: str) -> list[str]:
    return documents[uri].replace("\r\n", "\n").split("\n")


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def character(text: str, column: int) -> str:
    return text.encode("utf-16-le")[: 2 * column].decode("utf-16-le")


def rest(entry: dict[str, Any], before: str) -> list[str]:
    """What is left of the entry's texts once ``before`` stands there."""
    texts = entry["insert"] if isinstance(entry["insert"], list) else [entry["insert"]]
    for typed in range(len(texts[0]) + 1):
        if before.endswith(entry["before"] + texts[0][:typed]):
            return [text[typed:] for text in texts if text[:typed] == texts[0][:typed] and text[typed:]]
    return []


def answer(identifier: int, parameters: dict[str, Any]) -> None:
    script = json.loads(SCRIPT.read_text(encoding="utf-8"))
    position = parameters["position"]
    lines = lines_of(parameters["textDocument"]["uri"])
    typed = character(lines[position["line"]], position["character"])
    before = "\n".join([*lines[: position["line"]], typed])
    if script.get("exit_on") and before.endswith(script["exit_on"]):
        os._exit(1)
    for entry in script["answers"]:
        if texts := rest(entry, before):
            break
    else:
        send({"id": identifier, "result": []})
        return
    time.sleep(entry.get("delay_ms", 0) / 1000)
    if identifier in cancelled:
        send({"id": identifier, "error": {"code": -32800, "message": "cancelled"}})
        return
    start = {"line": position["line"], "character": 0}
    end = {"line": position["line"], "character": position["character"] + entry.get("replace", 0)}
    items = [
        {
            "insertText": typed + text,
            "range": {"start": start, "end": end},
            "command": {"title": "accepted", "command": "fake.accepted", "arguments": [identifier]},
        }
        for text in texts
    ]
    send({"id": identifier, "result": {"items": items}})
    record = {
        "kind": "request",
        "id": f"r{identifier}",
        "route": "generated",
        "reason": "",
        "total_ms": 123.4,
    }
    record |= {"forwards": 4, "ttft_ms": 45.6, "committed": 10, "accepted": 6, "drafted": 8}
    record |= {"reused_tokens": 100, "new_tokens": 3}
    send({"method": "specComplete/telemetry", "params": record})


CAPABILITIES = {
    "positionEncoding": "utf-16",
    "textDocumentSync": {"openClose": True, "change": 2},
    "inlineCompletionProvider": {},
    "executeCommandProvider": {"commands": ["fake.accepted"]},
}


def apply_changes(parameters: dict[str, Any]) -> None:
    uri = parameters["textDocument"]["uri"]
    for change in parameters["contentChanges"]:
        if "range" not in change:
            documents[uri] = change["text"]
            continue
        lines = documents[uri].split("\n")
        start, end = change["range"]["start"], change["range"]["end"]
        head = "\n".join([*lines[: start["line"]], character(lines[start["line"]], start["character"])])
        last = lines[end["line"]] if end["line"] < len(lines) else ""
        tail = "\n".join([last[len(character(last, end["character"])) :], *lines[end["line"] + 1 :]])
        documents[uri] = head + change["text"] + tail


def handle(message: dict[str, Any]) -> None:
    method, parameters, identifier = message.get("method"), message.get("params"), message.get("id")
    if method == "initialize":
        send({"id": identifier, "result": {"capabilities": CAPABILITIES, "serverInfo": {"name": "fake"}}})
    elif method == "initialized":
        for notification in json.loads(SCRIPT.read_text(encoding="utf-8")).get("notify", []):
            send(notification)
    elif method == "textDocument/didOpen":
        documents[parameters["textDocument"]["uri"]] = parameters["textDocument"]["text"]
    elif method == "textDocument/didChange":
        apply_changes(parameters)
    elif method == "textDocument/inlineCompletion":
        threading.Thread(target=answer, args=(identifier, parameters), daemon=True).start()
    elif method == "$/cancelRequest":
        cancelled.add(parameters["id"])
    elif method == "exit":
        sys.exit()
    elif identifier is not None and method:
        send({"id": identifier, "result": None})


def main() -> None:
    while (message := read()) is not None:
        with RECEIVED.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), **message}) + "\n")
        handle(message)


if __name__ == "__main__":
    main()
