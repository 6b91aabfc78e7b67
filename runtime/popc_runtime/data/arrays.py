"""Inputs and results of a step as numpy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from popc_runtime.data.mismatches import check_stored, wrong_names
from popc_runtime.data.streams import as_stored, check_sample, describe, joined_mismatches
from popc_runtime.data.words import with_numbers
from popc_runtime.errors import InputMismatchError, UsageError
from popc_runtime.format import Array, DType, StreamSpec, TensorSpec

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["array_taker", "check_arrays", "check_targets", "copied_to", "joined_results"]


def check_arrays(
    given: Mapping[str, npt.ArrayLike],
    specs: Sequence[TensorSpec],
    streams: Mapping[str, StreamSpec],
    synthetic: Container[str],
    cast: str,
) -> dict[str, tuple[Array, ...]]:
    """The samples of each input, in order; reports every problem at once.

    Strings become the places of their words among the labels of an input.

    Raises:
        InputMismatchError: inputs are missing, unknown or of another dtype or shape.
    """
    given = with_numbers(given, specs)
    problems = wrong_names(given, specs, synthetic)
    samples: dict[str, tuple[Array, ...]] = {}
    for spec in specs:
        if spec.name not in given:
            continue
        try:
            array = check_sample(given[spec.name], spec, spec.shape, cast=cast)
        except InputMismatchError as error:
            problems.append(error)
        else:
            stream = streams[spec.name]
            if array.shape == stream.shape:
                samples[spec.name] = (array,)
                continue
            count = max(stream.samples_per_step, 1)
            samples[spec.name] = tuple(array.reshape(count, *stream.shape))
    if problems:
        raise joined_mismatches(problems)
    return samples


def check_targets(out: Mapping[str, Array], outputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Check ``out``, and give the memory that results are written to, as elements are stored.

    Raises:
        UsageError: there is no such output, what is given for it is no array or read-only, or two
            share memory.
        InputMismatchError: an array has another dtype or shape.
    """
    specs = {spec.name: spec for spec in outputs} if out else {}
    for name in out:
        if name not in specs:
            raise UsageError(
                f"out: there is no output {name!r}", hint=f"the outputs are {', '.join(specs)}"
            )
    targets = {name: _target(array, specs[name]) for name, array in out.items()}
    for (name, one), (other, two) in combinations(targets.items(), 2):
        if np.may_share_memory(one, two) and np.shares_memory(one, two):
            raise UsageError(
                f"out: the arrays of {name!r} and {other!r} share memory",
                subject=other,
                hint="give each output memory of its own",
            )
    return targets


def copied_to(
    out: Mapping[str, Array], results: Mapping[str, Array], outputs: Sequence[TensorSpec]
) -> dict[str, Array]:
    """Results with those that are wanted in ``out`` there.

    Raises:
        UsageError, InputMismatchError: see `check_targets`.
    """
    specs = [TensorSpec(spec.name, spec.dtype, results[spec.name].shape) for spec in outputs]
    for name, target in check_targets(out, specs).items():
        np.copyto(target, results[name].view(target.dtype))
    return {**results, **out}


def _target(array: object, spec: TensorSpec) -> Array:
    wanted, storage = describe(spec.dtype, spec.shape), spec.dtype.storage
    advice = f"make one with numpy.empty({spec.shape}, {storage.name!r})"
    if not isinstance(array, np.ndarray):
        found = f"an object of type {type(array).__name__}"
        raise UsageError(
            f"out {spec.name!r}: expected a numpy array, got {found}",
            subject=spec.name,
            hint=advice,
        )
    if not array.flags.writeable:
        found = "the array is read-only"
        raise UsageError(f"out {spec.name!r}: {found}", subject=spec.name, hint=advice)
    target = as_stored(np.asarray(array), spec.dtype)
    if target.dtype != storage or target.shape != spec.shape:
        found = describe(array.dtype, array.shape)
        raise InputMismatchError(
            f"out {spec.name!r}: expected {wanted}, got {found}", subject=spec.name, hint=advice
        )
    return target


def array_taker(
    stream: StreamSpec, take: Callable[[Array], object]
) -> Callable[[memoryview], object]:
    """A function that gives ``take`` an array of its own for each sample of a stream."""
    storage, shape = stream.dtype.storage, stream.shape

    def taker(memory: memoryview) -> None:
        array = np.empty(shape, storage)
        if memory.nbytes != array.nbytes:
            raise ValueError(
                f"expected a sample of {array.nbytes:,} bytes, got {memory.nbytes:,} bytes"
            )
        if memory.nbytes:
            array.data.cast("B")[:] = memory
        take(array)

    return taker


def joined_results(
    specs: Sequence[TensorSpec],
    streams: Mapping[str, StreamSpec],
    collected: Mapping[str, Sequence[Array]],
    targets: Mapping[str, Array],
    bfloat16: np.dtype[Any] | None,
) -> dict[str, Array]:
    """The results of a step, in ``targets`` where there are some, else of type ``bfloat16``.

    Raises:
        DeviceError: it is not as many samples as it should be.
    """
    return {
        spec.name: _joined_samples(
            spec, streams[spec.name], collected[spec.name], targets.get(spec.name), bfloat16
        )
        for spec in specs
    }


def _joined_samples(
    spec: TensorSpec,
    stream: StreamSpec,
    samples: Sequence[Array],
    target: Array | None,
    bfloat16: np.dtype[Any] | None,
) -> Array:
    """The result of a step, in ``target`` if there is one; else of type ``bfloat16`` if it is that.

    Raises:
        DeviceError: it is not as many samples as it should be.
    """
    check_stored(spec, len(samples), max(stream.samples_per_step, 1), "samples")
    if target is not None and target.flags.c_contiguous:
        np.stack(samples, out=target.reshape(len(samples), *stream.shape))
        return target
    joined = (np.stack(samples) if len(samples) > 1 else samples[0]).reshape(spec.shape)
    if target is None:
        if bfloat16 is None or spec.dtype is not DType.BFLOAT16:
            return joined
        return joined.view(bfloat16)
    np.copyto(target, joined)  # whatever its strides are
    return target
