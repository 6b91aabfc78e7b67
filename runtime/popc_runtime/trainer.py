"""Training epoch after epoch: feed the samples, watch the loss, keep checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from popc_runtime.data.batches import Batches
from popc_runtime.data.shared_samples import whole_result
from popc_runtime.errors import (
    CheckpointError,
    DeviceError,
    ResourceError,
    SpokenHint,
    UsageError,
)
from popc_runtime.executable import Executable
from popc_runtime.format import StreamDirection
from popc_runtime.ground.frozen import field, frozen
from popc_runtime.groups import once
from popc_runtime.kernels.core.stored import floats_of
from popc_runtime.process.files import remove_remains, require_room_for
from popc_runtime.process.interrupts import uninterrupted

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Checkpoints", "EpochRecord", "Evaluate", "Progress", "Trainer"]

_SUFFIX: Final = ".safetensors"
_REMEDIES: Final = "lower the learning rate, clip gradients, or"
_WHY: Final = "to find the first op that goes wrong"

# Called after each epoch; gives numbers by name, such as the accuracy on other data.
Evaluate: TypeAlias = Callable[[Executable], Mapping[str, float]]


@frozen
class EpochRecord:
    """One epoch: its number (from 1), the mean loss, seconds, and what the evaluation gave."""

    epoch: int
    loss: float
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


@frozen
class Progress:
    """The progress of a training; checkpoints hold it.

    Attributes:
        epoch: Epochs that are finished.
        step: Steps of the next epoch that are finished.
        losses: The losses of these steps.
        history: The finished epochs.
        seed: What the order of the samples follows from, together with the epoch.
        samples, samples_per_step: Those of the epoch, where steps of it are finished.
    """

    epoch: int = 0
    step: int = 0
    losses: tuple[float, ...] = ()
    history: tuple[EpochRecord, ...] = ()
    seed: int = 0
    samples: int = 0
    samples_per_step: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**asdict(self), "losses": list(self.losses)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Progress:
        """The record that `to_dict` gave.

        Raises:
            CheckpointError: it is something else.
        """
        try:
            return cls(
                int(data["epoch"]),
                int(data["step"]),
                tuple(map(float, data["losses"])),
                tuple(EpochRecord(**record) for record in data["history"]),
                int(data["seed"]),
                int(data.get("samples", 0)),
                int(data.get("samples_per_step", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint has no valid record of the training's progress: {error}",
                hint="load only its weights with Executable.state.load_checkpoint",
            ) from error


class Checkpoints:
    """A folder of checkpoints: ``latest``, ``best``, and nothing half-written."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, name: str) -> Path:
        """The file of a checkpoint."""
        return self.folder / f"{name}{_SUFFIX}"

    def save(self, executable: Executable, name: str, progress: Progress) -> Path:
        """Write or replace a checkpoint.

        Raises:
            ResourceError: it cannot be written.
        """
        once(executable.group, "the folder of checkpoints", self._make_folder)
        executable.state.save_checkpoint(self.path(name), progress.to_dict())
        return self.path(name)

    def prepare(self) -> None:
        """Make sure that checkpoints can be written, and remove what a killed training left.

        Raises:
            ResourceError: they cannot.
        """
        self._make_folder()
        for name in ("latest", "best"):
            remove_remains(self.path(name))
        require_room_for(self.path("latest"))

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResourceError(
                f"cannot create the folder {self.folder}: {error.strerror or error}",
                subject=str(self.folder),
            ) from error

    def load(self, executable: Executable, name: str = "latest") -> Progress:
        """Restore a checkpoint.

        Raises:
            UsageError: there is none.
            CheckpointError, ResourceError: it does not fit, or cannot be read.
        """
        path = self.path(name)
        once(executable.group, "whether there is a checkpoint", partial(_require, path))
        return Progress.from_dict(executable.state.load_checkpoint(path))


def _require(path: Path) -> None:
    if not path.exists():
        raise UsageError(
            f"there is no checkpoint {path}", subject=str(path), hint="start without resuming"
        )


