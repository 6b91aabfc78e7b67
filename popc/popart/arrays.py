"""Arrays as ONNX's tensors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx

from popc.popart.dtypes import data_type_of_array, element_type

__all__ = ["fill_tensor", "onnx_number_of", "set_data", "tensor_message"]

_T: Final = onnx.TensorProto
# The fields of elements that programs read, by the number of their type.
_FIELDS: Final[dict[int, str]] = {
    _T.FLOAT: "float_data",
    _T.INT32: "int32_data",
    _T.INT64: "int64_data",
}
_MOST_TYPED: Final = 1 << 20  # elements; more take too long as objects of Python


def onnx_number_of(dtype: np.dtype[Any]) -> int:
    """The ONNX number of an array's element type.

    Raises:
        popart_exception: data of that type are not taken.
    """
    return element_type(data_type_of_array(dtype.newbyteorder("="))).onnx


def fill_tensor(message: onnx.TensorProto, array: np.ndarray[Any, Any]) -> None:
    """Give a tensor the data of ``array``, row by row, in the field where programs look for them.

    Raises:
        popart_exception: data of that type are not taken.
    """
    message.data_type = onnx_number_of(array.dtype)
    set_data(message, array, raw=False)


def set_data(message: onnx.TensorProto, array: np.ndarray[Any, Any], *, raw: bool) -> None:
    """Replace the shape and the data of a tensor.

    Args:
        message: The tensor; its name and element type stay.
        array: The data.
        raw: Whether they are stored as bytes, as large ones and those of other types always are.
    """
    name, number = message.name, message.data_type
    message.Clear()
    message.name, message.data_type = name, number
    message.dims.extend(array.shape)
    field = _FIELDS.get(number)
    if raw or field is None or array.size > _MOST_TYPED:
        message.raw_data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    else:
        getattr(message, field).extend(array.reshape(-1).tolist())


def tensor_message(array: np.ndarray[Any, Any], name: str = "") -> onnx.TensorProto:
    """A tensor with the data of ``array``.

    Raises:
        popart_exception: data of that type are not taken.
    """
    message = onnx.TensorProto(name=name)
    fill_tensor(message, array)
    return message
