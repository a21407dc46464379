"""`spec-complete complete`: completes a file at a position, for scripts and for looking at what the engine does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lsp_server.cleanup import deadline_cut
from lsp_server.command_log import CommandLog

if TYPE_CHECKING:
    from lsp_server.daemon_client import DaemonClient
    from speculation.completion import Completer
    from speculation.request import CompletionEngine, CompletionRequest, Generation
    from speculation.sampling import SamplingParameters

Answerer = Callable[["Task"], dict[str, Any]]

LARGEST_FILE = 16 << 20  # bytes


class InputError(Exception):
    """Arguments or input that cannot be used."""

    exit_code = 2


class DeviceMemoryError(Exception):
    """The model does not fit."""

    exit_code = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the file to complete in; - reads standard input"
    )
    parser.add_argument("--at", metavar="LINE:COL", help="the cursor, counted from 1 as editors show it")
    parser.add_argument(
        "--batch", action="store_true", help="JSON lines in, JSON lines out; loads the model once"
    )
    parser.add_argument("--path", metavar="NAME", help="what the text of standard input is called")
    parser.add_argument("--root", metavar="DIR", type=Path, help="workspace whose index drafts come from")
    parser.add_argument("--model", metavar="NAME|PATH", help="default: the one for this device")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--engine", default="auto", help="auto, eager, int8 or graphs")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16")
    parser.add_argument("--max-tokens", metavar="N", type=int, default=64)
    parser.add_argument("--anchor", metavar="LINE", type=int, help="the line where the forced middle begins")
    parser.add_argument(
        "--temperature", metavar="T", type=float, default=0.0, help="0: always the likeliest token"
    )
    parser.add_argument("--top-k", metavar="K", type=int, default=0)
    parser.add_argument("--top-p", metavar="P", type=float, default=1.0)
    parser.add_argument("--min-p", metavar="P", type=float, default=0.0)
    parser.add_argument("--repetition-penalty", metavar="R", type=float, default=1.0)
    parser.add_argument("--seed", metavar="S", type=int, default=0)
    parser.add_argument("--speculation", choices=("on", "off"), default="on")
    parser.add_argument("--deadline", metavar="MS", type=float, help="answer with what is there by then")
    parser.add_argument("--no-daemon", action="store_true", help="load the model in this process")
    parser.add_argument("--json", action="store_true", help="one JSON object with ids and metrics")


def run(arguments: argparse.Namespace) -> int:
    """Prints completions; the exit code."""
    if arguments.batch:
        return _run_batch(arguments)
    if arguments.file is None or arguments.at is None:
        raise InputError("give FILE and --at LINE:COL, or --batch")
    task = _task(arguments, vars(arguments))
    with CommandLog() as log:
        answer = _answerer(arguments, log)(task)
    if arguments.json:
        print(json.dumps(answer))
    else:
        _write_exactly(answer["text"])
        from lsp_server.telemetry import summary_line

        print(("\n" if sys.stdout.isatty() else "") + summary_line(answer["metrics"]), file=sys.stderr)
    return 0


def _write_exactly(text: str) -> None:
    """Code is printed as it is or not at all: elsewhere characters that an encoding lacks have stand-ins."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        missing = text[error.start]
        raise InputError(
            f"standard output is in {encoding}, which has no {missing!a}: set PYTHONUTF8=1, or use --json"
        ) from error
    sys.stdout.write(text)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Task:
    """One completion to make, checked."""

    request: CompletionRequest
    sampling: SamplingParameters
    deadline_ms: float | None


def _run_batch(arguments: argparse.Namespace) -> int:
    """One JSON object per line in; its answer, or {"error": …}, per line out, in the same order."""
    with CommandLog() as log:
        return _answer_lines(arguments, log)


