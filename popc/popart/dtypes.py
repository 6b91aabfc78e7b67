"""Element types: PopART's names, sizes and numpy's and ONNX's types for them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from popc.popart.enums import DataType
from popc.popart.errors import popart_exception
from popc_runtime.ground.frozen import frozen

__all__ = [
    "ElementType",
    "data_type_named",
    "data_type_of_array",
    "data_type_of_onnx",
    "element_type",
]


@frozen
class ElementType:
    """An element type.

    Attributes:
        type: PopART's number.
        nbytes: The size of an element; -1 if it has none.
        name: The lower-case name.
        onnx: The number in ONNX's messages; 0 for undefined.
    """

    type: DataType
    nbytes: int
    name: str
    onnx: int


_T: Final = DataType
_TYPES: Final = (
    ElementType(_T.UINT8, 1, "uint8", 2),
    ElementType(_T.INT8, 1, "int8", 3),
    ElementType(_T.UINT16, 2, "uint16", 4),
    ElementType(_T.INT16, 2, "int16", 5),
    ElementType(_T.INT32, 4, "int32", 6),
    ElementType(_T.INT64, 8, "int64", 7),
    ElementType(_T.UINT32, 4, "uint32", 12),
    ElementType(_T.UINT64, 8, "uint64", 13),
    ElementType(_T.BOOL, 1, "bool", 9),
    ElementType(_T.FLOAT, 4, "float32", 1),
    ElementType(_T.FLOAT16, 2, "float16", 10),
    ElementType(_T.BFLOAT16, 2, "bfloat16", 16),
    ElementType(_T.FLOAT8_143, 1, "float8_143", 0),
    ElementType(_T.FLOAT8_152, 1, "float8_152", 0),
    ElementType(_T.DOUBLE, 8, "float64", 11),
    ElementType(_T.COMPLEX64, 8, "complex64", 14),
    ElementType(_T.COMPLEX128, 16, "complex128", 15),
    ElementType(_T.STRING, -1, "string", 8),
    ElementType(_T.UNDEFINED, -1, "undefined", 0),
)
_BY_TYPE: Final = {element.type: element for element in _TYPES}
_BY_ONNX: Final = {element.onnx: element.type for element in _TYPES if element.onnx} | {
    0: _T.UNDEFINED
}
_OF_NUMPY: Final = {
    np.dtype(_BY_TYPE[type_].name): type_
    for type_ in (
        *(_T.UINT8, _T.INT8, _T.UINT16, _T.INT16, _T.INT32, _T.INT64, _T.UINT32, _T.UINT64),
        *(_T.BOOL, _T.FLOAT, _T.FLOAT16),
    )
}
_FLOAT8: Final = {"float8_143": _T.FLOAT8_143, "float8_152": _T.FLOAT8_152}


def element_type(data_type: DataType) -> ElementType:
    """The facts about a type."""
    return _BY_TYPE[data_type]


def data_type_named(name: str) -> DataType:
    """The type of an upper-case name.

    Raises:
        popart_exception: there is none of that name.
    """
    if name not in DataType.__members__:
        listed = ", ".join(sorted(DataType.__members__))
        raise popart_exception(f"no ONNX type {name}, they're [{listed}]")
    return DataType[name]


def data_type_of_onnx(number: int) -> DataType:
    """The type of a number in ONNX's messages; UNDEFINED if PopART has none."""
    return _BY_ONNX.get(number, DataType.UNDEFINED)


def data_type_of_array(dtype: np.dtype[Any]) -> DataType:
    """The type of an array's elements.

    Raises:
        popart_exception: data of that type are not taken.
    """
    if dtype.names and len(dtype.names) == 1 and dtype.names[0] in _FLOAT8 and dtype.itemsize == 1:
        return _FLOAT8[dtype.names[0]]
    if dtype not in _OF_NUMPY:
        raise popart_exception(f"No numpy type {dtype} registered in map to DataType")
    return _OF_NUMPY[dtype]
