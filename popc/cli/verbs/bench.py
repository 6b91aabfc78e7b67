"""popc bench."""

from __future__ import annotations

import json
from collections import defaultdict
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from popc.cli.console import Console
from popc.cli.engine_options import engine_option, limits_option, program_option, threads_option
from popc.cli.files import write_text
from popc.cli.model_options import (
    ModelSettings,
    file_argument,
    model_options,
    several_options,
    train_option,
)
from popc.cli.programs import cache_option, program_source
from popc.cli.report import Report, format_bytes, format_seconds, format_table
from popc_runtime.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from popc_runtime import Executable
    from popc_runtime.format import Array

__all__ = ["command"]

_MAX_ROWS = 15  # kinds of ops that are printed; JSON has all of them


@click.command("bench")
@file_argument
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SOURCE",
    help="As for `popc run`; inputs that are not given are random.",
)
@click.option("--runs", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--warmup", type=click.IntRange(min=0), default=5, show_default=True)
@click.option("--where", is_flag=True, help="Show which instructions take the time.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the figures as JSON.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Compare with figures that --save wrote.",
)
@click.option(
    "--fail-over",
    metavar="PERCENT",
    help="With --compare: exit with 1 if the median is slower by more than this.",
)
@threads_option("run")
@engine_option
@limits_option
@program_option
@model_options
@several_options
@train_option("For a model: measure a training step; this file names loss and optimizer.")
@cache_option
@click.pass_obj
def command(
    console: Console,
    *,
    file: Path,
    inputs: tuple[str, ...],
    runs: int,
    warmup: int,
    where: bool,
    save: Path | None,
    compare: Path | None,
    fail_over: str | None,
    threads: int | None,
    engine: str,
    limits: str,
    program: str,
    settings: ModelSettings,
    train: Path | None,
    cached: bool,
) -> Report:
    """Measure how fast FILE, an archive or a model, loads and runs.

    A model is compiled if the cache does not hold its program.

    \b
    popc bench model.popx --where
    popc bench model.popx --compare before.json --fail-over 5%
    """
    limit = _percent(fail_over, compare)
    import popc_runtime
    from popc.inputs.arrays import drawn_names, gather_inputs, may_not_suit, random_inputs

    archive = program_source(file, settings, train, console, cached=cached)
    start = perf_counter()
    executable = popc_runtime.load(archive, threads=threads, engine=engine, limits=limits)
    loaded = perf_counter()
    executable = executable.program(program) if program else executable
    given = gather_inputs(inputs, executable)[0]
    drawn = random_inputs(executable, given)
    arrays = {**given, **drawn}
    with may_not_suit([*drawn_names(inputs, executable), *drawn]):
        first = _time_run(executable, arrays)
    for _ in range(warmup):
        _time_run(executable, arrays)
    times = sorted(_time_run(executable, arrays) for _ in range(runs))
    memory = executable.manifest.memory
    data: dict[str, Any] = {
        "settings": {"runs": runs, "warmup": warmup, "engine": executable.engine},
        "archive_bytes": len(archive) if isinstance(archive, bytes) else archive.stat().st_size,
        "load_seconds": loaded - start,
        "first_run_seconds": first,
        "latency_seconds": {f"p{p}": _percentile(times, p) for p in (50, 90, 99)},
        "runs_per_second": runs / sum(times),
        "arena_bytes": memory.get("arena_bytes", 0),
        "constant_bytes": memory.get("constant_bytes", 0),
    }
    text = _table(data)
    if where:
        rows = _profile(executable, arrays)
        data["where"] = [row.to_dict() for row in rows]
        text += "\n\n" + _where_table(rows)
    if save is not None:
        _save(save, data)
    if compare is None:
        return Report("bench", data, text)
    return _compare(data, text, compare, limit)


def _percent(text: str | None, compare: Path | None) -> float | None:
    if text is None:
        return None
    if compare is None:
        raise UsageError("--fail-over needs --compare")
    try:
        return float(text.rstrip("%"))
    except ValueError:
        raise UsageError(f"--fail-over {text}: expected a percentage, as in 5%") from None


def _time_run(executable: Executable, arrays: dict[str, Array]) -> float:
    """Seconds of a run; one that keeps a state begins with the same each time."""
    if executable.manifest.variables and executable.manifest.training is None:
        executable.state.reset()
    start = perf_counter()
    executable.run(arrays)
    return perf_counter() - start


def _percentile(ordered: list[float], percent: int) -> float:
    """The nearest-rank percentile of sorted values."""
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(rank, 1) - 1]