def _answer_lines(arguments: argparse.Namespace, log: CommandLog) -> int:
    answer: Answerer | None = None
    worst = 0
    for number, data in enumerate(_lines(arguments), 1):
        if not data.strip():
            continue
        identity: dict[str, Any] = {}
        try:
            options = json.loads(_text(data, "the line"))
            if not isinstance(options, dict):
                raise InputError("not a JSON object")
            identity = {"id": options["id"]} if "id" in options else {}
            task = _task(arguments, {**vars(arguments), **_known_options(options)})
            answer = answer or _answerer(arguments, log)
            result = answer(task)
        except (InputError, DeviceMemoryError, ValueError) as error:
            worst = max(worst, getattr(error, "exit_code", 0) if isinstance(error, DeviceMemoryError) else 0)
            result = {"error": f"line {number}: {error}"}
        print(json.dumps({**identity, **result}), flush=True)
    return worst


def _lines(arguments: argparse.Namespace) -> Iterator[bytes]:
    if arguments.file in (None, "-"):
        yield from sys.stdin.buffer
        return
    yield from _bytes(arguments.file).split(b"\n")


NUMBER = (int, float)
FIELD_TYPES: dict[str, type | tuple[type, ...]] = {
    "file": str, "at": str, "path": str, "text": str, "root": str, "max_tokens": int, "anchor": int,
    "temperature": NUMBER, "top_k": int, "top_p": NUMBER, "min_p": NUMBER, "repetition_penalty": NUMBER,
    "seed": int, "deadline": NUMBER,
}  # fmt: skip
PER_TASK = {
    "file", "at", "path", "text", "root", "max_tokens", "anchor", "temperature", "top_k", "top_p", "min_p",
    "repetition_penalty", "seed", "speculation", "deadline", "id",
}  # fmt: skip


def _known_options(options: dict[str, Any]) -> dict[str, Any]:
    named = {key.replace("-", "_"): value for key, value in options.items()}
    unknown = sorted(named.keys() - PER_TASK)
    if unknown:
        raise InputError(f"unknown field {unknown[0]!r}; known: {', '.join(sorted(PER_TASK))}")
    for name, value in named.items():
        wrong = isinstance(value, bool) and name != "speculation"
        if name in FIELD_TYPES and (wrong or not isinstance(value, FIELD_TYPES[name])):
            raise InputError(f"{name} has the wrong type: {value!r}")
    return {"file": None, "text": None, **named}


def _task(arguments: argparse.Namespace, options: dict[str, Any]) -> Task:
    from speculation.request import CompletionRequest
    from speculation.sampling import SamplingParameters

    text = options.get("text")
    path = options.get("path")
    if text is None:
        if not isinstance(options["file"], str):
            raise InputError("give a file, or text and path")
        piped = options["file"] == "-" and not arguments.batch
        data = sys.stdin.buffer.read() if piped else _bytes(options["file"])
        text = _text(data, "standard input" if piped else options["file"])
        path = path or (options["file"] if options["file"] != "-" else None)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    offset = _offset(text, options["at"])
    anchor = options["anchor"]
    if anchor is not None and not (
        isinstance(anchor, int) and 1 <= anchor <= text.count("\n", 0, offset) + 1
    ):
        raise InputError(f"--anchor {anchor}: the anchor line must be between 1 and the cursor's line")
    if not isinstance(options["max_tokens"], int) or options["max_tokens"] < 1:
        raise InputError(f"--max-tokens {options['max_tokens']}: must be a whole number above 0")
    if options["speculation"] not in ("on", "off", True, False):
        raise InputError(f"speculation {options['speculation']!r}: on or off")
    root = options.get("root")
    if root is not None and not Path(root).is_dir():
        raise InputError(f"--root {root}: no such directory")
    try:
        sampling = SamplingParameters(
            *(
                options[name]
                for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
            )
        )
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error
    request = CompletionRequest(
        text=text,
        offset=offset,
        path=str(path or "untitled"),
        root=str(Path(root).resolve()) if root is not None else "",
        anchor_line=None if anchor is None else anchor - 1,
        max_tokens=options["max_tokens"],
        speculation=options["speculation"] in ("on", True),
        sampling=sampling,
    )
    return Task(request, sampling, options["deadline"])


def _bytes(name: str) -> bytes:
    path = Path(name)
    try:
        if path.is_dir():
            raise InputError(f"{name} is a directory: give a file")
        if not path.exists():
            raise InputError(f"{name}: no such file")
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{name} is larger than {LARGEST_FILE >> 20} MiB")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"cannot read {name!r}: {getattr(error, 'strerror', error)}") from error


