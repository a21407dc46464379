"""`spec-complete doctor`: what this machine runs completions with, what it costs, what is wrong and what mends it."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BREAK_EVEN_LENGTHS = (1, 3, 7, 15, 31, 63)


@dataclass
class Report:
    """Findings by section, and problems with the command that mends each."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[dict[str, str]] = field(default_factory=list)

    def problem(self, what: str, remedy: str) -> None:
        """Something is wrong; ``remedy`` says what to do."""
        self.problems.append({"problem": what, "remedy": remedy})


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--model", metavar="NAME|PATH", help="default: the one for this device")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--dtype", default="auto")


def run(arguments: argparse.Namespace) -> int:
    """Prints the report; 0 when nothing is wrong, 3 when there is no usable model, 2 for other problems."""
    report = Report()
    _versions(report)
    _paths(report)
    _indexes(report)
    usable = _model(report, arguments)
    if arguments.json:
        print(json.dumps({**report.sections, "problems": report.problems}, indent=2, default=str))
    else:
        _print(report)
    return 0 if not report.problems else 2 if usable else 3


def _versions(report: Report) -> None:
    import torch
    import transformers

    from lsp_server.cli import version

    report.sections["software"] = {
        "spec-complete": version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    if not torch.cuda.is_available() and (gpu := _nvidia_gpu()):
        report.problem(
            f"this machine has a GPU ({gpu}) but torch {torch.__version__} cannot use it",
            "install a CUDA build of torch in this environment, then run spec-complete doctor again",
        )


def _nvidia_gpu() -> str | None:
    """The name of a GPU that the driver knows of."""
    if shutil.which("nvidia-smi") is None:
        return None
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return found.stdout.strip().splitlines()[0] if found.returncode == 0 and found.stdout.strip() else None


def _paths(report: Report) -> None:
    from cache import paths

    places: dict[str, Path] = {
        "models": paths.models_dir(),
        "index": paths.index_dir(),
        "history": paths.history_dir(),
        "log": paths.log_dir(),
    }
    report.sections["paths"] = {name: str(path) for name, path in places.items()}
    free = shutil.disk_usage(places["models"]).free
    report.sections["paths"]["free disk"] = f"{free / 1e9:.1f} GB"
    if free < 2e9:
        report.problem(
            f"only {free / 1e9:.1f} GB of disk are free",
            "free some space, or set SPEC_COMPLETE_CACHE_DIR to a larger disk",
        )


def _indexes(report: Report) -> None:
    """Workspaces whose index could not be brought up to date."""
    from cache.index_failures import failed_builds
    from cache.paths import index_dir

    for root, what in failed_builds(index_dir()).items():
        action = shlex.quote(root) if Path(root).is_dir() else f"--clear {shlex.quote(root)}"
        report.problem(f"building the index of {root} failed: {what}", f"spec-complete index {action}")


def _model(report: Report, arguments: argparse.Namespace) -> bool:
    from cache.models import ModelNotAvailable
    from speculation.loading import LoadingError, find_model, load_engine, pick_device
    from speculation.tokenizer import TokenizerError
    from speculation.verifier.choice import describe

    device = pick_device(arguments.device)
    try:
        files = find_model(arguments.model, device)
    except ModelNotAvailable as error:
        report.sections["model"] = {"name": arguments.model, "ready": False}
        report.problem("there is no model to complete with", str(error))
        return False
    report.sections["model"] = {
        "name": files.name,
        "directory": str(files.directory),
        "hash": files.hash[:16],
    }
    try:
        completer = load_engine(arguments.model, arguments.device, arguments.engine, arguments.dtype)
    except (LoadingError, TokenizerError) as error:
        report.problem(f"the engine does not start: {error}", "try --engine eager, or fetch the model again")
        return False
    report.sections["engine"] = describe(completer.verifier)
    report.sections["model"]["fill in the middle"] = completer.markers.family.name
    _costs(report, completer)
    return True


def _costs(report: Report, completer: Any) -> None:
    """The cost of a pass, measured now, and the acceptance at which each draft length breaks even."""
    from lsp_server.stats_formulas import break_even_alpha
    from speculation.costs import profile

    table = profile(completer.verifier)
    report.sections["pass cost (ms by positions)"] = {
        str(m): round(table(m), 2) for m in (1, 2, 4, 8, 16, 32, 64)
    }
    shares = {n: break_even_alpha(n, table(n + 1) / table(1)) for n in BREAK_EVEN_LENGTHS}
    report.sections["break-even acceptance (by drafted tokens)"] = {
        str(length): "never pays" if share is None else round(share, 3) for length, share in shares.items()
    }


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for section, values in report.sections.items():
        console.print(f"[bold]{section}[/bold]")
        for name, value in values.items():
            console.print(f"  {name:<24} {value}", soft_wrap=True, markup=False)
    for problem in report.problems:
        what, remedy = escape(problem["problem"]), escape(problem["remedy"])
        console.print(f"[red]problem[/red] {what}\n  → {remedy}", soft_wrap=True)
    if not report.problems:
        console.print("[green]nothing wrong[/green]")
    sys.stdout.flush()
