"""The state that editors show, and the reasons why a document gets no completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

Kind = Literal["loading", "ready", "busy", "inactive", "error"]

# why a request is answered with nothing; also the reason codes of the latency log
REASONS = {
    "disabled": "Completions are switched off in the settings.",
    "automatic_off": "Automatic completions are switched off; ask explicitly.",
    "language_off": "Completions are switched off for this language.",
    "scheme": "This is not a file that is edited.",
    "secret": "Files that may hold secrets are never completed.",
    "too_many_lines": "The document has more lines than the setting maxLines allows.",
    "too_large": "The document is larger than the setting maxCharacters allows.",
    "line_too_long": "The line is longer than the setting maxLineLength allows.",
    "not_open": "The document is not open.",
    "out_of_step": "The editor sent a change that does not fit; reopen the document.",
    "not_ready": "The model is still being loaded.",
    "no_engine": "The model could not be loaded.",
    "superseded": "A newer request or edit came first.",
    "cancelled": "The editor cancelled the request.",
    "failed": "The model failed.",
    "blank": "The model had nothing to add.",
    "special_token": "Nothing but special tokens.",
    "fence": "Nothing but the end of a Markdown block.",
    "doubled_space": "Nothing but a space that is there already.",
    "one_line": "Nothing for this line.",
    "repeats_suffix": "It only repeats what follows.",
    "repeats_rest": "It only repeats the rest of the line.",
    "repeats_itself": "It only repeats itself.",
    "block_end": "It leaves the block at once.",
    "too_little": "Nothing but punctuation.",
    "nothing_new": "It adds nothing to the selected entry.",
}


@dataclass(frozen=True, slots=True)
class Status:
    """What is sent as `specComplete/status` and, in its conventions, as `didChangeStatus`."""

    kind: Kind
    message: str = ""
    reason: str = ""  # a code of `REASONS` where the kind is "inactive"
    uri: str = ""  # the document it is about; empty: the server
    progress: float | None = None  # 0…1 while loading

    def as_json(self) -> dict[str, Any]:
        """The parameters of `specComplete/status`."""
        values = {
            "kind": self.kind,
            "message": self.message,
            "reason": self.reason,
            "uri": self.uri,
            "progress": self.progress,
        }
        return {name: value for name, value in values.items() if value not in ("", None)}

    def as_change(self) -> dict[str, Any]:
        """The parameters of `didChangeStatus`, whose kinds are Normal, Inactive, Warning and Error."""
        kinds = {"error": "Error", "inactive": "Inactive"}
        return {
            "busy": self.kind in ("loading", "busy"),
            "message": self.message,
            "kind": kinds.get(self.kind, "Normal"),
        }


class Client(Protocol):
    """What a session tells its client."""

    def status(self, status: Status) -> None:
        """The state of the server, or of one document, changed."""

    def more_available(self, uri: str) -> None:
        """An answer that was cut at the deadline goes on."""


def inactive(reason: str, uri: str) -> Status:
    """No completions in this document."""
    return Status("inactive", REASONS[reason], reason, uri)