def _text(data: bytes, name: str) -> str:
    if b"\0" in data:
        raise InputError(f"{name} is a binary file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text (byte {error.start})") from error


def _offset(text: str, at: object) -> int:
    """The code point offset of a 1-based LINE:COL."""
    line_part, _, column_part = str(at).partition(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (line_part, column_part)):
        raise InputError(f"--at {at}: write LINE:COL, both counted from 1, as in 12:5")
    line, column = int(line_part), int(column_part)
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        raise InputError(f"--at {at}: the file has {len(lines)} lines")
    if not 1 <= column <= len(lines[line - 1]) + 1:
        raise InputError(f"--at {at}: line {line} has columns 1 to {len(lines[line - 1]) + 1}")
    return sum(len(earlier) + 1 for earlier in lines[: line - 1]) + column - 1


def _answerer(arguments: argparse.Namespace, log: CommandLog) -> Answerer:
    """The process that has this model loaded, where there is one; else an engine of our own."""
    answer = _engine_of(arguments, log)
    return lambda task: log.logged(task.request, lambda: answer(task))


def _engine_of(arguments: argparse.Namespace, log: CommandLog) -> Answerer:
    if not arguments.no_daemon:
        from lsp_server.daemon import DaemonError, EngineChoice
        from lsp_server.daemon_client import DaemonClient

        choice = EngineChoice(arguments.model, arguments.device, arguments.engine, arguments.dtype)
        try:
            client = DaemonClient(choice)
        except DaemonError:
            pass
        else:
            return partial(_ask, client)
    engine = _load(arguments)
    log.costs(engine)
    return partial(_answer, engine)


def _ask(client: DaemonClient, task: Task) -> dict[str, Any]:
    from lsp_server.daemon import DaemonError
    from lsp_server.oneshot import FIELDS

    request = {name: getattr(task.request, name) for name in FIELDS}
    try:
        return client.complete(
            {**request, "sampling": asdict(task.sampling), "deadline_ms": task.deadline_ms}
        )
    except DaemonError as error:
        kind = DeviceMemoryError if "memory" in str(error) else InputError
        raise kind(f"{error}; try again with --no-daemon") from error


def _load(arguments: argparse.Namespace) -> Completer:
    from speculation.loading import load_engine

    def progress(message: str, fraction: float) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{message} …" if fraction < 1 else "\r\033[K", end="", file=sys.stderr, flush=True)

    try:
        return load_engine(
            arguments.model,
            arguments.device,
            arguments.engine,
            arguments.dtype,
            progress,
            str(arguments.root.resolve()) if arguments.root else None,
        )
    except MemoryError as error:
        raise DeviceMemoryError(
            "out of memory while loading the model: choose a smaller one with --model"
        ) from error


def _answer(engine: CompletionEngine, task: Task) -> dict[str, Any]:
    from lsp_server.records import command_record
    from speculation.verifier.base import OutOfMemoryError

    started = perf_counter()
    try:
        generation = engine.start(task.request)
        _run(generation, started, task.deadline_ms)
    except (MemoryError, OutOfMemoryError) as error:
        raise DeviceMemoryError(
            f"out of memory ({error}): choose a smaller model, or fewer tokens"
        ) from error
    text = generation.text
    reason = generation.finish_reason or "cancelled"
    record = command_record(
        engine,
        task.request,
        generation.metrics,
        text=text,
        finish_reason=reason,
        total_ms=(perf_counter() - started) * 1e3,
        queue_ms=0.0,
    )
    return {
        "text": text,
        "finish_reason": reason,
        "model": engine.model,
        "engine": engine.name,
        "token_ids": generation.token_ids,
        "metrics": record,
    }


def _run(generation: Generation, started: float, deadline_ms: float | None) -> None:
    """Runs to the end, or to the deadline once there is text."""
    while generation.step():
        late = deadline_ms is not None and (perf_counter() - started) * 1e3 >= deadline_ms
        if late and generation.text:
            generation.cut(deadline_cut(generation.text))