class Trainer:
    """Runs a training program over a data set.

    trainer = Trainer(executable, {"x": images, "label": labels})
    for record in trainer.run(epochs=5):
        print(record.epoch, record.loss)

    Ctrl-C takes effect between two steps, so that what the device holds can be saved.  A second one
    takes effect at once.

    Attributes:
        results: What the last step returned, by name.
        within_step: Whether the last step was broken off: then the device holds neither what it
            held before nor what it would have held afterwards.
    """

    def __init__(
        self,
        executable: Executable,
        data: Mapping[str, npt.ArrayLike],
        *,
        shuffle: bool = True,
        seed: int = 0,
        progress: Progress | None = None,
        evaluate: Evaluate | None = None,
        on_step: Callable[[int, int, float], object] | None = None,
    ) -> None:
        """Check that the program trains and that the data fits it.

        Args:
            executable: A program that trains.
            data: Arrays by input: see `Batches`.  Where several processes run the replicas, all
                are given the same, and divide it among themselves.
            shuffle: Whether the samples come in another order in each epoch.
            seed: What the order follows from.
            progress: Where to go on, as `Checkpoints.load` gives it.
            evaluate: Called after each epoch.
            on_step: Called after each step with its number within the epoch (from 1), the number
                of steps of an epoch, and the loss.

        Raises:
            UsageError: the program does not train, or ``progress`` is from the middle of an epoch
                over other samples.
            InputMismatchError: the data does not fit.
        """
        training = executable.manifest.training
        if training is None:
            raise UsageError(
                "the archive does not train",
                hint="compile the model as a program that trains",
            )
        self.executable = executable
        self._program = executable.programs[0]  # others evaluate
        self.batches = Batches(executable, data)
        start = progress or Progress(seed=seed)
        self._require_same_samples(start)
        self._seed = start.seed
        self._epochs, self._history = start.epoch, list(start.history)
        self._losses = list(start.losses)
        self._loss = training.loss
        self._loss_type = executable.stream(training.loss, StreamDirection.OUTPUT).dtype
        self._shuffle = shuffle
        self._evaluate = evaluate
        self._on_step = on_step
        self.within_step = False
        self.results: Mapping[str, Any] = {}
        if executable.group is not None:
            executable.group.agree("how they train", self._facts(data))

    def _facts(self, data: Mapping[str, npt.ArrayLike]) -> dict[str, str]:
        """The facts that all processes must have in common, as texts by name."""
        hashes = {
            f"data {name}": sha256(np.ascontiguousarray(array).data).hexdigest()[:16]
            for name, array in data.items()
        }
        return {
            "epochs before": str(self._epochs),
            "steps before": str(len(self._losses)),
            "seed": str(self._seed),
            "shuffle": str(self._shuffle),
            **hashes,
        }

    @property
    def progress(self) -> Progress:
        """The progress so far."""
        losses, history = tuple(self._losses), tuple(self._history)
        sizes = (self.batches.samples, self.batches.samples_per_step) if losses else (0, 0)
        return Progress(self._epochs, len(losses), losses, history, self._seed, *sizes)

    def run(self, epochs: int) -> Iterator[EpochRecord]:
        """Train until ``epochs`` epochs are finished, those before a resumption included.

        Raises:
            DeviceError: the loss is not finite.
        """
        while self._epochs < epochs:
            yield self._epoch()

    def _epoch(self) -> EpochRecord:
        start = perf_counter()
        order = np.random.default_rng([self._seed, self._epochs]) if self._shuffle else None
        for batch in self.batches.steps(order, skip=len(self._losses)):
            with uninterrupted() as is_interrupted:
                self.within_step = True
                loss, elsewhere = self._step(batch, is_interrupted)
                self._losses.append(loss)
                self.within_step = False
            if elsewhere:
                raise KeyboardInterrupt
            if self._on_step is not None:
                self._on_step(len(self._losses), len(self.batches), loss)
        metrics = dict(self._evaluate(self.executable)) if self._evaluate else {}
        mean = float(np.mean(self._losses))
        record = EpochRecord(self._epochs + 1, mean, perf_counter() - start, metrics)
        with uninterrupted():
            self._epochs += 1
            self._losses = []
            self._history.append(record)
        return record

    def _require_same_samples(self, start: Progress) -> None:
        now = (self.batches.samples, self.batches.samples_per_step)
        if start.step and start.samples and (start.samples, start.samples_per_step) != now:
            raise UsageError(
                f"the checkpoint is from the middle of an epoch over {start.samples:,} samples in "
                f"steps of {start.samples_per_step:,}, but the data has {now[0]:,} in steps of "
                f"{now[1]:,}",
                hint="finish the epoch with the same data and archive, or start again with the "
                "weights only (state.load_checkpoint)",
            )

    def _step(
        self, batch: Mapping[str, Any], is_interrupted: Callable[[], bool]
    ) -> tuple[float, bool]:
        """The loss of all replicas, and whether Ctrl-C has come in any of their processes."""
        where = f"step {len(self._losses) + 1} of epoch {self._epochs + 1}"
        try:
            results = self._program.run(batch)
        except DeviceError as error:
            error.details = (*error.details, f"in {where}")
            raise
        self.results = results
        note = bytes([is_interrupted()])
        losses, notes = whole_result(self._program, self._loss, results[self._loss], note)
        values = floats_of(losses, self._loss_type)
        loss = float(np.mean(values, dtype=np.float64))
        if not isfinite(loss):
            raise DeviceError(
                f"the loss became {loss} in {where}",
                subject=self._loss,
                hint=SpokenHint(
                    f"{_REMEDIES} load the archive with floating_point_checks=True {_WHY}",
                    f"{_REMEDIES} train with --fp-checks {_WHY}",
                ),
            )
        return loss, any(notes)
