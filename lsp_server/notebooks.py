"""Notebooks: their cells are documents of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Mirror(Protocol):
    """Where a client's documents are kept."""

    def open(self, uri: str, language: str, version: int, text: str) -> None:
        """A document was opened."""

    def change(self, uri: str, version: int | None, changes: Sequence[Any]) -> None:
        """A document was edited."""

    def close(self, uri: str) -> None:
        """A document was closed."""


class NotebookCells:
    """Opens, changes and closes the cells of one client's notebooks."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def open(self, params: Any) -> None:
        """`notebookDocument/didOpen`."""
        self._open_all(_items(params, "cellTextDocuments"))

    def change(self, params: Any) -> None:
        """`notebookDocument/didChange`."""
        change = params.get("change") if isinstance(params, dict) else None
        cells = change.get("cells") if isinstance(change, dict) else None
        structure = cells.get("structure") if isinstance(cells, dict) else None
        self._open_all(_items(structure, "didOpen"))
        self._close_all(_items(structure, "didClose"))
        for content in _items(cells, "textContent"):
            document = content.get("document") if isinstance(content, dict) else None
            if isinstance(document, dict) and isinstance(document.get("uri"), str):
                self._mirror.change(document["uri"], document.get("version"), _items(content, "changes"))

    def close(self, params: Any) -> None:
        """`notebookDocument/didClose`."""
        self._close_all(_items(params, "cellTextDocuments"))

    def _open_all(self, cells: list[Any]) -> None:
        for cell in cells:
            if (
                isinstance(cell, dict)
                and isinstance(cell.get("uri"), str)
                and isinstance(cell.get("text"), str)
            ):
                self._mirror.open(
                    cell["uri"], str(cell.get("languageId", "")), cell.get("version") or 0, cell["text"]
                )

    def _close_all(self, cells: list[Any]) -> None:
        for cell in cells:
            if isinstance(cell, dict) and isinstance(cell.get("uri"), str):
                self._mirror.close(cell["uri"])


def _items(value: Any, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
