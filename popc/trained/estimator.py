"""One object that trains, evaluates, predicts with and exports a model, as TensorFlow's does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import popc_runtime
from popc.caching.models import compile_model
from popc.trained.evaluation import Evaluation
from popc.trained.export import export_onnx, load_weights
from popc.trained.hooks import EndOfTraining, Hook, StepWatch
from popc.trained.metrics import Metric, host_metrics
from popc.trained.numbered import NumberedCheckpoints, require_positive
from popc_runtime import Executable, VariableRole
from popc_runtime.data.batches import Batches
from popc_runtime.errors import UsageError
from popc_runtime.format import EVALUATION_PROGRAM, Array, StreamDirection
from popc_runtime.groups import once
from popc_runtime.trainer import Checkpoints, EpochRecord, Progress, Trainer

if TYPE_CHECKING:
    from typing import Unpack

    import numpy.typing as npt

    from popc.frontend import ModelSource
    from popc.requests import SeveralKeywords
    from popc_runtime.groups import Group

__all__ = ["Estimator"]

_ARCHIVE: Final = "model.popx"
_LATEST: Final = "latest"


class Estimator:
    """A model, the program that trains it and the one that runs it, and a folder of checkpoints.

        estimator = popc.Estimator("model.onnx", "runs/1", train="train.toml")
        estimator.train({"x": images, "label": labels}, steps=1000)
        estimator.evaluate({"x": images, "label": labels}, accuracy=("logits", "label"))
        logits = [sample["logits"] for sample in estimator.predict({"x": images})]

    A step is a run of the program.  Training goes on where the latest checkpoint of the folder
    ended, bit for bit, also in another process.

    Attributes:
        folder: Where the archive (model.popx) and the checkpoints are.
        executable: The program that trains; ``executable.state`` are its variables.
        step: How many steps have been made, in all trainings.
        save_every: After how many steps, or seconds, a checkpoint is written.
        results: What the last step returned, by name.
    """

    def __init__(
        self,
        model: ModelSource,
        folder: str | os.PathLike[str],
        *,
        save_every_steps: int | None = None,
        save_every_seconds: float | None = None,
        keep: int = 5,
        keep_every_hours: float | None = None,
        warm_start: str | os.PathLike[str] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        host_calls: Mapping[str, Callable[..., Any]] | None = None,
        hooks: Sequence[Hook] = (),
        group: Group | None = None,
        **keywords: Unpack[SeveralKeywords],
    ) -> None:
        """Compile the model, and restore the latest checkpoint of ``folder`` if there is one.

        Args:
            model: As for `popc.compile`.
            folder: Made if it is missing.
            save_every_steps: After how many steps to write a checkpoint.
            save_every_seconds: After which time to write one.  One is written at the end anyway.
            keep: How many numbered checkpoints (step-N) to keep beside the latest; 0: all.
            keep_every_hours: After which time one of those that go stays for good.
            warm_start: An ONNX model whose weights to begin with, if there is no checkpoint.
            shuffle: Whether samples come in another order in each epoch.
            seed: Of that order.
            host_calls: Functions that the program calls: see `popc_runtime.load`.
            hooks: Called after each step of all trainings.
            group: The processes that divide replicas among themselves: each makes an estimator,
                and the first one compiles, writes and reads the folder.
            **keywords: Of `popc.compile`; ``train``, or ``loss`` and ``optimizer``, are needed.

        Raises:
            UsageError: the keywords do not train the model, or a number is out of range.
            PopcError: see `popc.compile`, `popc_runtime.load` and `popc.load_weights`.
        """
        require_positive(save_every_steps, save_every_seconds, keep)
        if not any(keywords.get(name) is not None for name in ("train", "loss", "optimizer")):
            raise UsageError(
                "an Estimator trains: it needs to know the loss and the optimizer",
                hint='give train="train.toml", or loss={...} and optimizer={...}; a model that is '
                "only run needs popc.load",
            )
        self.folder = Path(folder)
        self._checkpoints = Checkpoints(self.folder)
        self._numbered = NumberedCheckpoints(self.folder, keep, keep_every_hours)
        self._group, self._hooks = group, tuple(hooks)
        settings: Any = {"evaluate": True, **keywords}
        once(group, "the archive of the estimator", partial(self._compile, model, settings))
        self.executable: Executable = popc_runtime.load(
            self.folder / _ARCHIVE, host_calls=host_calls, group=group
        )
        self.save_every = (save_every_steps, save_every_seconds)
        self._shuffle = shuffle
        self._progress, self.step = Progress(seed=seed), 0
        self.results: Mapping[str, Array] = {}
        if self.told_by_first(
            "whether there is a checkpoint", lambda: self.latest_checkpoint is not None
        ):
            self.restore()
        elif warm_start is not None:
            load_weights(self.executable, warm_start, ignore_unknown=True)

    def _compile(self, model: ModelSource, settings: Any) -> None:
        self._checkpoints.prepare()
        compile_model(model, **settings).save(self.folder / _ARCHIVE, force=True)

    def told_by_first(self, what: str, question: Callable[[], bool]) -> bool:
        """The answer of the first process, for all that train together."""
        if self._group is None:
            return question()
        return bool(self._group.once(what, lambda: b"1" if question() else b""))

    def train(
        self,
        data: Mapping[str, npt.ArrayLike],
        *,
        steps: int | None = None,
        max_steps: int | None = None,
        hooks: Sequence[Hook] = (),
    ) -> float | None:
        """Train for ``steps`` more steps, or until ``max_steps`` have been made in all.

        Args:
            data: Arrays by input: see `popc_runtime.trainer.Trainer`.
            steps: How many more; without either, one epoch.
            max_steps: How many in all; nothing happens if that many have been made already.
            hooks: Called after each step.

        Returns:
            The loss of the last step; ``None`` if there was none to make.

        Raises:
            UsageError: both numbers are given, or one is negative.
            InputMismatchError, DeviceError: see `Trainer`.
        """
        if steps is not None and max_steps is not None:
            raise UsageError("steps and max_steps exclude each other")
        if min(steps or 0, max_steps or 0) < 0:
            raise UsageError("the number of steps must not be negative")
        watch = StepWatch(self, (*self._hooks, *hooks))
        trainer = self._trainer(data, watch)
        more = len(trainer.batches) if steps is None else steps
        watch.last = self.step + more if max_steps is None else max_steps
        if self.step >= watch.last:
            return None
        self._run(trainer, watch, self._progress.epoch + watch.last)  # one step an epoch or more
        return watch.loss

    def fit(
        self,
        data: Mapping[str, npt.ArrayLike],
        *,
        epochs: int = 1,
        validation: Mapping[str, npt.ArrayLike] | None = None,
        accuracy: tuple[str, str] | None = None,
    ) -> tuple[EpochRecord, ...]:
        """Train for whole epochs, as Keras does: what each came to, with metrics of other data.

        Raises:
            UsageError, InputMismatchError, DeviceError: see `train` and `evaluate`.
        """
        evaluate = None if validation is None else self._evaluation(validation, accuracy)
        watch = StepWatch(self, self._hooks)
        trainer = self._trainer(data, watch, evaluate)
        return self._run(trainer, watch, self._progress.epoch + epochs)

    def _trainer(
        self,
        data: Mapping[str, npt.ArrayLike],
        watch: StepWatch,
        evaluate: Evaluation | None = None,
    ) -> Trainer:
        watch.trainer = Trainer(
            self.executable,
            data,
            shuffle=self._shuffle,
            progress=self._progress,
            evaluate=evaluate,
            on_step=watch,
        )
        return watch.trainer

    def _run(self, trainer: Trainer, watch: StepWatch, epochs: int) -> tuple[EpochRecord, ...]:
        records: list[EpochRecord] = []
        watch.begin()
        try:
            with suppress(EndOfTraining):
                records.extend(trainer.run(epochs))
        finally:
            self._progress = trainer.progress
        self.save()
        watch.end()
        return tuple(records)

    @property
    def latest_checkpoint(self) -> Path | None:
        """The file of the latest checkpoint; ``None`` if there is none."""
        path = self._checkpoints.path(_LATEST)
        return path if path.exists() else None

    def save(self, progress: Progress | None = None) -> Path:
        """Write a checkpoint, numbered and as the latest; old ones go.

        Raises:
            ResourceError: it cannot be written.
        """
        told = {**(progress or self._progress).to_dict(), "global_step": self.step}
        for name in (self._numbered.name(self.step), _LATEST):
            self.executable.state.save_checkpoint(self._checkpoints.path(name), told)
        if self._group is None or self._group.rank == 0:
            self._numbered.remove_old()
        return self._checkpoints.path(_LATEST)

    def restore(self, step: int | None = None) -> None:
        """Go back to the latest checkpoint, or to the one after so many steps.

        Raises:
            UsageError: there is none.
            CheckpointError, ResourceError: it does not fit, or cannot be read.
        """
        path = self._checkpoints.path(_LATEST if step is None else self._numbered.name(step))
        if not self.told_by_first("whether the checkpoint is there", path.exists):
            there = ", ".join(file.stem for file in self._numbered.files())
            raise UsageError(
                f"there is no checkpoint {path}", subject=str(path), hint=f"there are: {there}"
            )
        told = self.executable.state.load_checkpoint(path)
        self._progress = Progress.from_dict(told)
        self.step = int(told.get("global_step", 0))

    def evaluate(
        self,
        data: Mapping[str, npt.ArrayLike],
        *,
        steps: int | None = None,
        accuracy: tuple[str, str] | None = None,
        metrics: Mapping[str, Metric] | None = None,
    ) -> dict[str, float]:
        """The means of outputs that are single numbers, accuracy, metrics, and ``global_step``.

        Args:
            data: Arrays by input of the model, and the labels.
            steps: How many runs to make; all of the data if not given.
            accuracy: The name of an output with scores, and of the array with the labels.
            metrics: Functions by name: of the outputs of all samples, and the data, to a number.

        Raises:
            UsageError, InputMismatchError: see `popc.trained.evaluation.Evaluation`.
        """
        stream, outputs = self._program.stream, self._program.outputs
        rows = [o.name for o in outputs if stream(o.name, StreamDirection.OUTPUT).shape]
        per_run = self._batches(data).samples_per_step
        samples: list[Mapping[str, Array]] = []

        def keep(results: Mapping[str, Array]) -> None:
            samples.extend(self._samples({name: results[name] for name in rows}, per_run))

        evaluation = self._evaluation(self._first(data, steps), accuracy)
        found = evaluation(self.executable, keep if metrics else None)
        own = host_metrics(metrics or {}, samples, data)
        return {**found, **own, "global_step": float(self.step)}

    def predict(
        self,
        data: Mapping[str, npt.ArrayLike],
        *,
        steps: int | None = None,
        outputs: Sequence[str] | None = None,
        single: bool = True,
    ) -> Iterator[dict[str, Array]]:
        """The outputs of the model with the weights as they are, sample by sample.

        Args:
            data: Arrays by input of the model.
            steps: How many runs to make; all of the data if not given.
            outputs: Names of those that are wanted; all if not given.
            single: Whether to give the results of each sample; otherwise, those of each run.

        Raises:
            UsageError: the model has no such output, or ``single`` does not go with one.
            InputMismatchError: the data does not fit.
        """
        program = self._program
        names = [spec.name for spec in program.outputs]
        unknown = sorted(set(outputs or ()) - set(names))
        if unknown:
            raise UsageError(
                f"the model has no output {unknown[0]!r}", hint=f"it has {', '.join(names)}"
            )
        wanted = names if outputs is None else list(outputs)
        batches = self._batches(data)
        for number, batch in enumerate(batches.steps()):
            if steps is not None and number >= steps:
                return
            found = program.run(batch)
            results = {name: found[name] for name in wanted}
            yield from self._samples(results, batches.samples_per_step) if single else (results,)

    def _samples(self, results: Mapping[str, Array], count: int) -> Iterator[dict[str, Array]]:
        """The results of one run, sample by sample."""
        rows: dict[str, Array] = {}
        for name, array in results.items():
            shape = self._program.stream(name, StreamDirection.OUTPUT).shape
            if not shape or array.size != count * int(np.prod(shape[1:])):
                raise UsageError(
                    f"{name} {list(array.shape)} does not have a part for each of {count} samples",
                    hint="single=False gives results as they are, outputs=[...] leaves some out",
                )
            rows[name] = array.reshape(count, *shape[1:])
        yield from ({name: array[row] for name, array in rows.items()} for row in range(count))

    def export(
        self, target: str | os.PathLike[str], *, inference: bool = True, force: bool = False
    ) -> Path:
        """Write the model with the weights as they are: see `popc.export_onnx`.

        Raises:
            PopcError: see there.
        """
        given: Any = {"state": self.executable, "inference": inference, "force": force}
        return export_onnx(self.folder / _ARCHIVE, target, **given)

    def variables(self) -> dict[str, Array]:
        """The weights by name, as they are."""
        return self.executable.state.read(VariableRole.WEIGHT)

    @property
    def _program(self) -> Executable:
        """The program that runs the model, with the weights of the one that trains it."""
        names = [program.name for program in self.executable.programs]
        if EVALUATION_PROGRAM not in names:
            raise UsageError(
                "the estimator was made with evaluate=False, so it only trains",
                hint="leave out evaluate",
            )
        return self.executable.program(EVALUATION_PROGRAM)

    def _batches(self, data: Mapping[str, npt.ArrayLike]) -> Batches:
        """The parts of the data that the model reads, run by run."""
        names = {spec.name for spec in self._program.inputs}
        return Batches(self._program, {k: v for k, v in data.items() if k in names})

    def _evaluation(
        self, data: Mapping[str, npt.ArrayLike], accuracy: tuple[str, str] | None
    ) -> Evaluation:
        _ = self._program  # says if there is none
        return Evaluation(self.executable, data, accuracy)

    def _first(
        self, data: Mapping[str, npt.ArrayLike], steps: int | None
    ) -> Mapping[str, npt.ArrayLike]:
        """The samples of the first runs."""
        if steps is None:
            return data
        arrays = {name: np.asarray(value) for name, value in data.items()}
        batches = self._batches(arrays)
        count = steps * batches.samples_per_step
        return {
            name: array[:count] if array.ndim and len(array) == batches.samples else array
            for name, array in arrays.items()
        }
