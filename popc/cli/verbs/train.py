"""popc train."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from popc.cli.console import Console
from popc.cli.engine_options import calls_option, threads_option
from popc.cli.report import Report, counted, format_seconds, format_table
from popc.cli.train_settings import TrainSettings
from popc_runtime.errors import UsageError

if TYPE_CHECKING:
    from popc_runtime import Executable
    from popc_runtime.groups import Group
    from popc_runtime.trainer import Checkpoints, EpochRecord, Evaluate, Progress, Trainer

__all__ = ["command"]

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NEW_FILE = click.Path(path_type=Path, dir_okay=False)
_SHOW_EVERY = 0.1  # seconds between two updates of the progress line


@click.command("train")
@click.argument("archive", type=_FILE)
@click.option(
    "-d", "--data", type=_FILE, required=True, help="A .npz file with an array per input."
)
@click.option(
    "-e", "--epochs", type=click.IntRange(min=1), default=1, show_default=True,
    help="Number of epochs; when resuming, earlier ones count.",
)  # fmt: skip
@click.option(
    "-c", "--checkpoint", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Keep checkpoints here: latest, and best if there is an evaluation.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on from the latest checkpoint.")
@click.option(
    "--every", type=click.IntRange(min=1), metavar="STEPS",
    help="Also write a checkpoint every N steps, not only after each epoch.",
)  # fmt: skip
@click.option(
    "--learning-rate", "rates", multiple=True, metavar="RATE[@EPOCH]",
    help="The learning rate, from an epoch on; it must have been compiled as changeable.",
)  # fmt: skip
@click.option(
    "--shuffle/--no-shuffle",
    default=True,
    show_default=True,
    help="Shuffle the samples before every epoch.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the order of samples and of the device's random numbers; by default, what the "
    "archive was compiled for.",
)
@click.option("--weights", type=_FILE, help="Start with the weights of this ONNX model.")
@click.option(
    "--eval", "eval_archive", type=_FILE, metavar="ARCHIVE",
    help="Evaluate this archive (compiled with constant_weights=false) after each epoch; an "
    "archive that was compiled with --evaluate needs none.",
)  # fmt: skip
@click.option("--eval-data", type=_FILE, help="The data to evaluate on; --data by default.")
@click.option(
    "--accuracy", metavar="OUTPUT=LABELS",
    help="Evaluate the share of samples whose label has the highest score.",
)  # fmt: skip
@click.option(
    "--patience", type=click.IntRange(min=1), metavar="EPOCHS",
    help="Stop after so many epochs in which accuracy, evaluated loss or loss did not improve.",
)  # fmt: skip
@click.option("--target", metavar="NAME=VALUE", help="Stop at accuracy=0.97 or loss=0.1.")
@click.option("--log", type=_NEW_FILE, help="Write the history as CSV.")
@click.option("--plot", type=_NEW_FILE, help="Draw the history as PNG (needs popc[plot]).")
@click.option("--export", type=_NEW_FILE, help="Write the trained model as ONNX.")
@threads_option("step")
@calls_option
@click.option(
    "--fp-checks/--no-fp-checks", default=None,
    help="Stop at the first op that makes NaN or infinity of ordinary numbers, and name it; "
    "by default, as the archive was compiled.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.pass_obj
def command(console: Console, /, **options: Any) -> Report | None:
    """Train ARCHIVE, compiled with --train, on a data set.

    \b
    popc compile model.onnx --train train.toml -o train.popx
    popc train train.popx --data digits.npz --epochs 5 --checkpoint checkpoints/
    popc train train.popx --data digits.npz --epochs 9 --checkpoint checkpoints/ --resume
    mpiexec -n 2 popc train train.popx --data digits.npz --epochs 5

    Processes that mpiexec has started divide the replicas of the archive among themselves.
    """
    settings = TrainSettings(**options)
    settings.check()
    with _joined() as group:
        if group is None:
            return _Run(console, settings).report()
        group.agree("their options", settings.of_all_processes())
        if group.rank == 0:
            return _Run(console, settings, group).report()
        _Run(replace(console, quiet=True), settings, group).report()
        return None


def _joined() -> AbstractContextManager[Group | None]:
    """The processes that mpiexec has started, or ``None`` if there is only this one."""
    from popc_runtime.groups import is_launched, join

    return join() if is_launched() else nullcontext()


class _Run:
    """One training from the command line."""

    def __init__(
        self, console: Console, settings: TrainSettings, group: Group | None = None
    ) -> None:
        import popc_runtime
        from popc.inputs.arguments import read_arrays
        from popc.trained.log import require_plotting
        from popc_runtime.format import EVALUATION_PROGRAM
        from popc_runtime.groups import once
        from popc_runtime.trainer import Trainer

        if settings.plot is not None:
            require_plotting()
        once(group, "the files to write", settings.check_results)
        self.console = console
        self.group = group
        self.settings = settings
        self.rates = settings.learning_rates()
        self.shown = 0.0
        self.executable: Executable = popc_runtime.load(
            settings.archive, group=group, **settings.loading()
        )
        programs = (program.name for program in self.executable.programs)
        self.evaluates = EVALUATION_PROGRAM in programs
        settings.check_evaluation(evaluates=self.evaluates)
        self.target = settings.wanted(evaluates=self.evaluates)
        self.checkpoints = self._checkpoints()
        data = read_arrays(settings.data)
        evaluate = self._evaluation(data)
        known = {spec.name for spec in self.executable.inputs}
        self.trainer: Trainer = Trainer(
            self.executable,
            {name: array for name, array in data.items() if name in known},
            shuffle=settings.shuffle,
            seed=self.executable.manifest.seed if settings.seed is None else settings.seed,
            progress=self._start(),
            evaluate=evaluate,
            on_step=self._on_step(),
        )

    def _start(self) -> Progress | None:
        """Take the weights of another model, or a checkpoint with how far that had come."""
        if self.settings.weights is not None:
            from popc.trained.export import load_weights

            load_weights(self.executable, self.settings.weights, ignore_unknown=True)
            if self.group is not None:
                self.executable.state.check_equal_across_replicas()
        if not self.settings.resume or self.checkpoints is None:
            return None
        progress = self.checkpoints.load(self.executable)
        self.console.note(f"resuming after epoch {progress.epoch}, step {progress.step}")
        return progress

    def _checkpoints(self) -> Checkpoints | None:
        from popc_runtime.groups import once
        from popc_runtime.trainer import Checkpoints

        folder = self.settings.checkpoint
        if folder is None:
            return None
        checkpoints = Checkpoints(folder)
        once(self.group, "where checkpoints go", partial(self._prepare, checkpoints))
        return checkpoints

    def _prepare(self, checkpoints: Checkpoints) -> None:
        folder = checkpoints.folder
        if checkpoints.path("latest").exists() and not (
            self.settings.resume or self.settings.force
        ):
            raise UsageError(
                f"{folder} holds checkpoints already",
                subject=str(folder),
                hint="--resume goes on from them, --force replaces them",
            )
        checkpoints.prepare()

    def _evaluation(self, data: dict[str, Any]) -> Evaluate | None:
        from popc.inputs.arguments import read_arrays
        from popc.trained.evaluation import Evaluation

        settings = self.settings
        own = self.evaluates and (settings.eval_data is not None or settings.accuracy is not None)
        if settings.eval_archive is None and not own:
            return None
        other = settings.eval_data
        accuracy = None
        if settings.accuracy is not None:
            output, separator, labels = settings.accuracy.partition("=")
            if not separator:
                raise UsageError(f"--accuracy {settings.accuracy}: expected OUTPUT=LABELS")
            accuracy = (output, labels)
        arrays = data if other is None else read_arrays(other)
        return Evaluation(settings.eval_archive or self.executable, arrays, accuracy)

    def report(self) -> Report:
        """Train, and tell how it went; what has been learnt is kept whatever happens."""
        try:
            self._train()
        except KeyboardInterrupt:
            self._keep()
            raise
        history = self.trainer.progress.history
        written = self._write(history)
        seconds = sum(record.seconds for record in history)
        lines = [_table(history), f"{counted(len(history), 'epoch')} in {format_seconds(seconds)}"]
        lines += [f"wrote {path}" for path in written]
        data = {
            "history": [
                {"epoch": r.epoch, "loss": r.loss, "seconds": r.seconds, **r.metrics}
                for r in history
            ],
            "files": written,
        }
        return Report("train", data, "\n".join(lines))

    def _keep(self) -> None:
        """Save what an interrupted training has come to."""
        if self.checkpoints is None:
            return
        if self.trainer.within_step:
            self.console.note("\ninterrupted within a step: the last checkpoint stays as it is")
            return
        if not self.trainer.progress.step:
            self._save_best()
        path = self._save("latest")
        self.console.note(f"\ninterrupted; --resume goes on from {path}")

    def _train(self) -> None:
        before = self.trainer.progress
        if not before.step and self._is_enough(before.history):
            return
        self._set_rate(before.epoch + 1, resumed=True)
        for record in self.trainer.run(self.settings.epochs):
            self._end_line(record)
            self._save_best()
            self._save("latest")
            if self._is_enough(self.trainer.progress.history):
                break
            self._set_rate(record.epoch + 1)

    def _is_enough(self, history: tuple[EpochRecord, ...]) -> bool:
        patience = self.settings.patience
        if history and patience is not None and _waited(history) >= patience:
            self.console.note(f"no improvement for {patience} epochs: stopping")
            return True
        if not history or self.target is None:
            return False
        name, wanted = self.target
        values = {"loss": history[-1].loss, **history[-1].metrics}
        if name not in values:
            raise UsageError(
                f"--target {name}: no such metric", hint=f"choose from {', '.join(values)}"
            )
        return values[name] >= wanted if name == "accuracy" else values[name] <= wanted

    def _set_rate(self, epoch: int, *, resumed: bool = False) -> None:
        begun = [start for start in self.rates if start <= epoch]
        if begun and (resumed or epoch in self.rates):
            self.executable.state.set_hyper_parameters(learning_rate=self.rates[max(begun)])

    def _save_best(self) -> None:
        """Save what the last epoch has come to, if it was evaluated and is the best."""
        history = self.trainer.progress.history
        if history and history[-1].metrics and not _waited(history):
            self._save("best")

    def _save(self, name: str) -> Path | None:
        if self.checkpoints is None:
            return None
        return self.checkpoints.save(self.executable, name, self.trainer.progress)

    def _write(self, history: tuple[EpochRecord, ...]) -> list[str]:
        from popc.trained.export import export_onnx
        from popc.trained.log import write_csv, write_png
        from popc_runtime.groups import once

        settings = self.settings
        values = self.executable.state.read() if settings.export else {}  # by all processes

        def write() -> None:
            if settings.export is not None:
                export_onnx(settings.archive, settings.export, state=values, force=settings.force)
            if settings.log is not None:
                write_csv(settings.log, history)
            if settings.plot is not None:
                write_png(settings.plot, history)

        once(self.group, "the results", write)
        return [str(path) for path in (settings.log, settings.plot, settings.export) if path]

    # -- progress ----------------------------------------------------------------------------------

    def _on_step(self) -> Callable[[int, int, float], None]:
        live = not self.console.quiet and self.console.progress and sys.stderr.isatty()

        def on_step(step: int, steps: int, loss: float) -> None:
            if self.settings.every and step % self.settings.every == 0:
                self._save("latest")
            if live and (monotonic() - self.shown > _SHOW_EVERY or step == steps):
                self.shown = monotonic()
                done = 20 * step // steps
                epoch = self.trainer.progress.epoch + 1
                bar = "=" * done + " " * (20 - done)
                line = f"\repoch {epoch:<4} [{bar}] {step:,}/{steps:,}  loss {loss:.5g}\x1b[K"
                click.echo(line, nl=False, err=True)

        return on_step

    def _end_line(self, record: EpochRecord) -> None:
        if self.console.quiet or not self.console.progress:
            return
        numbers = {"loss": record.loss, **record.metrics}
        text = "  ".join(f"{name} {value:.5g}" for name, value in numbers.items())
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        click.echo(f"{start}epoch {record.epoch:<4} {record.seconds:7.2f} s  {text}", err=True)


def _table(history: tuple[EpochRecord, ...]) -> str:
    metrics = list(dict.fromkeys(name for record in history for name in record.metrics))
    rows = [["epoch", "loss", "seconds", *metrics]]
    for record in history:
        values = [record.metrics.get(name) for name in metrics]
        rows.append(
            [
                str(record.epoch),
                f"{record.loss:.6g}",
                f"{record.seconds:.2f}",
                *("-" if value is None else f"{value:.6g}" for value in values),
            ]
        )
    return format_table(rows)


def _score(record: EpochRecord) -> float:
    """The score of an epoch, higher if better: accuracy, or minus another metric, or loss."""
    if "accuracy" in record.metrics:
        return record.metrics["accuracy"]
    return -next(iter(record.metrics.values()), record.loss)


def _waited(history: tuple[EpochRecord, ...]) -> int:
    """The number of epochs since the best one."""
    scores = [_score(record) for record in history]
    return len(scores) - 1 - scores.index(max(scores))