def _table(data: dict[str, Any]) -> str:
    latency = data["latency_seconds"]
    return format_table(
        [
            ["load", format_seconds(data["load_seconds"])],
            ["first run", format_seconds(data["first_run_seconds"])],
            *([f"latency {name}", format_seconds(value)] for name, value in latency.items()),
            ["throughput", f"{data['runs_per_second']:,.1f} runs/s"],
            ["archive", format_bytes(data["archive_bytes"])],
            ["arena", format_bytes(data["arena_bytes"])],
            ["constants", format_bytes(data["constant_bytes"])],
        ]
    )


class _Row(NamedTuple):
    """The instructions of one opcode that one engine computes: their time, and how many."""

    opcode: str
    native: bool
    seconds: float
    calls: int

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return {
            "opcode": self.opcode,
            "native": self.native,
            "seconds": self.seconds,
            "count": self.calls,
        }


def _profile(executable: Executable, arrays: dict[str, Array]) -> list[_Row]:
    """The times of instructions, the most expensive ones first; the best of five runs each."""
    runs = [executable.profile(arrays) for _ in range(5)]
    seconds: dict[tuple[str, bool], float] = defaultdict(float)
    counts: dict[tuple[str, bool], int] = defaultdict(int)
    for steps in zip(*runs, strict=True):
        kind = steps[0].opcode, steps[0].native
        seconds[kind] += min(step.seconds for step in steps)
        counts[kind] += 1
    rows = [_Row(*kind, seconds[kind], counts[kind]) for kind in seconds]
    return sorted(rows, key=lambda row: (-row.seconds, row.opcode))


def _where_table(rows: list[_Row]) -> str:
    total = sum(row.seconds for row in rows) or 1.0
    shown = [
        [
            row.opcode,
            "native" if row.native else "numpy",
            f"{row.calls:,}",
            format_seconds(row.seconds),
            f"{row.seconds / total:.1%}",
        ]
        for row in rows[:_MAX_ROWS]
    ]
    if len(rows) > _MAX_ROWS:
        shown.append([f"... {len(rows) - _MAX_ROWS} more", "", "", "", ""])
    header = ["instruction", "engine", "calls", "time", "share"]
    return format_table([header, *shown], right=(2, 3, 4))


def _save(path: Path, data: dict[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def _positive(value: object) -> float:
    number = float(str(value))
    if not 0 < number < inf:
        raise ValueError("a time is a positive number")
    return number


def _compare(data: dict[str, Any], text: str, baseline: Path, limit: float | None) -> Report:
    try:
        before = json.loads(baseline.read_text(encoding="utf-8"))["latency_seconds"]["p50"]
        ratio = data["latency_seconds"]["p50"] / _positive(before)
    except OSError as error:
        raise ResourceError(f"cannot read {baseline}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResourceError(
            f"{baseline} does not hold figures of popc bench",
            subject=str(baseline),
            hint="popc bench --save FILE writes them",
        ) from error
    change = 100 * (ratio - 1)
    data["compared"] = {"ratio": ratio, "limit_percent": limit}
    missed = limit is not None and change > limit
    verdict = f"median {change:+.1f} % against {baseline.name}" + (" (too slow)" if missed else "")
    return Report("bench", data, f"{text}\n{verdict}", exit_code=1 if missed else 0)
