"""popc estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from popc.cli.console import Console
from popc.cli.model_options import (
    ModelSettings,
    model_argument,
    model_options,
    read_source,
    target_option,
    train_option,
)
from popc.cli.report import Report
from popc_runtime.errors import DoesNotFitError

__all__ = ["command"]


@click.command("estimate")
@model_argument
@model_options
@target_option
@train_option("Estimate a training step: a TOML or JSON file names loss and optimizer.")
@click.option("--all", "show_all", is_flag=True, help="Show every op, and in JSON every tile.")
@click.pass_obj
def command(
    console: Console,
    *,
    model: Path,
    settings: ModelSettings,
    target: str | None,
    train: Path | None,
    show_all: bool,
) -> Report:
    """Say what a run of MODEL costs on a target: cycles, time, bytes of every tile.

    Nothing is compiled or written.  The exit code is 4 if the program does not fit.

    \b
    popc estimate model.onnx --shape x=1,3,224,224
    popc estimate model.onnx --dim batch=16 --target bow
    popc estimate model.onnx --set available_memory_proportion=0.2
    """
    from popc.api import estimate_request
    from popc.cost import format_costs
    from popc.progress import Watch

    request = settings.on_target(target).request(read_source(model), train)
    report = estimate_request(request, Watch(console.on_progress()))
    data: dict[str, Any] = report.to_dict(full=show_all)
    text = format_costs(report, rows=len(report.ops) if show_all else 12).rstrip()
    return Report("estimate", data, text, 0 if report.fits else DoesNotFitError.exit_code)
