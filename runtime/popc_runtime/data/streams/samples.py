"""Samples of streams: what they look like, and the checks that sources make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popc_runtime.errors import InputMismatchError, StreamTimeoutError
from popc_runtime.format import Array, DType
from popc_runtime.ground.hints import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "MOVE_IT",
    "StreamType",
    "as_stored",
    "check_sample",
    "describe",
    "is_foreign",
    "joined_mismatches",
    "timed_out",
]

# What to do with a tensor that its library does not share.
MOVE_IT: Final = "pass a tensor in the memory of the host, without a gradient: x.detach().cpu()"


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

    array = _as_array(value, stream, shape)
    storage = stream.dtype.storage
    if array.dtype != storage:
        array = as_stored(array, stream.dtype)
        if array.shape == shape and np.can_cast(array.dtype, storage, cast):  # type: ignore[arg-type]
            array = array.astype(storage, copy=False)
    if array.dtype != storage or array.shape != shape:
        found = describe(array.dtype, array.shape)
        if array.dtype == object and not array.shape:
            found = f"an object of type {type(value).__name__}"
        raise _mismatch(stream, shape, found, _advice(array, stream, shape))
    return array


def _as_array(value: npt.ArrayLike, stream: StreamType, shape: tuple[int, ...]) -> Array:
    """The array that shows what a caller holds, without a copy where that is possible."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value
    if not is_foreign(value):
        try:
            return np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, odd objects
            raise _mismatch(stream, shape, str(error), "pass an array of numbers") from None
    from popc_runtime.data.dlpack import foreign_tensor

    try:
        tensor = foreign_tensor(value)
    except ValueError as error:
        raise _mismatch(stream, shape, str(error), MOVE_IT) from None
    if tensor.dtype is DType.BFLOAT16 is not stream.dtype:
        found = describe(tensor.dtype, tensor.shape)
        raise _mismatch(stream, shape, found, f"convert it to {stream.dtype}")
    storage = tensor.dtype.storage
    if not tensor.memory.nbytes:
        return np.empty(tensor.shape, storage)
    return np.ndarray(tensor.shape, storage, tensor.memory, 0, tensor.strides)


def is_foreign(value: object) -> bool:
    """True if an object has DLPack's interface, and none that says more."""
    return hasattr(value, "__dlpack_device__") and not hasattr(value, "__array_interface__")


def _mismatch(
    stream: StreamType, shape: tuple[int, ...], found: str, hint: str
) -> InputMismatchError:
    wanted = describe(stream.dtype, shape)
    return InputMismatchError(
        f"input {stream.name!r}: expected {wanted}, got {found}", subject=stream.name, hint=hint
    )


def as_stored(array: Array, dtype: DType) -> Array:
    """``array`` as its elements are stored: numbers of ml_dtypes as their bit patterns."""
    return array.view(dtype.storage) if dtype.is_number_type(array.dtype) else array


def _advice(array: Array, stream: StreamType, shape: tuple[int, ...]) -> str:
    parts: list[str] = []
    if array.dtype.kind in "US":
        return (
            "pass an array of numbers: of words, their places among the labels of the input, if "
            "it has any; only `run` takes words, in arrays of nothing else"
        )
    if array.dtype.kind not in "biufcV":
        return "pass an array of numbers"
    if array.dtype != stream.dtype.storage:
        parts.append(f"convert it with .astype({stream.dtype.value!r})")
    if array.shape != shape:
        squeezed = tuple(dim for dim in shape if dim != 1)
        if tuple(dim for dim in array.shape if dim != 1) == squeezed:
            parts.append(f"reshape it to {list(shape)} (add a batch axis?)")
        else:
            parts.append("shapes are fixed when a model is compiled: compile it for this one")
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
