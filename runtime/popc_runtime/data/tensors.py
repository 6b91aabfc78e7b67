"""Inputs and results of a step as plain memory, without numpy."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod
from struct import iter_unpack

from popc_runtime.data.mismatches import wrong_names
from popc_runtime.data.streams import MOVE_IT, describe, is_foreign, joined_mismatches
from popc_runtime.errors import InputMismatchError
from popc_runtime.format import DType, StreamSpec, TensorSpec
from popc_runtime.format.float8 import number_of
from popc_runtime.ground.hints import Any, Final

__all__ = ["ResultTensor", "check_buffers"]

# How `struct` calls the types, where several names stand for one.
_KINDS: Final = (
    {"?": "b"}
    | dict.fromkeys("efd", "f")
    | dict.fromkeys("bhilqn", "i")
    | dict.fromkeys("BHILQN", "u")
)
_RAW: Final = (bytes, bytearray)


class ResultTensor:
    """A result: contiguous memory with a type and a shape.

    It has numpy's array interface (``numpy.asarray(tensor)`` shares the memory), DLPack's
    (``torch.from_dlpack(tensor)``, of bfloat16 too) and, from Python 3.12 on, the buffer protocol.

    Attributes:
        name: Of the output.
        dtype: Of the elements; bfloat16 is stored as bit patterns, uint16.
        shape: Dimensions.
        data: The elements as they are stored, in the order of their indices: writable bytes.
    """

    __slots__ = ("data", "dtype", "name", "shape")

    def __init__(self, spec: TensorSpec, data: bytearray) -> None:
        self.name = spec.name
        self.dtype = spec.dtype
        self.shape = spec.shape
        self.data = memoryview(data)

    def __repr__(self) -> str:
        return f"ResultTensor({self.name}: {describe(self.dtype, self.shape)})"

    def __len__(self) -> int:
        """Elements of the first dimension.

        Raises:
            TypeError: there is none.
        """
        if not self.shape:
            raise TypeError(f"{self} is a scalar: it has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        """True if the only element is not zero.

        Raises:
            ValueError: there is not exactly one.
        """
        if prod(self.shape) != 1:
            raise ValueError(f"{self} is neither true nor false: only a tensor with one element is")
        return bool(next(self._values()))

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.data.nbytes

    def tolist(self) -> Any:
        """The elements as nested lists, as numpy's; narrow floats are numbers too."""
        return _nested(self._values(), self.shape)

    def _values(self) -> Iterator[Any]:
        if self.dtype is DType.BFLOAT16:
            pairs = self.data.tobytes()
            wide = b"".join(b"\0\0" + pairs[at : at + 2] for at in range(0, len(pairs), 2))
            return (value for (value,) in iter_unpack("f", wide))
        if self.dtype.is_float8:
            return (number_of(code, self.dtype) for code in self.data.tobytes())
        return (value for (value,) in iter_unpack(self.dtype.code, self.data))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": self.dtype.typestr,
            "shape": self.shape,
            "data": self.data,
        }

    def __dlpack__(self, **settings: Any) -> Any:
        """A capsule that shares the elements; ``settings`` are those of the protocol.

        Raises:
            BufferError: they ask for another device, or for what numpy cannot do.
        """
        import numpy as np

        from popc_runtime.data.dlpack import capsule_of

        return capsule_of(np.asarray(self), self.dtype, settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The memory of the host."""
        from popc_runtime.data.dlpack import CPU

        return CPU

    def __buffer__(self, flags: int) -> memoryview:
        """The elements: a buffer that knows type and shape.

        Raises:
            BufferError: no memoryview has this type and shape (float16, or no elements): then numpy
                goes on to the array interface; ``data`` has the bytes.
        """
        del flags
        if 0 in self.shape or self.dtype is DType.FLOAT16:
            raise BufferError(f"{self} has no buffer that knows type and shape: see `data`")
        cast: Any = self.data.cast
        shaped: memoryview = cast(self.dtype.code, self.shape)
        return shaped


# No closure, which would refer to itself: Python 3.12.0 to 3.12.6 crash when the collector finds a
# memoryview that something reads from (CPython gh-77894).
def _nested(values: Iterator[Any], shape: tuple[int, ...]) -> Any:
    return [_nested(values, shape[1:]) for _ in range(shape[0])] if shape else next(values)


def check_buffers(
    given: Mapping[str, object],
    specs: Sequence[TensorSpec],
    streams: Mapping[str, StreamSpec],
    synthetic: Container[str],
) -> dict[str, list[memoryview]]:
    """The bytes of the samples of each input, in order; reports every problem at once.

    Raises:
        InputMismatchError: see `Executable.run_buffers`.
    """
    problems = wrong_names(given, specs, synthetic)
    samples: dict[str, list[memoryview]] = {}
    for spec in specs:
        if spec.name not in given:
            continue
        try:
            data = _bytes_of(given[spec.name], spec)
        except InputMismatchError as error:
            problems.append(error)
        else:
            count = max(streams[spec.name].samples_per_step, 1)
            size = data.nbytes // count
            samples[spec.name] = [data[n * size : (n + 1) * size] for n in range(count)]
    if problems:
        raise joined_mismatches(problems)
    return samples


def _bytes_of(value: object, spec: TensorSpec) -> memoryview:
    """The elements of an input, checked."""
    if is_foreign(value):
        return _shared(value, spec)
    memory = _memory_of(value, spec)
    raw = isinstance(value, _RAW) or (isinstance(value, memoryview) and value.format == "B")
    if raw and memory.ndim == 1:
        if memory.nbytes != spec.nbytes:
            raise _mismatch(spec, f"{memory.nbytes:,} bytes", f"pass {spec.nbytes:,} bytes")
    else:
        flat = (prod(spec.shape),)
        if not _is_stored_as(memory, spec.dtype) or memory.shape not in (spec.shape, flat):
            found = describe(_name_of(memory), memory.shape or ())
            raise _mismatch(spec, found, "pass elements of this type and shape, or their bytes")
    if not memory.c_contiguous:
        raise _mismatch(spec, "memory that is not contiguous", "pass a contiguous copy")
    return memory.cast("B") if memory.nbytes else memoryview(b"")


def _memory_of(value: object, spec: TensorSpec) -> memoryview:
    try:
        return memoryview(value)  # type: ignore[arg-type]
    except (TypeError, BufferError, ValueError):
        pass
    if hasattr(value, "__array_interface__"):
        import numpy as np  # which reads all that the interface allows

        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise _mismatch(spec, f"an array interface that lies: {error}", "") from error
        if spec.dtype.is_number_type(array.dtype):
            array = array.view(spec.dtype.storage)
        try:
            return array.data
        except ValueError:  # a type that no buffer has: points in time, say
            found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise _mismatch(spec, found, "convert the elements to the input's type") from None
    raise _mismatch(
        spec,
        f"an object of type {type(value).__name__}",
        "pass bytes, or an object with the buffer protocol, an array interface or DLPack's",
    )


def _shared(value: object, spec: TensorSpec) -> memoryview:
    """The elements of another library's tensor; see `popc_runtime.data.dlpack`."""
    from popc_runtime.data.dlpack import foreign_tensor

    try:
        tensor = foreign_tensor(value)
    except ValueError as error:
        raise _mismatch(spec, str(error), MOVE_IT) from None
    if tensor.dtype is not spec.dtype or tensor.shape not in (spec.shape, (prod(spec.shape),)):
        found = describe(tensor.dtype, tensor.shape)
        raise _mismatch(spec, found, "pass elements of this type and shape, or their bytes")
    if tensor.strides is not None:
        raise _mismatch(spec, "memory that is not contiguous", "pass a contiguous copy")
    return tensor.memory


def _is_stored_as(memory: memoryview, dtype: DType) -> bool:
    """True if a buffer's elements are of the type that ``dtype`` is stored as."""
    code = memory.format.lstrip("@=<") if memory.format else ""
    return memory.itemsize == dtype.itemsize and _KINDS.get(code) == _KINDS[dtype.code]


def _name_of(memory: memoryview) -> str:
    """The type of a buffer's elements, as messages show it."""
    names = (
        dtype.value for dtype in DType if dtype is dtype.stored and _is_stored_as(memory, dtype)
    )
    return next(names, f"format {memory.format!r}")


def _mismatch(spec: TensorSpec, found: str, hint: str) -> InputMismatchError:
    if spec.label_kind:
        hint += "; of words, their places among the input's labels: only `run` takes words"
    return InputMismatchError(
        f"input {spec.name!r}: expected {describe(spec.dtype, spec.shape)}, got {found}",
        subject=spec.name,
        hint=hint,
    )
