"""Models as the server runs them: an executable, and how requests to it may share a run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

import numpy as np

from popc_runtime.data.words import with_numbers
from popc_runtime.errors import UsageError
from popc_runtime.executable import Executable
from popc_runtime.format import Array, DType, FitMode, TensorSpec
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import Final

__all__ = ["SEQUENCE_START", "ArchiveModel", "Batching", "ServedModel", "wild_shapes"]

SEQUENCE_START: Final = "sequence_start"  # as Triton calls the input that begins a sequence


@frozen
class Batching:
    """The dimension along which samples of several requests may stand side by side.

    Attributes:
        inputs, outputs: The axis of each tensor that has it; all outputs have.
        limit: The most samples of a run.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    limit: int

    def group(self, arrays: Mapping[str, Array]) -> tuple[Hashable | None, int]:
        """The key of requests that may join this one, and its samples; ``None``: it runs alone."""
        sizes: set[int] = set()
        key: list[Hashable] = []
        for name in sorted(arrays):
            array, axis = arrays[name], self.inputs.get(name)
            if axis is None:  # all of a batch have it in common
                key.append((name, array.dtype.str, array.shape, array.tobytes()))
                continue
            if axis >= array.ndim:
                return None, 1
            sizes.add(array.shape[axis])
            key.append((name, array.dtype.str, array.shape[:axis], array.shape[axis + 1 :]))
        if len(sizes) != 1 or 0 in sizes:
            return None, 1
        return tuple(key), sizes.pop()

    def joined(self, requests: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The inputs of several requests as those of a run."""
        return {
            name: np.concatenate([each[name] for each in requests], self.inputs[name])
            if name in self.inputs
            else array
            for name, array in requests[0].items()
        }

    def parted(self, results: Mapping[str, Array], sizes: Sequence[int]) -> list[dict[str, Array]]:
        """The results of a run as those of its requests, which have so many samples."""
        ends = np.cumsum(sizes)[:-1].tolist()
        parts = {name: np.split(array, ends, self.outputs[name]) for name, array in results.items()}
        return [{name: parts[name][place] for name in parts} for place in range(len(sizes))]


class ServedModel(Protocol):
    """Anything that the server can run.

    Attributes:
        inputs, outputs: Names, types and shapes; a size of -1 may be any that there is.
        optional: Inputs that may be left out.
        batching: ``None`` if each request is a run of its own.
        platform: The name of the format, for metadata.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    optional: tuple[str, ...]
    batching: Batching | None
    platform: str

    def prepared(self, arrays: dict[str, Array]) -> Mapping[str, Array]:
        """Inputs as `run` and `Batching` take them."""

    def run(self, arrays: Mapping[str, Array], timeout: float | None) -> dict[str, Array]:
        """The results of one run, which may take so many seconds.

        Raises:
            PopcError: see `Executable.run`.
        """

    def close(self) -> None:
        """Refuse further runs."""


class ArchiveModel:
    """See `ServedModel`: a popc archive.

    One that keeps variables from run to run takes `SEQUENCE_START` too: true for a request that
    begins with the variables as they were when the archive was loaded.
    """

    platform = "popc"

    def __init__(self, executable: Executable, *, max_batch: int = 0, workers: int = 1) -> None:
        """Look at what the archive takes and gives.

        Args:
            executable: The archive.
            max_batch: The most samples of a run; 0 for those of the largest program.
            workers: The processes that answer requests.

        Raises:
            UsageError: the archive trains.
        """
        manifest = executable.manifest
        if any(each.manifest.training for each in executable.programs):
            raise UsageError(
                "the archive trains: answers would change the weights",
                hint="write its model with `popc export`, and compile that without --train",
            )
        self._executable, self._workers = executable, workers
        programs = [(each.inputs, each.outputs) for each in executable.programs]
        free = [(dict(fit.inputs), dict(fit.outputs)) for fit in manifest.fits]
        self.inputs = wild_shapes([ins for ins, _ in programs], [ins for ins, _ in free])
        self.outputs = wild_shapes([outs for _, outs in programs], [outs for _, outs in free])
        self.optional = tuple(
            spec.name for spec in self.inputs if executable.stream(spec.name).synthetic
        )
        if manifest.variables and SEQUENCE_START not in {spec.name for spec in self.inputs}:
            self.inputs += (TensorSpec(SEQUENCE_START, DType.BOOL, (1,)),)
            self.optional += (SEQUENCE_START,)
        self.batching = _batching(executable, max_batch)

    def prepared(self, arrays: dict[str, Array]) -> Mapping[str, Array]:
        """See `ServedModel`."""
        return with_numbers(arrays, self.inputs)

    def run(self, arrays: Mapping[str, Array], timeout: float | None) -> dict[str, Array]:
        """See `ServedModel`.

        Raises:
            UsageError: a sequence is begun where several workers would each have a part of it.
            PopcError: see `Executable.run`.
        """
        if SEQUENCE_START in self.optional and SEQUENCE_START in arrays:
            own = {name: array for name, array in arrays.items() if name != SEQUENCE_START}
            if self._workers > 1:
                raise UsageError(
                    f"{self._workers} workers answer requests, each with variables of its own: "
                    "the requests of a sequence would go to several",
                    hint="serve what keeps a state with --workers 1",
                )
            if arrays[SEQUENCE_START].any():
                self._executable.state.reset()
            arrays = own
        return self._executable.run(arrays, timeout=timeout)

    def warmup(self) -> None:
        """Let the first request find everything in place."""
        self._executable.warmup()

    def close(self) -> None:
        """See `ServedModel`."""
        self._executable.close()


def wild_shapes(
    programs: Sequence[Sequence[TensorSpec]], free: Sequence[Mapping[str, int]]
) -> tuple[TensorSpec, ...]:
    """Tensors of several programs, with -1 where sizes differ or along the axes of ``free``."""
    found: dict[str, TensorSpec] = {}
    for specs in programs:
        for spec in specs:
            first = found.setdefault(spec.name, _without_sizes(spec))
            if len(first.shape) == len(spec.shape):
                same = zip(first.shape, spec.shape, strict=True)
                sizes = tuple(a if a == b else -1 for a, b in same)
                found[spec.name] = replace(first, shape=sizes)
    for axes in free:
        for name, axis in axes.items():
            shape = list(found[name].shape)
            shape[axis] = -1
            found[name] = replace(found[name], shape=tuple(shape))
    return tuple(found.values())


def _without_sizes(spec: TensorSpec) -> TensorSpec:
    """A tensor with -1 where data decides its size."""
    if not spec.sizes:
        return spec
    shape = (-1 if size else dim for dim, size in zip(spec.shape, spec.sizes, strict=True))
    return replace(spec, shape=tuple(shape), sizes=())


def _batching(executable: Executable, max_batch: int) -> Batching | None:
    """The first dimension that is proven to hold samples that do not know of each other."""
    manifest = executable.manifest
    for fit in manifest.fits:
        if FitMode.FILL in fit.modes or set(fit.outputs) != {
            spec.name for spec in manifest.outputs
        }:
            continue
        sizes = [
            spec.shape[fit.inputs[spec.name]]
            for program in executable.programs
            for spec in program.inputs
            if spec.name in fit.inputs
        ]
        limit = max(sizes) if not max_batch else min(max_batch, max(sizes))
        return Batching(dict(fit.inputs), dict(fit.outputs), limit)
    return None
