"""The settings on the command line of popc train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import frozen

__all__ = ["TrainSettings"]


@frozen
class TrainSettings:
    """The options of the verb, by name."""

    archive: Path
    data: Path
    epochs: int
    checkpoint: Path | None
    resume: bool
    every: int | None
    rates: tuple[str, ...]
    shuffle: bool
    seed: int | None
    weights: Path | None
    eval_archive: Path | None
    eval_data: Path | None
    accuracy: str | None
    patience: int | None
    target: str | None
    log: Path | None
    plot: Path | None
    export: Path | None
    threads: int | None
    fp_checks: bool | None
    host_calls: Mapping[str, Callable[..., Any]]
    force: bool

    def loading(self) -> dict[str, Any]:
        """The keywords of `popc_runtime.load`."""
        return {
            "seed": self.seed,
            "threads": self.threads,
            "floating_point_checks": self.fp_checks,
            "host_calls": self.host_calls,
        }

    def check(self) -> None:
        """Raise UsageError if options need or exclude each other; lists every problem."""
        problems = []
        if self.checkpoint is None:
            problems += [
                f"--{name} needs --checkpoint DIR"
                for name, given in (("resume", self.resume), ("every", self.every))
                if given
            ]
        if self.resume and self.weights:
            problems.append("--resume and --weights exclude each other: both say where to start")
        results = [path for path in (self.log, self.plot, self.export) if path is not None]
        if len(set(results)) < len(results):
            problems.append("--log, --plot and --export must be different files")
        if problems:
            first, *rest = problems
            raise UsageError(first, details=tuple(rest))

    def check_results(self) -> None:
        """Raise PopcError if a file that is asked for cannot be written."""
        from popc_runtime.process.files import refuse_to_replace, require_room_for

        for path in (self.log, self.plot, self.export):
            if path is not None:
                refuse_to_replace(path, force=self.force)
                require_room_for(path)

    def of_all_processes(self) -> dict[str, str]:
        """The options that must be the same in all processes of a group, as texts."""
        files = {"archive", "data", "checkpoint", "weights", "eval_archive", "eval_data"}
        files |= {"log", "plot", "export", "threads", "host_calls"}
        return {
            field.name: str(getattr(self, field.name))
            for field in fields(self)
            if field.name not in files
        }

    def check_evaluation(self, *, evaluates: bool) -> None:
        """Raise UsageError if there is no program to evaluate with; lists every problem.

        ``evaluates`` says whether the archive has one beside the training step.
        """
        wanted = {"eval-data": self.eval_data, "accuracy": self.accuracy}
        problems = [f"--{name} needs --eval ARCHIVE" for name, given in wanted.items() if given]
        if problems and self.eval_archive is None and not evaluates:
            first, *rest = problems
            raise UsageError(
                first, details=tuple(rest), hint="or compile the archive with --evaluate"
            )

    def learning_rates(self) -> dict[int, float]:
        """Learning rates by the epoch (from 1) that they begin in.

        Raises:
            UsageError: one is malformed.
        """
        rates: dict[int, float] = {}
        for item in self.rates:
            rate, _, epoch = item.partition("@")
            try:
                start, value = int(epoch or 1), float(rate)
            except ValueError:
                raise UsageError(
                    f"--learning-rate {item}: expected RATE or RATE@EPOCH, as in 0.01@3"
                ) from None
            if start < 1:
                raise UsageError(f"--learning-rate {item}: epochs count from 1")
            rates[start] = value
        return rates

    def wanted(self, *, evaluates: bool) -> tuple[str, float] | None:
        """The number at which to stop: its name and value; ``evaluates`` as above.

        Raises:
            UsageError: it is malformed.
        """
        if self.target is None:
            return None
        name, _, value = self.target.partition("=")
        if value and name != "loss" and self.eval_archive is None and not evaluates:
            raise UsageError(
                f"--target {name}: no such metric", hint="only loss is known; --eval adds more"
            )
        try:
            return name, float(value)
        except ValueError:
            raise UsageError(
                f"--target {self.target}: expected NAME=VALUE, as in accuracy=0.97"
            ) from None
