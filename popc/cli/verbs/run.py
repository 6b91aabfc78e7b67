"""popc run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from popc.cli.console import Console
from popc.cli.engine_options import (
    calls_option,
    engine_option,
    feed_key_option,
    limits_option,
    program_option,
    threads_option,
)
from popc.cli.files import write_text
from popc.cli.model_options import (
    ModelSettings,
    file_argument,
    model_options,
    several_options,
    train_option,
)
from popc.cli.programs import cache_option, load_program
from popc.cli.report import Report, counted, format_seconds
from popc.inputs.choices import PIXELS
from popc_runtime.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from popc.inputs.arrays import FeedKey
    from popc_runtime import Executable
    from popc_runtime.cycles.execution import ExecutionReport
    from popc_runtime.format import Array, TensorSpec

__all__ = ["command"]


@click.command("run")
@file_argument
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SOURCE",
    help="x=x.npy (numbers, or words if the model takes strings), x=data.npz (its array x), "
    "x=x.bin (raw elements), x=x.pb (a tensor of ONNX), x=- (a .npy from stdin), x=cat.jpg (a "
    "picture, see --pixels), x=random:SEED; data.npz alone gives every input by its name.",
)
@click.option(
    "-o",
    "--output",
    "results",
    multiple=True,
    metavar="DIR|NAME=FILE",
    help="Write all results as .npy files into DIR, or one to FILE (- for stdout); labels are "
    "written as strings.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Run this many steps; inputs with a leading dimension of STEPS, or with the samples of "
    "all steps in a row, are split.",
)
@feed_key_option(
    "--feed-key",
    "Verify inputs that are files: each must have the seal that `popc feed write --key` makes with "
    "the key in FILE, and ID.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Do not convert dtypes, and fail on results that are NaN or infinite.",
)
@click.option(
    "--seed",
    type=int,
    help="Seed of the device's random numbers; by default, what the archive was compiled for.",
)
@click.option(
    "--fp-checks/--no-fp-checks",
    default=None,
    help="Stop at the first op that makes NaN or infinity of ordinary numbers, and name it; "
    "by default, as the archive was compiled.",
)
@click.option(
    "--report",
    "report_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the time that the steps would take on the target: JSON if FILE ends in .json, else "
    "text. For archives compiled with instrument_with_hardware_cycle_counter.",
)
@click.option(
    "--report-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --report: write a report of every Nth step by itself, with the number of the step "
    "in front of the suffix, as in cycles.20.txt.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print the N largest elements of each row of results, as of the scores of classes.",
)
@click.option(
    "--labels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The names of the classes for --top, a line for each; by default, those that the model "
    "has for columns.",
)
@click.option(
    "--pixels",
    type=click.Choice(PIXELS),
    default="auto",
    show_default=True,
    help="Of pictures: bytes from 0 to 255, numbers from 0 to 1, or normalised as for ImageNet; "
    "auto: bytes for integers, imagenet for floats with three channels, else unit.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop a step that takes longer, or what the program computes when it is loaded.",
)
@click.option("--values", is_flag=True, help="With --format json: print every value.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@threads_option("run")
@engine_option
@limits_option
@calls_option
@program_option
@model_options
@several_options
@train_option("For a model: run a training step; this file names loss and optimizer.")
@cache_option
@click.pass_obj
def command(
    console: Console,
    *,
    file: Path,
    inputs: tuple[str, ...],
    results: tuple[str, ...],
    steps: int,
    feed_key: FeedKey | None,
    strict: bool,
    seed: int | None,
    fp_checks: bool | None,
    report_path: Path | None,
    report_every: int | None,
    top: int | None,
    labels: Path | None,
    pixels: str,
    timeout: float | None,
    values: bool,
    force: bool,
    threads: int | None,
    engine: str,
    limits: str,
    host_calls: dict[str, Any],
    program: str,
    settings: ModelSettings,
    train: Path | None,
    cached: bool,
) -> Report:
    """Run FILE, an archive or a model, on the given inputs and print or write its results.

    A model is compiled if the cache does not hold its program.

    \b
    popc run model.popx --input x=image.npy --output results/
    popc run model.popx --input x=random:0 --steps 10
    popc run model.onnx --dim batch=1 --input x=cat.jpg --top 5 --labels classes.txt
    popc run instrumented.popx --input x=random:0 --report cycles.txt
    """
    from popc.cli.results import results_data, results_table
    from popc.inputs.arrays import gather_inputs, plan_outputs, write_outputs

    if values and not console.json:
        raise UsageError("--values prints into the JSON document", hint="popc --format json run")
    best = _Best.of(top, labels)
    executable = load_program(
        *(file, settings, train, console),
        cached=cached,
        seed=seed,
        threads=threads,
        floating_point_checks=fp_checks,
        engine=engine,
        limits=limits,
        timeout=timeout,
        host_calls=host_calls,
    )
    executable = executable.program(program) if program else executable
    samples = gather_inputs(inputs, executable, steps, pixels, feed_key)
    targets = plan_outputs(results, executable.outputs, force=force)
    if console.json and "-" in targets.values():
        raise UsageError("stdout takes the JSON document or an array, not both")
    reports = _Reports.of(report_path, report_every, steps, force=force)
    keywords = {"cast": "no" if strict else "safe", "timeout": timeout}
    arrays = _run_steps(executable, samples, inputs, keywords, reports)
    reports.write_last(executable)
    warnings = _non_finite(arrays, strict=strict)
    specs = executable.outputs
    data, tables = best.of_results(arrays, specs)
    written = write_outputs(arrays, specs, targets)
    seconds = executable.stats().run_seconds
    data |= {"steps": steps, "seconds": seconds, "files": written}
    data["outputs"] = results_data(arrays, specs, values=values)
    steps_text = f"{counted(steps, 'step')} in {format_seconds(seconds)}"
    lines = [results_table(arrays, specs), *tables, steps_text, *_renamed(written, results)]
    text = "" if "-" in written.values() else "\n".join(lines)
    return Report("run", data, text, warnings=warnings)


class _Best(NamedTuple):
    """The best classes that are wanted: how many (0: none), and the names of all."""

    number: int
    names: Sequence[str]

    @classmethod
    def of(cls, top: int | None, labels: Path | None) -> _Best:
        """The classes that --top and --labels ask for."""
        from popc.cli.results import read_labels

        if labels is not None and top is None:
            raise UsageError("--labels are names for --top N")
        return cls(top or 0, () if labels is None else read_labels(labels))

    def of_results(
        self, arrays: Mapping[str, Array], specs: Sequence[TensorSpec]
    ) -> tuple[dict[str, Any], list[str]]:
        """The best classes as data and as tables, if they are wanted."""
        from popc.cli.results import top_data, top_text

        if not self.number:
            return {}, []
        found = top_data(arrays, specs, self.number, self.names)
        return {"top": found}, [f"\n{top_text(found)}\n"]


def _renamed(written: Mapping[str, str], asked: Sequence[str]) -> list[str]:
    """The places in a folder of results whose files have other names than they."""
    return [
        f"{name} is in {path}"
        for name, path in written.items()
        if Path(path).stem != name and f"{name}={path}" not in asked
    ]


class _Reports(NamedTuple):
    """The reports to write: where, and of which steps (0: one of all)."""

    path: Path | None
    every: int

    @classmethod
    def of(cls, path: Path | None, every: int | None, steps: int, *, force: bool) -> _Reports:
        """The reports that --report and --report-every ask for.

        Raises:
            UsageError: nothing would be written.
            ResourceError: a file exists already.
        """
        if every is not None and path is None:
            raise UsageError("--report-every is about the file of --report FILE")
        if every is not None and every > steps:
            raise UsageError(f"--report-every {every} writes nothing in {counted(steps, 'step')}")
        reports = cls(path, every or 0)
        numbers = range(every, steps + 1, every) if every else (0,)
        for file in () if path is None else map(reports.file, numbers):
            if file.exists() and not force:
                raise ResourceError(f"{file} exists already", hint="--force replaces it")
        return reports

    def file(self, step: int) -> Path:
        """The file for a step; for all if that is 0."""
        assert self.path is not None, "reports are wanted"
        return self.path.with_suffix(f".{step}{self.path.suffix}") if step else self.path

    def write_step(self, executable: Executable, step: int) -> None:
        """Write the report of a step that has just run, if it is wanted."""
        if self.every and step % self.every == 0:
            self._write(executable.execution_report(), self.file(step))

    def write_last(self, executable: Executable) -> None:
        """Write the report of all steps, if it is wanted."""
        if self.path is not None and not self.every:
            self._write(executable.execution_report(total=True), self.path)

    @staticmethod
    def _write(report: ExecutionReport, path: Path) -> None:
        as_json = path.suffix.lower() == ".json"
        text = json.dumps(report.to_dict(), indent=2, sort_keys=True) if as_json else str(report)
        write_text(path, f"{text}\n")


def _run_steps(
    executable: Executable,
    samples: Sequence[Mapping[str, Array]],
    inputs: Sequence[str],
    keywords: Mapping[str, Any],
    reports: _Reports,
) -> dict[str, Array]:
    """Results by name; of several steps, stacked along a new first axis."""
    import numpy as np

    from popc.inputs.arrays import drawn_names, may_not_suit

    with may_not_suit(drawn_names(inputs, executable)):
        collected: list[dict[str, Array]] = []
        for step, sample in enumerate(samples, start=1):
            collected.append(executable.run(sample, **keywords))
            reports.write_step(executable, step)
    if len(collected) == 1:
        return collected[0]
    return {
        spec.name: np.stack([result[spec.name] for result in collected])
        for spec in executable.outputs
    }


def _non_finite(results: Mapping[str, Array], *, strict: bool) -> tuple[str, ...]:
    import numpy as np

    from popc_runtime.errors import DeviceError

    bad = [
        name
        for name, array in results.items()
        if array.dtype.kind == "f" and not np.isfinite(array).all()
    ]
    message = f"results contain NaN or infinity: {', '.join(bad)}"
    if bad and strict:
        raise DeviceError(message)
    return (message,) if bad else ()
