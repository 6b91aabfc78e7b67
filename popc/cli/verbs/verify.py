"""popc verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from popc.cli.console import Console
from popc.cli.engine_options import program_option
from popc.cli.model_options import ModelSettings, file_argument, model_options, several_options
from popc.cli.programs import cache_option, load_compiled
from popc.cli.report import Report, format_table
from popc_runtime.errors import UsageError

if TYPE_CHECKING:
    from popc.study.verification import Comparison

__all__ = ["command"]

_MAX_ROWS = 20  # outputs that are printed; JSON has all of them


@click.command("verify")
@file_argument
@click.option(
    "--reference",
    type=click.Choice(["onnxruntime"]),
    default="onnxruntime",
    show_default=True,
    help="Reference to compare with.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The ONNX model that FILE was compiled from, if FILE is an archive.",
)
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SOURCE",
    help="As for `popc run`; inputs that are not given are random.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Compare every tensor of the model in order (compiles it without fusions).",
)
@click.option("--rtol", type=float, default=1e-3, show_default=True)
@click.option(
    "--atol",
    type=float,
    default=1e-5,
    show_default=True,
    help="Relative tolerance: a share of the tensor's largest absolute value.",
)
@program_option
@model_options
@several_options
@cache_option
@click.pass_obj
def command(
    console: Console,
    *,
    file: Path,
    reference: str,
    model: Path | None,
    inputs: tuple[str, ...],
    every: bool,
    rtol: float,
    atol: float,
    program: str,
    settings: ModelSettings,
    cached: bool,
) -> Report:
    """Compare FILE (a model, or an archive with --model) with another runtime.

    Exits with 1 if results differ, and names the first tensor that does.

    \b
    popc verify model.onnx --shape x=1,3,224,224
    popc verify model.popx --model model.onnx --input x=image.npy
    popc verify several.popx --model model.onnx --program main.2
    """
    from popc.caching.programs import model_name
    from popc.study.verification import verify_file

    if not (rtol >= 0 and atol >= 0):  # NaN is not
        raise UsageError("--rtol and --atol must not be negative")
    rows = verify_file(
        settings.requests(model or file),
        file,
        inputs,
        every=every,
        rtol=rtol,
        atol=atol,
        compiled=lambda requests: load_compiled(requests, model_name(file), console, cached=cached),
        program=program,
    )
    wrong = [row for row in rows if not row.agrees]
    data = {
        "reference": reference,
        "rtol": rtol,
        "atol": atol,
        "compared": len(rows),
        "mismatches": [row.to_dict() for row in wrong],
        "first_divergence": wrong[0].to_dict() if wrong else None,
        "tensors": [row.to_dict() for row in rows],
    }
    return Report("verify", data, _text(rows, wrong), exit_code=1 if wrong else 0)


def _text(rows: list[Comparison], wrong: list[Comparison]) -> str:
    header = ["tensor", "type", "max difference", "allowed", "verdict"]
    shown = (wrong or rows)[:_MAX_ROWS]
    table = format_table([header, *(_row(comparison) for comparison in shown)])
    hidden = len(wrong or rows) - len(shown)
    more = f"\n... {hidden} more" if hidden else ""
    if not rows:
        return "nothing to compare: every output of the model is one of its inputs"
    if not wrong:
        return f"{table}{more}\n{_all(len(rows))}"
    first = wrong[0]
    return (
        f"{table}{more}\n{len(wrong)} of {len(rows)} tensors differ; "
        f"the first in order of execution is {first.name} (node {first.node or '-'})"
    )


def _all(count: int) -> str:
    return "the tensor agrees" if count == 1 else f"all {count:,} tensors agree"


def _row(comparison: Comparison) -> list[str]:
    verdict: Any = "agrees" if comparison.agrees else comparison.reason
    return [
        f"{comparison.name} ({comparison.program})" if comparison.program else comparison.name,
        comparison.type,
        f"{comparison.difference:.3g}",
        f"{comparison.allowed:.3g}",
        str(verdict),
    ]
