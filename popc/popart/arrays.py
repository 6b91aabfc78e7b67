"""Arrays as ONNX's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from popc.popart.dtypes import data_type_of_array, element_type

__all__ = ["fill_tensor", "onnx_number_of", "tensor_message"]


def onnx_number_of(dtype: np.dtype[Any]) -> int:
    """The ONNX number of an array's element type.

    Raises:
        popart_exception: data of that type are not taken.
    """
    return element_type(data_type_of_array(dtype.newbyteorder("="))).onnx


def fill_tensor(message: onnx.TensorProto, array: np.ndarray[Any, Any]) -> None:
    """Give a tensor the data of ``array``, little-endian and row by row.

    Raises:
        popart_exception: data of that type are not taken.
    """
    message.data_type = onnx_number_of(array.dtype)
    message.dims.extend(array.shape)
    message.raw_data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def tensor_message(array: np.ndarray[Any, Any], name: str = "") -> onnx.TensorProto:
    """A tensor with the data of ``array``.

    Raises:
        popart_exception: data of that type are not taken.
    """
    message = onnx.TensorProto(name=name)
    fill_tensor(message, array)
    return message
