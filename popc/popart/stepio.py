"""Sources of a session's samples and targets of its results: arrays, or callbacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from popc.popart.calls import native
from popc.popart.dtypes import data_type_of_array
from popc.popart.enums import DataType
from popc.popart.errors import popart_exception, popart_runtime_error
from popc.popart.logger import log
from popc.popart.tensorinfo import _TensorInfoCore

__all__ = ["IStepIO", "PyStepIO", "PyStepIOCallback", "PyWeightsIO", "StepIOCallback"]

_Array: TypeAlias = np.ndarray[Any, Any]
_NARROWED: Final = {DataType.INT64: DataType.INT32, DataType.UINT64: DataType.UINT32}
_WARNED: Final[set[str]] = set()


def _require_contiguous(array: _Array, who: str, kind: str, name: str) -> None:
    if not array.flags.c_contiguous:
        raise popart_exception(
            f"{who} is unable to use the numpy {kind} array for tensor '{name}' as it is not "
            f"c-contiguous (a data conversion here could have a significant impact on performance "
            f"and hence is not allowed). Use numpy.ascontiguousarray to make it so."
        )


def _require_arrays(given: object, what: str) -> dict[str, _Array]:
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray) for name, array in given.items()
    ):
        raise TypeError(
            "__init__(): incompatible constructor arguments. The following argument types are "
            f"supported:\n    1. ({what}: Dict[str, numpy.ndarray])\n\nInvoked with: {given!r}"
        )
    return dict(given)


class IStepIO(ABC):
    """The samples and anchors of a run, as a session asks for them."""

    _asserts = True

    @native
    def enableRuntimeAsserts(self, on: bool, /) -> None:
        """Set whether the first run checks the numbers of elements."""
        self._asserts = on

    @property
    def asserts(self) -> bool:
        """True if the first run checks the numbers of elements."""
        return self._asserts

    def begin(self, counts: Mapping[str, int]) -> None:  # noqa: B027 - most have nothing to do
        """A run begins that takes so many samples of inputs; those of ``counts`` may be prefetched.

        Inputs that are not in it are asked for when they are needed.
        """

    @abstractmethod
    def sample(self, name: str, info: _TensorInfoCore) -> _Array:
        """The next sample of an input, which is a micro-batch of one replica."""

    @abstractmethod
    def take(self, name: str, value: _Array) -> None:
        """Take the next value of an anchor."""


def as_sample(array: _Array, name: str, info: _TensorInfoCore) -> _Array:
    """``array`` in the type and shape of the tensor.

    Raises:
        popart_runtime_error: it is of another type.
    """
    given, expected = data_type_of_array(array.dtype), info.dataType()
    if given is not expected and _NARROWED.get(given) is not expected:
        raise popart_runtime_error(
            f"Type discrepancy for tensor {name}. User provided : {given.name} and expected : "
            f"{expected.name}. Consider a custom copy here (as memcpy cannot be used)"
        )
    if given is not expected:
        if name not in _WARNED:
            _WARNED.add(name)
            log(
                "devicex",
                "WARN",
                f"Copying (host) tensor {name} from {given.name} to "
                f"{expected.name}. Will only warn once",
            )
        kind = np.int32 if expected is DataType.INT32 else np.uint32
        array = array.astype(kind)
    return array.reshape(info.shape())


class PyStepIO(IStepIO):
    """Samples from arrays, results to arrays; each wraps around at its end.

    Raises:
        TypeError: a value is no array.
        popart_exception: an array is not contiguous.
    """

    def __init__(self, inputs: Mapping[str, _Array], outputs: Mapping[str, _Array]) -> None:
        self.inputs = _require_arrays(inputs, "inputs")
        self.outputs = _require_arrays(outputs, "outputs")
        for kind, arrays in (("input", self.inputs), ("output", self.outputs)):
            for name, array in arrays.items():
                _require_contiguous(array, "PyStepIO", kind, name)
        self._read: dict[str, int] = {}
        self._written: dict[str, int] = {}

    def sample(self, name: str, info: _TensorInfoCore) -> _Array:
        """The next elements of the array of an input.

        Raises:
            popart_runtime_error: there is no array of that name, or it is of another type.
        """
        if name not in self.inputs:
            raise popart_runtime_error(f"No tensor {name} provided in PyStepIO's inputs")
        flat = self.inputs[name].reshape(-1)
        start, count = self._read.get(name, 0), info.nelms()
        taken = flat[start : start + count]
        if taken.size < count:
            raise popart_runtime_error(
                f"The array of tensor {name} in PyStepIO's inputs has {flat.size} elements, which "
                f"are no whole number of samples of {count}"
            )
        self._read[name] = _advanced(start, count, flat.size)
        return as_sample(taken, name, info)

    def take(self, name: str, value: _Array) -> None:
        """Write to the next elements of the array of an anchor.

        Raises:
            popart_runtime_error: there is no array of that name.
        """
        if name not in self.outputs:
            raise popart_runtime_error(f"No tensor {name} provided in PyStepIO's outputs")
        flat = self.outputs[name].reshape(-1)
        start = self._written.get(name, 0)
        target = flat[start : start + value.size]
        if target.size < value.size:
            raise popart_runtime_error(
                f"The array of tensor {name} in PyStepIO's outputs has {flat.size} elements, which "
                f"are no whole number of values of {value.size}"
            )
        copy_raw(target, value)
        self._written[name] = _advanced(start, value.size, flat.size)


def _advanced(start: int, count: int, size: int) -> int:
    return 0 if start + count >= size else start + count


def copy_raw(target: _Array, value: _Array) -> None:
    """Copy elements as they are; those of another size are converted."""
    flat = np.ascontiguousarray(value).reshape(-1)
    if flat.dtype.itemsize == target.dtype.itemsize:
        target.reshape(-1)[...] = flat.view(target.dtype)
    else:
        with np.errstate(over="ignore"):  # sums in float32 for arrays of float16
            np.copyto(target.reshape(-1), flat, casting="unsafe")


class PyStepIOCallback(IStepIO):
    """Samples and results through functions.

    ``input_callback(id, is_prefetch)`` gives the array of a sample; for a prefetch, which comes
    while the sample before it is computed on, it may have nothing yet.
    ``input_complete_callback(id)`` says that it has been read.  ``output_callback(id)`` gives an
    array for a value, and ``output_complete_callback(id)`` says that it has been written.
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], _Array | None],
        input_complete_callback: Callable[[str], object],
        output_callback: Callable[[str], _Array],
        output_complete_callback: Callable[[str], object],
    ) -> None:
        self._input, self._input_complete = input_callback, input_complete_callback
        self._output, self._output_complete = output_callback, output_complete_callback
        self._left: dict[str, int] = {}
        self._ahead: dict[str, _Array] = {}

    def begin(self, counts: Mapping[str, int]) -> None:
        """Forget what the run before has fetched ahead."""
        self._left = dict(counts)
        self._ahead = {}

    def sample(self, name: str, info: _TensorInfoCore) -> _Array:
        """A sample from the callback.

        Raises:
            popart_runtime_error: it has none, or one of another type.
            popart_exception: the array is not contiguous.
        """
        array = self._ahead.pop(name, None)
        if array is None:
            array = self._input(name, False)
        if array is None or not np.ndim(array):
            raise popart_runtime_error(
                f"[StepIOSplitter] IStepIO unexpectedly did not provide input data for tensor "
                f"{name}"
            )
        _require_contiguous(array, "PyStepIOCallback", "input", name)
        taken = as_sample(array.reshape(-1)[: info.nelms()].copy(), name, info)
        self._input_complete(name)
        self._left[name] = self._left.get(name, 0) - 1
        if self._left[name] > 0:
            ahead = self._input(name, True)
            if ahead is not None and np.ndim(ahead):
                self._ahead[name] = ahead
        return taken

    def take(self, name: str, value: _Array) -> None:
        """Write to the array of the callback.

        Raises:
            popart_exception: it is not contiguous.
        """
        array = self._output(name)
        _require_contiguous(array, "PyStepIOCallback", "output", name)
        copy_raw(array.reshape(-1)[: value.size], value)
        self._output_complete(name)


StepIOCallback = PyStepIOCallback


class PyWeightsIO:
    """Arrays that weights are read into or written from, by name.

    Raises:
        TypeError: a value is no array.
        popart_exception: an array is not contiguous.
    """

    def __init__(self, weights: Mapping[str, _Array]) -> None:
        self.weights = _require_arrays(weights, "weights")
        for name, array in self.weights.items():
            _require_contiguous(array, "PyWeightsIO", "output", name)
