"""popc tune."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from popc.cli.command_line import compile_line
from popc.cli.console import Console
from popc.cli.files import output_option
from popc.cli.model_options import (
    ModelSettings,
    model_argument,
    model_options,
    read_source,
    target_option,
    train_option,
)
from popc.cli.report import Report, format_bytes, format_table
from popc_runtime.errors import DoesNotFitError, ResourceError, UsageError

if TYPE_CHECKING:
    from popc.study.advice import Trial
    from popc.study.tuning import Tuning

__all__ = ["command"]

_SHOWN: Final = 12  # rows of the table; JSON has all of them
_COUNT = click.IntRange(1)


@click.command("tune")
@model_argument
@output_option("The options file to write, for popc compile --options FILE.")
@model_options
@target_option
@train_option("Tune a training step: a TOML or JSON file names loss and optimizer.")
@click.option(
    "--objective",
    type=click.Choice(["cycles", "bytes", "archive", "balanced"]),
    default="cycles",
    show_default=True,
    help="What to minimise: time for a sample, memory of the busiest tile, the archive, or "
    "the product of the three.",
)
@click.option(
    "--budget",
    type=_COUNT,
    default=200,
    show_default=True,
    metavar="N",
    help="About how many programs to plan.",
)
@click.option(
    "--jobs",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of processes; 0 for one per core. Results do not depend on it.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--allow-inexact",
    is_flag=True,
    help="Also try options that change the last bits of results.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Journal of the search, to continue from if it exists; OUTPUT.journal by default.",
)
@click.option("--force", is_flag=True, help="Replace the options file if it exists.")
@click.pass_obj
def command(
    console: Console,
    *,
    model: Path,
    output: Path,
    settings: ModelSettings,
    target: str | None,
    train: Path | None,
    objective: str,
    budget: int,
    jobs: int,
    seed: int,
    allow_inexact: bool,
    resume: Path | None,
    force: bool,
) -> Report:
    """Search for the options with which MODEL costs least on a target.

    Programs are planned, not run.  Options that are set stay as they are.  A search that is
    interrupted continues with the same command.  The exit code is 4 if nothing fits the target.

    \b
    popc tune model.onnx --dim batch=16 -o fast.toml
    popc tune model.onnx --dim batch=16 --objective bytes --target ipu1 -o small.toml
    popc compile model.onnx --dim batch=16 --options fast.toml
    """
    from popc.reporting.estimation import check_target
    from popc.study.advice import available_cores
    from popc.study.tuning import options_file, tune_request

    settings = settings.on_target(target)
    request = settings.request(read_source(model), train)
    check_target(request.options)
    _refuse_output(output, model, force=force)
    journal = resume or output.with_name(f"{output.name}.journal")
    try:
        tuning = tune_request(
            request,
            objective=objective,
            budget=budget,
            jobs=jobs or available_cores(),
            seed=seed,
            allow_inexact=allow_inexact,
            journal=journal,
            on_progress=console.on_progress(),
            on_planned=console.on_count("tune"),
        )
    except KeyboardInterrupt:
        console.note(f"progress is kept in {journal}: run the same command to continue")
        raise
    if tuning.found.best is not None:
        _write(output, options_file(tuning, _given(settings)))
    if resume is None:
        journal.unlink(missing_ok=True)
    tuned = replace(settings, options=output, set_=())
    return _report(tuning, output, lambda: compile_line(model, tuned, train, _nothing()))


def _nothing() -> Any:
    from popc.study.advice import Change

    return Change()


def _refuse_output(output: Path, model: Path, *, force: bool) -> None:
    """Before minutes of work, not after."""
    if output.suffix != ".toml":
        raise UsageError(f"{output} is not the name of a TOML file", hint="-o FILE.toml")
    if output.exists() and str(model) != "-" and output.samefile(model):
        raise UsageError(f"the options would replace the model {model}", hint="-o FILE.toml")
    if output.exists() and not force:
        raise ResourceError(
            f"{output} exists already", subject=str(output), hint="--force replaces it"
        )
    if not output.absolute().parent.is_dir():
        raise ResourceError(
            f"the folder {output.parent} does not exist",
            subject=str(output),
            hint="create it first",
        )


def _given(settings: ModelSettings) -> dict[str, Any]:
    """The content of the user's options file, as it is written there."""
    from popc.options import read_table

    if settings.options is None:
        return {}
    problems: list[str] = []
    return read_table(settings.options, "options file", problems)


