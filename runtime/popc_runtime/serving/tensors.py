"""Tensors as the Open Inference Protocol writes them: as bytes, or as lists in JSON."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from popc_runtime.data.words import labelled
from popc_runtime.errors import InputMismatchError, UsageError
from popc_runtime.format import Array, DType, LabelKind, TensorSpec
from popc_runtime.format.limits import MAX_DIMENSION, MAX_RANK
from popc_runtime.ground.frozen import frozen

__all__ = ["GivenTensor", "arrays_of", "as_bytes", "as_list", "datatype_of", "results_of"]

_DATATYPES: Final = {
    DType.BOOL: "BOOL",
    DType.FLOAT16: "FP16",
    DType.BFLOAT16: "BF16",
    DType.FLOAT32: "FP32",
    DType.FLOAT64: "FP64",
}
_BYTES: Final = "BYTES"
_NO_NUMBERS: Final = ("FP16", "BF16")  # JSON has no form for them


@frozen
class GivenTensor:
    """An input of a request.

    Attributes:
        data: The elements as they are stored, or a list of numbers or strings, nested or not.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | memoryview | list[Any]


def datatype_of(spec: TensorSpec) -> str:
    """The protocol's name for the type of a tensor's elements; labels are strings."""
    if spec.label_kind is LabelKind.ELEMENTS:
        return _BYTES
    return _DATATYPES.get(spec.dtype, spec.dtype.value.upper())


def arrays_of(
    tensors: Sequence[GivenTensor], specs: Sequence[TensorSpec], optional: Sequence[str] = ()
) -> dict[str, Array]:
    """The inputs of a run; inputs with labels may be given as the numbers of labels too.

    Raises:
        InputMismatchError: inputs are missing, unknown, there twice or not what they say; lists
            every problem.
    """
    known = {spec.name: spec for spec in specs}
    arrays: dict[str, Array] = {}
    problems: list[str] = []
    for tensor in tensors:
        try:
            if tensor.name in arrays:
                raise ValueError("it is there twice")  # noqa: TRY301 - all problems are told at once
            arrays[tensor.name] = _array(tensor, known.get(tensor.name))
        except (ValueError, OverflowError) as error:
            problems.append(f"input {tensor.name!r:.80}: {error}")
    given = {tensor.name for tensor in tensors}
    missing = [name for name in known if name not in given and name not in optional]
    problems += [f"input {name!r} is missing" for name in missing]
    if not problems:
        return arrays
    hint = f"the model takes {', '.join(map(str, specs))}"
    if len(problems) == 1:
        raise InputMismatchError(problems[0], hint=hint)
    raise InputMismatchError(
        f"{len(problems)} inputs do not fit", details=tuple(problems), hint=hint
    )


def _array(tensor: GivenTensor, spec: TensorSpec | None) -> Array:
    """The elements of an input.

    Raises:
        ValueError, OverflowError: they are not what is wanted.
    """
    if spec is None:
        raise ValueError("the model has no such input")
    _check_shape(tensor.shape)
    wanted = datatype_of(spec)
    plain = "INT64" if wanted == _BYTES else wanted
    if tensor.datatype not in (wanted, plain):
        raise ValueError(f"expected datatype {wanted}, got {tensor.datatype!r:.20}")
    if tensor.datatype == _BYTES:
        return _words(tensor)
    if isinstance(tensor.data, list):
        return _numbers(tensor, spec.dtype.storage).reshape(tensor.shape)
    data = memoryview(tensor.data)
    size = prod(tensor.shape) * spec.dtype.itemsize
    if data.nbytes != size:
        raise ValueError(
            f"{list(tensor.shape)} of {tensor.datatype} is {size:,} bytes, got {data.nbytes:,}"
        )
    return np.frombuffer(data, spec.dtype.storage).reshape(tensor.shape)


def _check_shape(shape: Sequence[int]) -> None:
    """Refuse what no tensor has, before it is multiplied or printed."""
    if len(shape) > MAX_RANK:
        raise ValueError(f"a shape has at most {MAX_RANK} sizes, got {len(shape):,}")
    if not all(abs(size) <= MAX_DIMENSION for size in shape):
        raise ValueError(f"the shape has a size above {MAX_DIMENSION:,}")
    if any(size < 0 for size in shape):
        raise ValueError(f"the shape {list(shape)} has a size below zero")


