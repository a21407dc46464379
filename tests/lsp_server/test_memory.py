"""What a front end replays to a new process."""

from lsp_server.memory import SessionMemory


def notification(method, **params):
    return {"jsonrpc": "2.0", "method": method, "params": params}


def opened(uri, text):
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    return notification("textDocument/didOpen", textDocument=document)


def edit(text, line, character):
    at = {"line": line, "character": character}
    return {"range": {"start": at, "end": at}, "text": text}


def remembering(*messages):
    memory = SessionMemory()
    memory.from_editor({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"processId": 1}})
    memory.initialized_as({"id": 7, "result": {"capabilities": {"positionEncoding": "utf-8"}}})
    memory.from_editor(notification("initialized"))
    for message in messages:
        memory.from_editor(message)
    return list(memory.replay("again"))


def texts(replay):
    documents = [m["params"]["textDocument"] for m in replay if m["method"] == "textDocument/didOpen"]
    return {document["uri"]: (document["version"], document["text"]) for document in documents}


def test_the_conversation_begins_again_with_the_same_initialize():
    first, second = remembering()
    assert first == {"jsonrpc": "2.0", "id": "again", "method": "initialize", "params": {"processId": 1}}
    assert second["method"] == "initialized"


def test_documents_come_back_as_they_are_now_in_the_encoding_in_force():
    changed = notification(
        "textDocument/didChange",
        textDocument={"uri": "file:///a", "version": 5},
        contentChanges=[edit("é", 0, 0), edit("x", 0, 2)],
    )
    closed = notification("textDocument/didClose", textDocument={"uri": "file:///b"})
    replay = remembering(opened("file:///a", "1\r\n2"), opened("file:///b", "gone"), changed, closed)
    assert texts(replay) == {"file:///a": (5, "éx1\r\n2")}


def test_the_cells_of_notebooks_come_back_too():
    cells = [
        {"uri": f"cell:{name}", "languageId": "python", "version": 1, "text": name} for name in ("one", "two")
    ]
    change = {
        "cells": {
            "structure": {"array": {}, "didClose": [{"uri": "cell:two"}]},
            "textContent": [{"document": {"uri": "cell:one", "version": 2}, "changes": [edit("x", 0, 0)]}],
        }
    }
    replay = remembering(
        notification("notebookDocument/didOpen", notebookDocument={"uri": "n"}, cellTextDocuments=cells),
        notification("notebookDocument/didChange", notebookDocument={"uri": "n"}, change=change),
    )
    assert texts(replay) == {"cell:one": (2, "xone")}


def test_settings_and_folders_come_back_in_order():
    configuration = notification("workspace/didChangeConfiguration", settings={"specComplete": {"seed": 1}})
    folders = notification("workspace/didChangeWorkspaceFolders", event={"added": [], "removed": []})
    newer = notification("workspace/didChangeConfiguration", settings={"specComplete": {"seed": 2}})
    assert remembering(configuration, folders, newer)[2:] == [newer, folders]


def test_malformed_messages_are_left_to_the_server():
    assert len(remembering(notification("textDocument/didOpen"), notification("textDocument/didChange"))) == 2
