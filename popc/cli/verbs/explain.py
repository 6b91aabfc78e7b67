"""popc explain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from popc.cli.command_line import compile_line
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

if TYPE_CHECKING:
    from popc.study.advice import Explanation

__all__ = ["command"]


@click.command("explain")
@model_argument
@model_options
@target_option
@train_option("Explain a training step: a TOML or JSON file names loss and optimizer.")
@click.option(
    "--budget",
    type=click.IntRange(0),
    default=150,
    show_default=True,
    metavar="N",
    help="About how many other programs to plan; 0 for no advice.",
)
@click.option(
    "--jobs",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of processes; 0 for one per core, if that is worth it.",
)
@click.pass_obj
def command(
    console: Console,
    *,
    model: Path,
    settings: ModelSettings,
    target: str | None,
    train: Path | None,
    budget: int,
    jobs: int,
) -> Report:
    """Say why MODEL does or does not fit a target, and what would help.

    MODEL is an ONNX file, or an archive that holds a cost report.  Advice is tested: whatever is
    proposed was planned again.  The exit code is 4 if the program does not fit.

    \b
    popc explain model.onnx --dim batch=64
    popc explain model.onnx --dim batch=16 --train train.toml --target ipu1
    popc explain model.popx
    """
    from popc.cli.fit_text import explanation_lines, headline
    from popc.study.advice import explain_request
    from popc_runtime.format import is_archive

    settings = settings.on_target(target)
    if str(model) != "-" and is_archive(model):
        explanation = _of_archive(model, settings, train, console)
    else:
        explanation = explain_request(
            settings.request(read_source(model), train),
            budget=budget,
            jobs=jobs,
            on_progress=console.on_progress(),
            on_finding=console.on_count("advice"),
        )
    lines = explanation_lines(
        explanation, lambda change: compile_line(model, settings, train, change)
    )
    first = headline(explanation.diagnosis)
    text = "\n".join([first[0].upper() + first[1:], "", *lines])
    return Report(
        "explain", explanation.to_dict(), text, 0 if explanation.fits else DoesNotFitError.exit_code
    )


def _of_archive(
    file: Path, settings: ModelSettings, train: Path | None, console: Console
) -> Explanation:
    """The explanation from an archive's cost report; without a model nothing is planned again."""
    from popc.cli.profiles import load_profiles
    from popc.study.advice import Explanation, diagnose

    (profile,) = load_profiles((file,), settings, train, console)
    return Explanation(diagnose(profile.known_costs()))
