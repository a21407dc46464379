"""The VS Code extension's manifest and source, read without an editor."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from lsp_server.settings import schema

PLUGIN = Path(__file__).parents[2] / "editor-plugins/vscode"
# defaults that the extension sets otherwise: it asks again behind the deadline, and VS Code itself waits
OWN_DEFAULTS = {"deadlineMs": 300, "clientDebounceMs": 50}
# members of the inline completion interfaces that only the proposed API has; code-server has it switched on for
# every extension, stock VS Code refuses it
PROPOSED = [
    "enabledApiProposals",
    "handleDidShowCompletionItem",
    "handleDidPartiallyAcceptCompletionItem",
    "handleDidRejectCompletionItem",
    "handleEndOfLifetime",
    "handleListEndOfLifetime",
    "isInlineEdit",
    "showInlineEditMenu",
    "showRange",
    "debounceDelayMs",
    "displayLocation",
    "completeBracketPairs",
    "supportsHandleEvents",
    "registerInlineEditProvider",
    "PartialAcceptTriggerKind",
    "InlineCompletionEndOfLifeReason",
    "inlineCompletionsAdditions",
]


def manifest() -> dict[str, Any]:
    return dict(json.loads((PLUGIN / "package.json").read_text(encoding="utf-8")))


def properties() -> dict[str, Any]:
    return dict(manifest()["contributes"]["configuration"]["properties"])


def test_the_settings_page_is_the_servers_schema() -> None:
    ours = {name.removeprefix("specComplete."): row for name, row in properties().items()}
    assert ours.pop("server.command")["default"] == []
    expected = {}
    for name, row in schema()["properties"].items():
        row = {"markdownDescription": row.pop("description"), **row}
        expected[name] = row | ({"default": OWN_DEFAULTS[name]} if name in OWN_DEFAULTS else {})
    shown = {name: {key: row[key] for key in row if key != "scope"} for name, row in ours.items()}
    assert shown == expected, "they differ: make vscode-settings"


def test_an_untrusted_folder_can_choose_neither_program_nor_model() -> None:
    trust = manifest()["capabilities"]["untrustedWorkspaces"]
    assert trust["supported"] == "limited"
    assert {"specComplete.server.command", "specComplete.model"} <= set(trust["restrictedConfigurations"])
    assert properties()["specComplete.server.command"]["scope"] == "machine-overridable"


def test_no_proposed_api_is_used() -> None:
    sources = [PLUGIN / "package.json", *(PLUGIN / "src").rglob("*.ts")]
    used = {
        (source.name, name)
        for source in sources
        for name in PROPOSED
        if re.search(rf"\b{name}\b", source.read_text(encoding="utf-8"))
    }
    assert not used


def test_types_are_those_of_the_oldest_editor_supported() -> None:
    engine = re.search(r"\d+\.\d+", manifest()["engines"]["vscode"])
    assert engine and manifest()["devDependencies"]["@types/vscode"].startswith(f"~{engine[0]}.")
    assert json.loads((PLUGIN / "tsconfig.json").read_text(encoding="utf-8"))["compilerOptions"]["strict"]


def test_the_client_library_sends_trigger_kinds_as_the_protocol_counts_them() -> None:
    wanted = manifest()["dependencies"]["vscode-languageclient"].lstrip("^").split(".")
    assert [int(part) for part in wanted[:2]] >= [10, 1]


def test_every_command_is_implemented_and_every_step_has_its_page() -> None:
    contributes = manifest()["contributes"]
    source = (PLUGIN / "src/extension.ts").read_text(encoding="utf-8")
    for command in contributes["commands"]:
        assert re.search(rf"^    {command['command'].removeprefix('specComplete.')}:", source, re.M), command
    for walkthrough in contributes["walkthroughs"]:
        for step in walkthrough["steps"]:
            assert (PLUGIN / step["media"]["markdown"]).exists()


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((PLUGIN / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, row in lock["packages"].items() if "resolved" in row]
