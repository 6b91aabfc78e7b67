"""popc compile."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from popc.cli.command_line import compile_line
from popc.cli.console import Console
from popc.cli.dumps import Dumps, parse_window
from popc.cli.model_options import (
    ModelSettings,
    model_argument,
    model_options,
    read_source,
    several_options,
    train_option,
)
from popc.cli.refusal import advised
from popc.cli.report import Report, format_bytes, format_table
from popc.inputs.arguments import pairs
from popc.progress import OnProgress, ProgressEvent, Snapshot, Stage
from popc_runtime.errors import UsageError
from popc_runtime.process.files import refuse_to_replace, require_room_for

if TYPE_CHECKING:
    from popc.requests import Requests

__all__ = ["command"]


@click.command("compile")
@model_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="The archive to write (- for stdout); by default, MODEL with the suffix .popx.",
)
@model_options
@several_options
@train_option("Make a training step: a TOML or JSON file names loss and optimizer.")
@click.option(
    "--emit-ir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write as text the result of each stage, and each snapshot of the graph.",
)
@click.option(
    "--emit-dot",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Draw each snapshot of the graph, for Graphviz.",
)
@click.option(
    "--at",
    type=click.Choice([snapshot.value for snapshot in Snapshot]),
    multiple=True,
    help="Emit this snapshot of the graph only; repeatable.",
)
@click.option("--dot-ops", metavar="FIRST:LAST", help="Draw these ops of the schedule only.")
@click.option(
    "--stop-after",
    type=click.Choice([stage.value for stage in Stage if stage not in (Stage.CONVERT, Stage.PACK)]),
    help="Print the result of this stage; write no archive.",
)
@click.option("--time-passes", is_flag=True, help="Print how long each stage took.")
@click.option("--dump-options", is_flag=True, help="Print the effective options; compile nothing.")
@click.option(
    "--explain-options",
    is_flag=True,
    help="Print what each option that was set changes in the program; write no archive.",
)
@click.option(
    "--allow-out-of-memory",
    is_flag=True,
    help="Write the archive even if the program does not fit the target.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="ARCHIVE",
    help="If the program exceeds its budget, say what has grown since this archive.",
)
@click.option(
    "--meta",
    multiple=True,
    metavar="KEY=VALUE",
    help="Note something in the archive, which `popc inspect` shows; repeatable.",
)
@click.option("--force", is_flag=True, help="Replace the archive if it exists.")
@click.pass_obj
def command(
    console: Console,
    *,
    model: Path,
    output: Path | None,
    settings: ModelSettings,
    train: Path | None,
    emit_ir: Path | None,
    emit_dot: Path | None,
    at: tuple[str, ...],
    dot_ops: str | None,
    stop_after: str | None,
    time_passes: bool,
    dump_options: bool,
    explain_options: bool,
    allow_out_of_memory: bool,
    against: Path | None,
    meta: tuple[str, ...],
    force: bool,
) -> Report:
    """Compile MODEL, an ONNX file (- for stdin), into an executable archive.

    \b
    popc compile model.onnx -o model.popx --shape x=1,3,224,224
    popc compile model.onnx --dim batch=4 --set batches_per_step=8
    popc compile model.onnx --dim batch=32 --train train.toml -o train.popx
    popc compile model.onnx --dim batch=1,4,16 --dim length=32..512:32 --split batch
    """
    if dump_options and explain_options:
        raise UsageError("--dump-options and --explain-options exclude each other")
    if against is not None and (dump_options or explain_options or stop_after):
        raise UsageError("--against applies only when an archive is written")
    if allow_out_of_memory:
        settings = settings.with_settings("allow_out_of_memory=true")
    if dump_options:
        return _show_options(settings, trains=train is not None)
    if explain_options:
        return _explain_options(model, settings, train, console)
    if (at or dot_ops) and not (emit_ir or emit_dot):
        raise UsageError("--at and --dot-ops need a folder to write to", hint="--emit-ir DIR")
    dumps = Dumps(emit_ir, emit_dot, at, parse_window(dot_ops))
    if stop_after is not None:
        return _stop_after(model, settings, train, Stage(stop_after), dumps, console)
    # Mistakes there come before files.
    requests = settings.requests(read_source(model), train)
    requests = requests.with_notes(pairs(meta, "--meta"))
    target = output or model.with_suffix(".popx")
    if str(target) == "-":
        _refuse_terminal(console)
    else:
        _refuse_target(target, model)
        refuse_to_replace(target, force=force)  # before minutes of work, not after
        require_room_for(target)
        requests = requests.with_onnx_folder(str(target.parent))
    first = requests.programs[0]
    with advised(console, first, lambda change: compile_line(model, settings, train, change)):
        return _compile(console, requests, target, dumps, against, force=force, times=time_passes)


def _refuse_target(target: Path, model: Path) -> None:
    """An archive never replaces its own model, and has a name."""
    if target.name == "-.popx":
        raise UsageError("an archive needs a name", hint="-o FILE.popx, or -o - for stdout")
    if target.exists() and str(model) != "-" and target.samefile(model):
        raise UsageError(
            f"the archive would replace the model {model}",
            hint="name another file with -o FILE.popx",
        )


def _refuse_terminal(console: Console) -> None:
    """An archive on stdout goes to a file or another program, and nothing goes beside it."""
    if console.json:
        raise UsageError("stdout takes the JSON document or the archive, not both")
    if sys.stdout is None or sys.stdout.isatty():
        raise UsageError(
            "- stands for standard output, which is "
            + ("closed" if sys.stdout is None else "a terminal"),
            hint="-o FILE.popx, or send it somewhere: popc compile ... -o - > FILE.popx",
        )


def _show_options(settings: ModelSettings, *, trains: bool) -> Report:
    options = settings.resolve(trains=trains)
    rows, hosts = options.settings(), options.foreign.keys
    text = format_table(
        [
            [row.name, "=", str(row.value), f"# from {row.origin}", hosts.get(row.name, "")]
            for row in rows
        ]
    )
    data: dict[str, Any] = {
        row.name: {"value": row.value, "origin": row.origin.value} for row in rows
    }
    for name, keys in hosts.items():
        data[name][options.foreign.dialect] = keys
    return Report("compile", {"options": data}, text, warnings=options.foreign.notes)


def _explain_options(
    model: Path, settings: ModelSettings, train: Path | None, console: Console
) -> Report:
    from popc.cli.explain_text import explanation_text
    from popc.progress import Watch
    from popc.study.effects import explain_options

    request = settings.request(read_source(model), train)
    effects = explain_options(request, Watch(console.on_progress()))
    data = {"options": [effect.to_dict() for effect in effects]}
    return Report("compile", data, explanation_text(effects))


def _stop_after(
    model: Path,
    settings: ModelSettings,
    train: Path | None,
    stage: Stage,
    dumps: Dumps,
    console: Console,
) -> Report:
    from popc.compiler import compile_program
    from popc.progress import Stopped, Watch

    request = settings.request(read_source(model), train)
    if stage is Stage.TRAIN and not request.trains:
        raise UsageError("--stop-after train needs --train FILE")
    watch = Watch(console.on_progress(), dumps.stages.__setitem__, dumps.on_graph, stage)
    with suppress(Stopped):
        compile_program(request, request.load(watch), watch)
    dumps.write()
    text = dumps.stages[stage]
    return Report("compile", {"stage": stage.value, "text": text}, text.rstrip())


def _compile(
    console: Console,
    requests: Requests,
    target: Path,
    dumps: Dumps,
    against: Path | None,
    *,
    force: bool,
    times: bool,
) -> Report:
    from popc.api import compile_requests
    from popc.progress import Watch

    timer = _Timer(console.on_progress())
    wanted = dumps.stages.__setitem__ if dumps.text_folder else None
    watch = Watch(timer, wanted, dumps.on_graph)
    archive = compile_requests(requests, watch, against)
    timer(ProgressEvent(Stage.PACK))
    to_stdout = str(target) == "-"
    if to_stdout:
        data = archive.to_bytes()
        sys.stdout.buffer.write(data)
        size = len(data)
    else:
        archive.save(target, force=force, on_bytes=watch.counter(Stage.PACK))
        size = target.stat().st_size
    timer(ProgressEvent(Stage.PACK, timer.since_last(), format_bytes(size)))
    dumps.write()
    manifest = archive.manifest
    facts = {
        "archive": target.name,
        "bytes": size,
        "inputs": [str(input_) for input_ in manifest.inputs],
        "outputs": [str(output) for output in manifest.outputs],
        "programs": ["main", *(program.name for program in manifest.variants)],
        "memory": dict(manifest.memory),
        "timings": {stage.value: seconds for stage, seconds in timer.seconds.items()},
    }
    text = "" if console.quiet or to_stdout else f"{target} ({format_bytes(size)})"
    if times:
        rows = [[stage.value, f"{seconds:.3f} s"] for stage, seconds in timer.seconds.items()]
        rows.append(["total", f"{sum(timer.seconds.values()):.3f} s"])
        text = "\n".join(part for part in (text, format_table(rows, right=(1,))) if part)
    if to_stdout and text:
        console.note(text)
        text = ""
    return Report("compile", facts, text, warnings=archive.notes)


class _Timer:
    """Passes events on, and keeps the time of each stage."""

    def __init__(self, forward: OnProgress | None) -> None:
        from time import perf_counter

        self.seconds: dict[Stage, float] = {}
        self._forward = forward
        self._clock = perf_counter
        self._last = perf_counter()

    def __call__(self, event: ProgressEvent) -> None:
        if event.seconds is not None:
            self.seconds[event.stage] = self.seconds.get(event.stage, 0.0) + event.seconds
        elif not event.summary:
            self._last = self._clock()
        if self._forward is not None:
            self._forward(event)

    def since_last(self) -> float:
        """Seconds since the last stage began."""
        return self._clock() - self._last
