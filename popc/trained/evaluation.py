"""Evaluate a model on a data set between the epochs of its training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

import popc_runtime
from popc_runtime import Executable, VariableRole
from popc_runtime.data.batches import Batches
from popc_runtime.data.shared_samples import whole_result
from popc_runtime.errors import UsageError
from popc_runtime.format import EVALUATION_PROGRAM, Array, StreamDirection
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels.core.stored import floats_of

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

__all__ = ["Evaluation"]


@frozen
class Accuracy:
    """The share of samples whose highest score is that of their label."""

    output: str
    labels: Array


class Evaluation:
    """Runs an inference archive of the same model with the weights as they are.

    Its metrics are the means of its outputs that are single numbers, and, if asked for, the
    accuracy: the share of samples for which the largest element along axis 1 of an output has the
    number that a label says.
    """

    def __init__(
        self,
        archive: str | os.PathLike[str] | Executable,
        data: Mapping[str, npt.ArrayLike],
        accuracy: tuple[str, str] | None = None,
    ) -> None:
        """Load the archive and check the data.

        Args:
            archive: An archive compiled with constant_weights=false or, of one that trains and
                was compiled with ``evaluate``, its executable.
            data: Arrays by input of the archive; the labels may be one more.
            accuracy: The name of an output, and of the array with its labels.

        Raises:
            UsageError: the weights of the archive are constant, or names do not exist.
            InputMismatchError: the data does not fit.
        """
        loaded = archive if isinstance(archive, Executable) else popc_runtime.load(archive)
        self._shares = loaded is archive
        trains = loaded.manifest.training is not None
        self.executable = loaded.program(EVALUATION_PROGRAM) if trains else loaded
        self._weights = [
            spec.name for spec in self.executable.state.specs if spec.role is VariableRole.WEIGHT
        ]
        if not self._weights:
            raise UsageError(
                f"the weights of {archive} are constant, so it cannot evaluate trained weights",
                hint="compile it with constant_weights = false",
            )
        arrays = {name: np.asarray(value) for name, value in data.items()}
        self._accuracy = _find_accuracy(self.executable, arrays, accuracy)
        inputs = {spec.name for spec in self.executable.inputs}
        self._batches = Batches(
            self.executable, {name: array for name, array in arrays.items() if name in inputs}
        )
        self._numbers = [
            spec.name
            for spec in self.executable.outputs
            if not self.executable.stream(spec.name, StreamDirection.OUTPUT).shape
        ]

    def __call__(
        self, trained: Executable, watch: Callable[[Mapping[str, Array]], object] | None = None
    ) -> dict[str, float]:
        """The metrics with the weights of ``trained``; of one's own executable, as they are.

        ``watch`` is given the results of each run, if anybody wants them.

        Raises:
            InputMismatchError: it does not have these weights.
        """
        if not self._shares:
            weights = trained.state.read(VariableRole.WEIGHT)
            known = {name: weights[name] for name in self._weights if name in weights}
            self.executable.state.write(known)
        sums: dict[str, list[float]] = {name: [] for name in self._numbers}
        hits: list[Array] = []
        for step, batch in enumerate(self._batches.steps()):
            found = self.executable.run(batch)
            if watch is not None:
                watch(found)
            results = {
                name: whole_result(self.executable, name, result)[0]
                for name, result in found.items()
                if name in sums or (self._accuracy and name == self._accuracy.output)
            }
            for name, values in sums.items():
                values.append(float(np.mean(self._floats(results, name), dtype=np.float64)))
            if self._accuracy is not None:
                hits.append(self._hits(results, step))
        metrics = {name: float(np.mean(values)) for name, values in sums.items()}
        if hits:
            metrics["accuracy"] = float(np.mean(np.concatenate(hits)))
        return metrics

    def _floats(self, results: Mapping[str, Array], name: str) -> Array:
        return floats_of(results[name], self.executable.stream(name, StreamDirection.OUTPUT).dtype)

    def _hits(self, results: Mapping[str, Array], step: int) -> Array:
        assert self._accuracy is not None
        stream = self.executable.stream(self._accuracy.output, StreamDirection.OUTPUT)
        scores = self._floats(results, self._accuracy.output).reshape(-1, *stream.shape[1:])
        rows = slice(step * len(scores), (step + 1) * len(scores))
        best: Array = scores.argmax(axis=1) == self._accuracy.labels[rows]
        return best.reshape(-1)


def _find_accuracy(
    executable: Executable, arrays: Mapping[str, Array], wanted: tuple[str, str] | None
) -> Accuracy | None:
    if wanted is None:
        return None
    output, labels = wanted
    names = [spec.name for spec in executable.outputs]
    if output not in names:
        raise UsageError(
            f"accuracy: the archive has no output {output!r}", hint=f"it has {', '.join(names)}"
        )
    if labels not in arrays:
        raise UsageError(
            f"accuracy: the data has no array {labels!r}", hint=f"it has {', '.join(arrays)}"
        )
    if len(executable.stream(output, StreamDirection.OUTPUT).shape) < 2:
        raise UsageError(f"accuracy: {output!r} has no axis of classes")
    return Accuracy(output, arrays[labels])
