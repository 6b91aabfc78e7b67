"""ONNX tensors and types as popc's."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from popc.ir import TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["decode_tensor", "dtype_from_onnx", "dtype_from_onnx_name", "dtype_name", "onnx_type_of"]

_DTYPES: Final[dict[int, DType]] = {
    onnx.TensorProto.BOOL: DType.BOOL,
    onnx.TensorProto.INT8: DType.INT8,
    onnx.TensorProto.INT16: DType.INT16,
    onnx.TensorProto.INT32: DType.INT32,
    onnx.TensorProto.INT64: DType.INT64,
    onnx.TensorProto.UINT8: DType.UINT8,
    onnx.TensorProto.UINT16: DType.UINT16,
    onnx.TensorProto.UINT32: DType.UINT32,
    onnx.TensorProto.UINT64: DType.UINT64,
    onnx.TensorProto.FLOAT16: DType.FLOAT16,
    onnx.TensorProto.BFLOAT16: DType.BFLOAT16,
    onnx.TensorProto.FLOAT: DType.FLOAT32,
    onnx.TensorProto.DOUBLE: DType.FLOAT64,
}
_ONNX: Final = {dtype: number for number, dtype in _DTYPES.items()}


def dtype_name(number: int) -> str:
    """The ONNX name of an element type number, for messages."""
    try:
        return str(onnx.TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"element type {number}"


def dtype_from_onnx(number: int) -> DType:
    """The `DType` of an ONNX element type number.

    Raises:
        ModelError: popc does not support the element type.
    """
    if number not in _DTYPES:
        raise ModelError(f"element type {dtype_name(number)} is not supported")
    return _DTYPES[number]


def dtype_from_onnx_name(name: str) -> DType:
    """The `DType` of an ONNX element type name ("FLOAT"), as attributes before opset 6 hold it.

    Raises:
        ModelError: popc does not support the element type, or there is none of that name.
    """
    if name.upper() not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - no dict
        raise ModelError(f"element type {name!r} does not exist")
    return dtype_from_onnx(onnx.TensorProto.DataType.Value(name.upper()))


def onnx_type_of(dtype: DType) -> int:
    """The ONNX element type number of ``dtype``."""
    return _ONNX[dtype]


def decode_tensor(proto: onnx.TensorProto, base_dir: str = "") -> tuple[TensorType, Array]:
    """The type and data of an ONNX tensor, stored as `DType.storage` says.

    ``base_dir`` is where external data lies.

    Raises:
        ModelError: the element type is not supported or the data does not fit the shape.
    """
    dtype = dtype_from_onnx(proto.data_type)
    shape = tuple(proto.dims)
    raw_is_native = proto.HasField("raw_data") and not proto.external_data
    if raw_is_native and len(proto.raw_data) == TensorType(dtype, shape).nbytes:
        array = np.frombuffer(proto.raw_data, dtype.storage.newbyteorder("<")).reshape(shape)
    else:
        array = _decode_slowly(proto, base_dir)
    if array.shape != shape:
        raise ModelError(f"tensor {proto.name!r} has shape {list(shape)} but other data")
    return TensorType(dtype, shape), array.view(dtype.storage)


def _decode_slowly(proto: onnx.TensorProto, base_dir: str) -> Array:
    try:
        return numpy_helper.to_array(proto, base_dir)
    except (ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise ModelError(f"tensor {proto.name!r} cannot be decoded: {error}") from error