def _write(output: Path, text: str) -> None:
    from popc_runtime.process.files import new_file

    with new_file(output) as file:
        file.write(text.encode())


def _report(tuning: Tuning, output: Path, line: Any) -> Report:
    data = {"options_file": output.name, **tuning.to_dict()}
    text = "\n".join(_lines(tuning, output, line))
    return Report(
        "tune", data, text, 0 if tuning.found.best is not None else DoesNotFitError.exit_code
    )


def _lines(tuning: Tuning, output: Path, line: Any) -> Iterator[str]:
    found = tuning.found
    if found.best is None:
        yield f"Nothing of {found.planned:,} programs fits {tuning.target.name}."
        if found.nearest is not None:
            lacks = f"{found.nearest.outcome.excess:,} bytes of the busiest tile"
            yield f"Closest: {_named(found.nearest)}, which lacks {lacks}."
        yield "`popc explain` says why, and what else would help."
        return
    yield from _chosen(tuning)
    yield ""
    yield from _front(tuning)
    yield from _others(tuning)
    yield ""
    if found.best.change:
        yield f"{output} holds the chosen options:"
        yield f"  {line()}"
    else:
        yield f"{output} holds the options as they were; nothing is to be gained by others."


def _chosen(tuning: Tuning) -> Iterator[str]:
    from popc.study.tuning import effect_text

    found = tuning.found
    assert found.best is not None
    if not found.best.change:
        yield (
            f"None of {found.planned:,} programs is better for {tuning.objective} on "
            f"{tuning.target.name}: the options are best as they are."
        )
        return
    yield (
        f"Of {found.planned:,} programs the best for {tuning.objective} on "
        f"{tuning.target.name}: {effect_text(found.best.outcome, found.base)}"
    )
    rows = [
        [f"  {name} = {value}", effect_text(found.best.outcome, found.effects[name])]
        for name, value in found.best.change.options.items()
    ]
    if rows:
        yield from format_table(rows).split("\n")


def _front(tuning: Tuning) -> Iterator[str]:
    found = tuning.found
    yield "Pareto front (better in one would be worse in another):"
    rows = [["  cycles", "bytes on a tile", "archive", "", "options"]]
    rows += [_row(trial, tuning) for trial in found.front[:_SHOWN]]
    yield from format_table(rows, right=(0, 1, 2)).split("\n")
    if len(found.front) > _SHOWN:
        yield f"  ... {len(found.front) - _SHOWN} more (--format json)"


def _row(trial: Trial, tuning: Tuning) -> list[str]:
    outcome, best = trial.outcome, tuning.found.best
    mark = "<" if best is not None and trial.change == best.change else ""
    return [
        f"  {outcome.cycles:,}",
        f"{outcome.peak_bytes:,}",
        format_bytes(outcome.archive_bytes),
        mark,
        _named(trial),
    ]


def _named(trial: Trial) -> str:
    settings = list(trial.change.arguments())[1::2]  # without --set
    return ", ".join(settings) or "as they are"


def _others(tuning: Tuning) -> Iterator[str]:
    found = tuning.found
    if found.idle:
        yield ""
        yield f"Did not matter: {', '.join(found.idle)}"
    if found.refused:
        yield ""
        yield "Not possible here:"
        yield from (f"  {name}: {reason}" for name, reason in found.refused.items())
    if found.unexplored:
        yield ""
        yield f"Not explored (--budget): {', '.join(found.unexplored)}"