def _numbers(tensor: GivenTensor, dtype: np.dtype[Any]) -> Array:
    """The elements of a list, in a row; none is changed by the type."""
    if tensor.datatype in _NO_NUMBERS:
        raise ValueError(f"JSON has no {tensor.datatype}: send it as binary data")
    try:
        flat = np.array(tensor.data, object).reshape(-1).tolist()
    except ValueError:
        raise ValueError("its lists are ragged") from None
    kinds = {*map(type, flat)}
    if list in kinds:
        raise ValueError("its lists are ragged")
    if not kinds <= {
        bool,
        int,
        float,
    }:  # numpy makes strings all as long as the longest
        raise ValueError(f"its elements are not all of {tensor.datatype}")
    _check_count(len(flat), tensor.shape)
    natural = np.array(flat)
    allowed = {"b": "b", "f": "fiu"}.get(dtype.kind, "iu")
    if natural.size and natural.dtype.kind not in allowed:
        raise ValueError(f"its elements are not all of {tensor.datatype}")
    found: Array = natural.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(found, natural):
        raise ValueError(f"it has numbers that {tensor.datatype} does not hold")
    return found


def _words(tensor: GivenTensor) -> Array:
    """Strings, as bytes or `str`, of type object."""
    if isinstance(tensor.data, list):
        flat = np.array(tensor.data, object).reshape(-1)
        if not all(isinstance(word, str | bytes) for word in flat.tolist()):
            raise ValueError("its elements are not all strings")
        words = flat.tolist()
    else:
        words = _unpacked(memoryview(tensor.data))
    _check_count(len(words), tensor.shape)
    found = np.empty(len(words), object)
    found[:] = words
    return found.reshape(tensor.shape)


def _unpacked(data: memoryview) -> list[bytes]:
    """The strings of a row of lengths, of four bytes, each with its bytes behind it."""
    words: list[bytes] = []
    place = 0
    while place < data.nbytes:
        if place + 4 > data.nbytes:
            raise ValueError("its last string has no length")
        (size,) = struct.unpack_from("<I", data, place)
        if place + 4 + size > data.nbytes:
            raise ValueError("its last string is cut off")
        words.append(bytes(data[place + 4 : place + 4 + size]))
        place += 4 + size
    return words


def _check_count(count: int, shape: Sequence[int]) -> None:
    if count != prod(shape):
        raise ValueError(f"{list(shape)} has {prod(shape):,} elements, got {count:,}")


def results_of(
    results: Mapping[str, Array], specs: Sequence[TensorSpec], wanted: Sequence[str]
) -> list[tuple[TensorSpec, Array]]:
    """The results that are wanted, in that order, or all; labels are `str`, of type object.

    Raises:
        UsageError: there is no such output.
        DeviceError: a result stands for no label.
    """
    known = {spec.name: spec for spec in specs}
    if len({*wanted}) < len(wanted):
        raise UsageError("an output is asked for twice")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(
            f"there is no output {', '.join(map(repr, unknown)):.200}",
            hint=f"the outputs are {', '.join(known)}",
        )
    chosen = [known[name] for name in wanted] if wanted else list(specs)
    return [(spec, labelled(spec, results[spec.name])) for spec in chosen]


def as_bytes(array: Array) -> bytes:
    """Elements as the protocol's binary data has them."""
    if array.dtype.kind != "O":
        return array.tobytes()
    words = [str(word).encode() for word in array.reshape(-1).tolist()]
    return b"".join(struct.pack("<I", len(word)) + word for word in words)


def as_list(spec: TensorSpec, array: Array) -> list[Any]:
    """Elements in a row, for JSON.

    Raises:
        UsageError: JSON has no form for them.
    """
    ask = "ask for binary data: parameters {binary_data: true} of the output"
    if datatype_of(spec) in _NO_NUMBERS:
        raise UsageError(f"output {spec.name!r}: JSON has no {datatype_of(spec)}", hint=ask)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UsageError(
            f"output {spec.name!r} has NaN or infinity, which JSON does not have", hint=ask
        )
    found: list[Any] = array.reshape(-1).tolist()
    return found
