"""The values that inputs are bound to, in the element types that the model declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.tensors import dtype_from_onnx
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16

__all__ = ["BoundValue", "as_array", "chosen", "converted", "element_type"]

# An array, a list of arrays for a sequence, None for an empty optional.
BoundValue: TypeAlias = "Array | list[Any] | None"


def element_type(type_: onnx.TypeProto) -> DType:
    """The element type of a tensor, or of the tensors in a sequence or optional.

    Raises:
        ModelError: popc does not support it.
    """
    while not type_.HasField("tensor_type"):
        if type_.HasField("sequence_type"):
            type_ = type_.sequence_type.elem_type
        elif type_.HasField("optional_type"):
            type_ = type_.optional_type.elem_type
        else:
            raise ModelError(f"{type_.WhichOneof('value') or 'an unknown type'} is not supported")
    return dtype_from_onnx(type_.tensor_type.elem_type)


def chosen(name: str, value: Any, type_: onnx.TypeProto) -> Any:
    """The array, of several by name as in a .npz file, that the input ``name`` takes.

    A tensor takes the one of its name, a sequence all.

    Raises:
        ValueError: none has its name.
    """
    if not isinstance(value, Mapping):
        return value
    while type_.HasField("optional_type"):
        type_ = type_.optional_type.elem_type
    if type_.HasField("sequence_type"):
        return list(value.values())
    if name not in value:
        raise ValueError(f"there is no array {name!r}, only {', '.join(map(repr, value))}")
    return value[name]


def as_array(value: Any) -> Array:
    """The array that numpy makes of ``value``.

    Raises:
        ValueError: it holds arrays of different shapes.
    """
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError("arrays of different shapes do not make a tensor") from error


def converted(value: Any, type_: onnx.TypeProto) -> BoundValue:
    """``value`` in the declared element types; a list for a sequence.

    Raises:
        ValueError: it is none of that type.
    """
    if type_.HasField("optional_type"):
        return None if value is None else converted(value, type_.optional_type.elem_type)
    if type_.HasField("sequence_type"):
        if not isinstance(value, (list, tuple)):
            raise ValueError("a sequence needs a list of arrays")
        return [converted(item, type_.sequence_type.elem_type) for item in value]
    if value is None:
        raise ValueError("a tensor cannot be None")
    return _exactly(as_array(value), element_type(type_))


def _exactly(value: Array, dtype: DType) -> Array:
    """``value`` in ``dtype`` (bfloat16: float32); floats may be rounded, but not to infinity.

    Raises:
        ValueError: it has no such values.
    """
    storage = np.dtype(np.float32) if dtype is DType.BFLOAT16 else dtype.storage
    if value.dtype.kind not in "biuf" and value.dtype.name != "bfloat16":
        raise ValueError(f"{value.dtype} values cannot become {dtype}")
    with np.errstate(all="ignore"):
        result = value.astype(storage)
        rounded = result
        if dtype is DType.BFLOAT16:
            rounded = from_bfloat16(to_bfloat16(result)).reshape(value.shape)
        lost = np.isinf(rounded) & np.isfinite(value) if dtype.is_float else np.False_
        bent = not dtype.is_float and not np.array_equal(result.astype(value.dtype), value)
    if lost.any():
        raise ValueError(f"{value.dtype} values {_few(value[lost])} become infinite as {dtype}")
    if bent:
        raise ValueError(f"{value.dtype} values {_few(value)} cannot become {dtype} without loss")
    return result


def _few(value: Array) -> str:
    flat = value.reshape(-1)
    return f"{', '.join(map(str, flat[:3]))}{', ...' if flat.size > 3 else ''}"
