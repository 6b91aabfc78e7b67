"""Arrays of samples cut into what each step of a program takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from popc_runtime.data.shared_samples import Shared, own_samples, whole_shape
from popc_runtime.errors import InputMismatchError
from popc_runtime.format import Array, TensorSpec

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Batches"]


class _Program(Shared, Protocol):
    """The part of an executable that batches need."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of a step."""


class Batches:
    """The samples of a data set, in steps.

    The first dimension of an input of the program is its batch dimension, and the first dimension
    of an array counts samples.  An array that has exactly the shape of one batch of an input is
    given to every batch as it is.

    Where several processes run the replicas, all are given the whole data set, and each takes its
    own part of every step.

    Attributes:
        samples: How many there are.
        samples_per_step: How many one step takes, of all processes together.
    """

    def __init__(self, program: _Program, data: Mapping[str, npt.ArrayLike]) -> None:
        """Check ``data`` against the inputs of ``program``.

        Raises:
            InputMismatchError: arrays are missing, unknown, of other dtypes or shapes, of
                different lengths, or too short for a step; lists every problem.
        """
        self._program = program
        self._specs = {spec.name: spec for spec in program.inputs}
        self._shapes = {spec.name: whole_shape(program, spec) for spec in program.inputs}
        self._streams = {name: program.stream(name) for name in self._specs}
        self._fixed: dict[str, Array] = {}
        self._rows: dict[str, Array] = {}
        problems = self._take({name: np.asarray(value) for name, value in data.items()})
        lengths = {name: len(array) for name, array in self._rows.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            problems.append(f"the arrays have different numbers of samples: {listed}")
        sizes = {name: self._per_step(name) for name in self._rows}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
            problems.append(f"the inputs take different numbers of samples per step: {listed}")
        self.samples = min(lengths.values(), default=0)
        self.samples_per_step = max(sizes.values(), default=1)
        if not problems and self.samples < self.samples_per_step:
            problems.append(
                f"the data has {self.samples:,} samples, but a step takes {self.samples_per_step:,}"
            )
        if problems:
            raise _error(problems, ", ".join(map(str, self._specs.values())))

    def __len__(self) -> int:
        """The number of whole steps that the samples make."""
        return self.samples // self.samples_per_step

    def steps(
        self, generator: np.random.Generator | None = None, *, skip: int = 0
    ) -> Iterator[dict[str, Array]]:
        """The inputs of step after step, in random order if a generator is given.

        What is left over at the end is not used; in random order it is something else every time.
        """
        order = None if generator is None else generator.permutation(self.samples)
        for step in range(skip, len(self)):
            rows = slice(step * self.samples_per_step, (step + 1) * self.samples_per_step)
            yield {name: self._feed(name, rows, order) for name in self._specs}

    def _feed(self, name: str, rows: slice, order: Array | None) -> Array:
        if name in self._fixed:
            return np.broadcast_to(self._fixed[name], self._specs[name].shape)
        array = self._rows[name]
        picked = array[rows] if order is None else array[order[rows]]
        return own_samples(self._program, name, picked.reshape(self._shapes[name]))

    def _per_step(self, name: str) -> int:
        stream, shape = self._streams[name], self._shapes[name]
        return stream.shape[0] * prod(shape[: len(shape) - len(stream.shape)])

    def _take(self, arrays: Mapping[str, Array]) -> list[str]:
        problems = [f"input {name!r} is missing" for name in self._specs if name not in arrays]
        problems += [f"there is no input {name!r}" for name in arrays if name not in self._specs]
        for name, array in arrays.items():
            if name not in self._specs:
                continue
            stream = self._streams[name]
            if array.dtype != stream.dtype.storage:
                problems.append(f"input {name!r} takes {stream.dtype}, not {array.dtype}")
            elif array.shape == stream.shape and (not stream.shape or not _has_rows(arrays, array)):
                self._fixed[name] = array
            elif (
                stream.shape
                and array.ndim == len(stream.shape)
                and (array.shape[1:] == stream.shape[1:])
            ):
                self._rows[name] = array
            else:
                wanted = ["samples", *map(str, stream.shape[1:])] if stream.shape else []
                problems.append(
                    f"input {name!r} takes an array of shape [{', '.join(wanted)}], "
                    f"not {list(array.shape)}"
                )
        return problems


def _has_rows(arrays: Mapping[str, Array], array: Array) -> bool:
    """True if ``array`` has as many rows as all arrays: then they are its samples."""
    lengths = {len(other) for other in arrays.values() if other.ndim}
    return lengths == {len(array)}


def _error(problems: list[str], inputs: str) -> InputMismatchError:
    hint = f"a step of the program takes {inputs}"
    if len(problems) == 1:
        return InputMismatchError(problems[0], hint=hint)
    return InputMismatchError(
        f"{len(problems)} problems with the data", details=tuple(problems), hint=hint
    )
