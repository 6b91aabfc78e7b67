"""popc diff."""

from __future__ import annotations

from pathlib import Path

import click

from popc.cli.console import Console
from popc.cli.engine_options import program_option
from popc.cli.model_options import ModelSettings, model_options
from popc.cli.report import Report

__all__ = ["command"]

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("diff")
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@click.option("--all", "show_all", is_flag=True, help="Show every row of long tables.")
@program_option
@model_options
@click.option(
    "--train",
    type=_FILE,
    metavar="FILE",
    help="For models: compare training steps as this TOML or JSON file describes them.",
)
@click.pass_obj
def command(
    console: Console,
    *,
    before: Path,
    after: Path,
    show_all: bool,
    program: str,
    settings: ModelSettings,
    train: Path | None,
) -> Report:
    """Compare the programs BEFORE and AFTER: archives, or models that are compiled for it.

    Cycles, bytes of tiles, ops, options, inputs and outputs, content.  Cycles, tiles and single
    ops are known of archives that were compiled with the option cost_report.  The exit code is 0
    if the programs are the same, 1 if not.  Options of the compiler apply to models.

    \b
    popc diff old.popx new.popx
    popc diff old.popx model.onnx --dim batch=16 --set partials_type=half
    popc diff several.popx single.popx --program main.2
    """
    from popc.cli.diff_text import difference_text
    from popc.cli.profiles import load_profiles
    from popc.reporting import compare_profiles

    first, second = load_profiles((before, after), settings, train, console, program)
    data = compare_profiles(first, second)
    names = (first.name, second.name)
    if names[0] == names[1] and not before.samefile(after):
        names = (str(before), str(after))
    warnings = tuple(
        f"{name} has no cost report: compile it with --set cost_report=true to compare costs"
        for name in data["without_costs"]
        if not data["same"]
    )
    text = difference_text(data, names, show_all=show_all)
    document = {"before": first.name, "after": second.name, **data}
    return Report("diff", document, text, 0 if data["same"] else 1, warnings)
