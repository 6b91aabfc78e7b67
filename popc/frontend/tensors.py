"""ONNX tensors and types as popc's."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from popc.frontend import messages as onnx
from popc.ir import TensorType
from popc.ops.shared import shared_source
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = [
    "decode_sparse_tensor",
    "decode_tensor",
    "dtype_from_onnx",
    "dtype_from_onnx_name",
    "dtype_name",
    "is_supported",
    "onnx_type_of",
    "tensor_of_file",
]

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
    onnx.TensorProto.FLOAT8E4M3FN: DType.FLOAT8E4M3FN,
    onnx.TensorProto.FLOAT8E4M3FNUZ: DType.FLOAT8E4M3FNUZ,
    onnx.TensorProto.FLOAT8E5M2: DType.FLOAT8E5M2,
    onnx.TensorProto.FLOAT8E5M2FNUZ: DType.FLOAT8E5M2FNUZ,
}
_ONNX: Final = {dtype: number for number, dtype in _DTYPES.items()}
# Where elements are as they are, if they are not raw; other fields hold bits of several types.
_FIELDS: Final[dict[int, str]] = {
    onnx.TensorProto.FLOAT: "float_data",
    onnx.TensorProto.DOUBLE: "double_data",
    onnx.TensorProto.INT32: "int32_data",
    onnx.TensorProto.INT64: "int64_data",
}


def is_supported(number: int) -> bool:
    """True if popc has the ONNX element type ``number``."""
    return number in _DTYPES


def dtype_name(number: int) -> str:
    """The name of an ONNX element type number, for messages."""
    if number in _DTYPES:
        return _DTYPES[number].value
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


def tensor_of_file(data: bytes) -> Array:
    """The elements of a tensor that is a file of its own, as in ONNX's test data; words as text.

    Raises:
        ModelError: it is no such tensor.
    """
    proto = onnx.TensorProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError("it is damaged, or no tensor") from error
    if proto.data_type == onnx.TensorProto.STRING:
        return _from_fields(proto).astype(str)
    _, stored = decode_tensor(proto)
    return stored


def decode_tensor(proto: onnx.TensorProto, base_dir: str = "") -> tuple[TensorType, Array]:
    """The type and data of an ONNX tensor, stored as `DType.storage` says.

    ``base_dir`` is where external data lies.  Elements are not copied more than once.

    Raises:
        ModelError: the element type is not supported or the data does not fit the shape.
    """
    return shared_source(proto, lambda: _decoded(proto, base_dir))


def _decoded(proto: onnx.TensorProto, base_dir: str) -> tuple[TensorType, Array]:

    dtype = dtype_from_onnx(proto.data_type)
    type_ = TensorType(dtype, tuple(proto.dims))
    if any(dim < 0 for dim in type_.shape):
        raise ModelError(f"tensor {proto.name!r} has the shape {list(type_.shape)}")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        from popc.frontend.external import external_array

        array = external_array(proto, _little_endian(dtype), base_dir)
    elif proto.HasField("raw_data"):
        array = _from_bytes(proto.raw_data, type_, proto.name)
    else:
        array = _from_fields(proto)
    if array.shape != type_.shape:
        raise ModelError(
            f"tensor {proto.name!r} has the shape {list(type_.shape)}, "
            f"but its data {list(array.shape)}"
        )
    return type_, _stored(array, dtype)


def _little_endian(dtype: DType) -> np.dtype[Any]:
    return dtype.storage.newbyteorder("<")


def _from_bytes(data: bytes, type_: TensorType, name: str) -> Array:
    if len(data) != type_.nbytes:
        raise ModelError(
            f"tensor {name!r} of shape {list(type_.shape)} needs {type_.nbytes:,} bytes, "
            f"but has {len(data):,}"
        )
    elements: Array = np.frombuffer(data, _little_endian(type_.dtype))
    return elements.reshape(type_.shape)


def _from_fields(proto: onnx.TensorProto) -> Array:
    """Elements in the fields that protobuf has for each type."""
    field = _FIELDS.get(proto.data_type)
    try:
        if field is not None and not proto.HasField("segment"):
            dtype = dtype_from_onnx(proto.data_type).storage
            return np.array(getattr(proto, field), dtype).reshape(tuple(proto.dims))
        from onnx import numpy_helper

        return numpy_helper.to_array(proto)
    except (ValueError, TypeError) as error:
        raise ModelError(f"tensor {proto.name!r} cannot be decoded: {error}") from error


def _stored(array: Array, dtype: DType) -> Array:
    """``array`` as kernels expect it: native byte order, narrow floats as bits, bools 0 or 1."""
    if dtype is DType.BOOL:
        return np.asarray(array.view(np.uint8) != 0)
    if not array.dtype.isnative:
        return array.astype(dtype.storage)
    return array.view(dtype.storage)


def decode_sparse_tensor(
    proto: onnx.SparseTensorProto, base_dir: str = ""
) -> tuple[TensorType, Array]:
    """A sparse tensor, made dense.  Indices are flat, or one row of coordinates per value.

    Raises:
        ModelError: as `decode_tensor`; or indices do not fit the shape.
    """
    values_type, values = decode_tensor(proto.values, base_dir)
    indices = decode_tensor(proto.indices, base_dir)[1].astype(np.int64)
    type_ = values_type.with_shape(tuple(proto.dims))
    where = f"sparse tensor {proto.values.name!r} of shape {list(type_.shape)}"
    try:
        if indices.ndim == 2:
            indices = np.ravel_multi_index(tuple(indices.T), type_.shape)
        dense = np.zeros(type_.size, type_.dtype.storage)
        if indices.size and indices.min() < 0:
            raise ModelError(f"{where} has negative indices")
        dense[indices] = values
    except (ValueError, IndexError, MemoryError) as error:
        raise ModelError(f"{where} cannot be made dense: {error}") from error
    return type_, dense.reshape(type_.shape)
