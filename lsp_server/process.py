"""The process that owns the model: reads the settings, loads the engine in the background and serves.

pygls logs whole messages, which are the user's source text: it is silenced, and our own log holds none.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cache.paths import log_dir
from lsp_server.exporters import Backend, ExporterError, open_exporters, sink
from lsp_server.hosting import Host
from lsp_server.records import costs_of
from lsp_server.service import CompletionService, Progress
from lsp_server.settings import Settings, resolve
from lsp_server.sources import Sources
from lsp_server.telemetry import TelemetryWriter
from lsp_server.telemetry_writer import log_path
from speculation.request import CompletionEngine

if TYPE_CHECKING:
    from speculation.completion import Completer

SERVER_LOG = "server.log"


def serve(arguments: argparse.Namespace) -> int:
    """Serves with the model of the settings; does not return before the client is gone."""
    settings, _ = resolve()
    keep_log()

    sources = Sources()

    path = log_path() if settings.telemetry_log else None
    writer = TelemetryWriter(path, sinks=[sink(backend) for backend in _exporters(settings)])

    def load(progress: Progress) -> CompletionEngine:
        engine = _load(settings, sources, progress)
        writer.write(costs_of(engine))
        return engine

    host = Host(CompletionService(load), writer, settings.idle_exit_minutes * 60, sources)
    if arguments.socket is not None:
        end_process(host, run(host.on_socket(arguments.socket)))
    if arguments.tcp is not None:
        name, port = arguments.tcp
        end_process(host, run(host.on_tcp(name, port, _announce)))
    end_process(host, run(host.on_standard_streams()))
    return 0


def run(main: Coroutine[Any, Any, int]) -> int:
    """Runs the event loop."""
    return asyncio.run(main)


def end_process(host: Host, code: int) -> None:
    """Ends at once: a forward pass or a load that is going on in the worker must not hold the process up."""
    host.service.stop(timeout_s=0.5)
    host.stop_sources()
    host.writer.close(timeout_s=0.5)
    os._exit(code)


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """For its user alone: what went wrong may name files."""

    def _open(self) -> io.TextIOWrapper:
        stream = super()._open()
        Path(self.baseFilename).chmod(0o600)
        return stream


def keep_log(path: Callable[[], Path] = log_dir) -> None:
    """Warnings and errors of our own go to the server's log file; nothing goes to stderr."""
    for name in ("pygls", "asyncio"):
        library = logging.getLogger(name)
        library.propagate = False
        library.addHandler(logging.NullHandler())
        library.setLevel(logging.CRITICAL)
    root = logging.getLogger()
    try:
        file = _PrivateFile(path() / SERVER_LOG, maxBytes=2**20, backupCount=2, encoding="utf-8", delay=True)
    except OSError:
        root.addHandler(logging.NullHandler())
        return
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(file)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _exporters(settings: Settings) -> list[Backend]:
    """The exporters that are set; one that does not start is told in the log and left out."""
    try:
        return open_exporters(settings.prometheus_port or None, settings.otlp_endpoint or None)
    except ExporterError as error:
        logging.getLogger(__name__).error("telemetry export is off: %s", error)
        return []


def _load(settings: Settings, sources: Sources, progress: Progress) -> Completer:
    from speculation.loading import find_model, load_engine, pick_device  # brings torch

    try:
        engine = load_engine(settings.model, settings.device, settings.engine, settings.dtype, progress)
        sources.attach(engine, find_model(settings.model, pick_device(settings.device)).tokenizer)
    except BaseException:
        sources.stop()
        raise
    return engine


def _announce(port: int) -> None:
    print(f"listening on port {port}", file=sys.stderr, flush=True)
