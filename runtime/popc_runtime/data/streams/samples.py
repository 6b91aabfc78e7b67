"""Samples of streams: what they look like, and the checks that sources make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popc_runtime.errors import InputMismatchError, StreamTimeoutError
from popc_runtime.format import Array, DType
from popc_runtime.ground.hints import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "StreamType",
    "as_stored",
    "check_sample",
    "describe",
    "joined_mismatches",
    "timed_out",
]


class StreamType(Protocol):
    """The shape and type of a sample of a stream."""

    @property
    def name(self) -> str:
        """The stream's name."""

    @property
    def dtype(self) -> DType:
        """Element type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""


def describe(dtype: object, shape: Iterable[int]) -> str:
    """A tensor type as messages show it: float32[1,3,224,224]."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def check_sample(
    value: npt.ArrayLike, stream: StreamType, shape: tuple[int, ...], *, cast: str = "no"
) -> Array:
    """``value`` as an array of the stream's storage dtype and of ``shape``.

    ``cast`` is numpy's casting rule: "no" refuses every other dtype, "safe" widens.

    Raises:
        InputMismatchError: another dtype or shape.
    """
    import numpy as np

    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # ragged lists, interfaces that lie
        raise InputMismatchError(
            f"input {stream.name!r}: expected {describe(stream.dtype, shape)}, got an object of "
            f"type {type(value).__name__} that is no array: {error}",
            subject=stream.name,
        ) from error
    storage = stream.dtype.storage
    if array.dtype != storage:
        array = as_stored(array, stream.dtype)
        if array.shape == shape and np.can_cast(array.dtype, storage, cast):  # type: ignore[arg-type]
            array = array.astype(storage, copy=False)
    if array.dtype != storage or array.shape != shape:
        raise InputMismatchError(
            f"input {stream.name!r}: expected {describe(stream.dtype, shape)}, "
            f"got {describe(array.dtype, array.shape)}",
            subject=stream.name,
            hint=_advice(array, stream, shape),
        )
    return array


def as_stored(array: Array, dtype: DType) -> Array:
    """``array`` as its elements are stored: numbers of ml_dtypes.bfloat16 as their bit patterns."""
    is_bfloat16 = array.dtype.name == dtype == DType.BFLOAT16
    return array.view(dtype.storage) if is_bfloat16 else array


def _advice(array: Array, stream: StreamType, shape: tuple[int, ...]) -> str:
    parts: list[str] = []
    if array.dtype.kind not in "biufcV":
        return "pass an array of numbers"
    if array.dtype != stream.dtype.storage:
        parts.append(f"convert it with .astype({stream.dtype.value!r})")
    if array.shape != shape:
        squeezed = tuple(dim for dim in shape if dim != 1)
        if tuple(dim for dim in array.shape if dim != 1) == squeezed:
            parts.append(f"reshape it to {list(shape)} (add a batch axis?)")
        else:
            parts.append("shapes are fixed when a model is compiled: recompile with --shape")
    return " and ".join(parts)


def joined_mismatches(problems: Sequence[InputMismatchError]) -> InputMismatchError:
    """One error that lists all of ``problems``."""
    if len(problems) == 1:
        return problems[0]
    hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
    return InputMismatchError(
        f"{len(problems)} problems with the inputs",
        details=tuple(problem.message for problem in problems),
        hint="; ".join(hints),
    )


def timed_out(stream: StreamType, timeout: float | None, what: str) -> StreamTimeoutError:
    """The error to raise when ``what`` did not happen in time."""
    return StreamTimeoutError(
        f"stream {stream.name!r}: {what} within {timeout} s", subject=stream.name
    )
