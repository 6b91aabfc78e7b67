"""The type of a tensor: element type and shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from popc.popart.calls import constructed, native
from popc.popart.dtypes import data_type_named, data_type_of_array, element_type
from popc.popart.enums import DataType
from popc.popart.errors import popart_exception

__all__ = ["TensorInfo", "_TensorInfoCore", "getTensorInfo"]

_NUMPY: Final = {
    np.uint8: "UINT8",
    np.uint16: "UINT16",
    np.uint32: "UINT32",
    np.uint64: "UINT64",
    np.int8: "INT8",
    np.int16: "INT16",
    np.int32: "INT32",
    np.int64: "INT64",
    np.float16: "FLOAT16",
    np.float32: "FLOAT",
    np.float64: "DOUBLE",
    np.bool_: "BOOL",
}


class _TensorInfoCore:
    """An element type and a shape; the shape of one shard too, if the tensor is divided.

    Forms: ``()``, ``(dataType, shape)``, ``(dataType, shape, metaShape)`` with a `DataType`, or
    ``(dataType, shape)`` with its upper-case name, where ``shape`` may be text such as ``"(2,3)"``.
    """

    __slots__ = ("_meta_shape", "_shape", "_type")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._type = DataType.UNDEFINED
        self._shape: tuple[int, ...] = ()
        self._meta_shape: tuple[int, ...] = ()
        cls = _TensorInfoCore
        forms = (cls._empty, cls._typed, cls._named_by_text, cls._named)
        constructed(self, forms, args, kwargs)

    def _empty(self) -> None:
        """An info that is not set."""

    def _typed(
        self, dataType: DataType, shape: Sequence[int], metaShape: Sequence[int] = ()
    ) -> None:
        self._assign(dataType, shape, metaShape)

    def _named_by_text(self, dataType: str, shape: str) -> None:
        self._assign(data_type_named(dataType), _shape_of_text(shape))

    def _named(self, dataType: str, shape: Sequence[int]) -> None:
        self._assign(data_type_named(dataType), shape)

    def _assign(
        self, data_type: DataType, shape: Sequence[int], meta_shape: Sequence[int] = ()
    ) -> None:
        self._type, self._shape, self._meta_shape = data_type, tuple(shape), tuple(meta_shape)

    @native
    def set(
        self,
        dataType: DataType,
        shape: Sequence[int] | None = None,
        metaShape: Sequence[int] = (),
    ) -> None:
        """Change the type; the shapes too, if any is given."""
        if shape is None:
            self._type = dataType
        else:
            self._assign(dataType, shape, metaShape)

    def shape(self) -> list[int]:
        """The size of each dimension."""
        return list(self._shape)

    def metaShape(self) -> list[int]:
        """The shape before the tensor was divided; [] if it is whole."""
        return list(self._meta_shape)

    def rank(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    def nelms(self) -> int:
        """The number of elements."""
        return prod(self._shape)

    def nbytes(self) -> int:
        """The size in bytes."""
        return self.nelms() * element_type(self._type).nbytes

    @native
    def dim(self, i: int) -> int:
        """The size of dimension ``i``.

        Raises:
            popart_exception: there is no such dimension.
        """
        if not 0 <= i < len(self._shape):
            raise popart_exception(
                f"Invalid input dimension {i}, tensor of rank {len(self._shape)}"
            )
        return self._shape[i]

    @native
    def strides(self, shape: Sequence[int] = ()) -> list[int]:
        """The distance in bytes between neighbours along each dimension, rows being contiguous."""
        sizes = tuple(shape) or self._shape
        nbytes = element_type(self._type).nbytes
        return [nbytes * prod(sizes[axis + 1 :]) for axis in range(len(sizes))]

    def dataType(self) -> DataType:
        """The element type."""
        return self._type

    def data_type(self) -> str:
        """The upper-case name of the element type."""
        return self._type.name

    def data_type_lcase(self) -> str:
        """The lower-case name of the element type."""
        return element_type(self._type).name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _TensorInfoCore):
            return NotImplemented
        mine = (self._type, self._shape, self._meta_shape)
        return mine == (other._type, other._shape, other._meta_shape)

    __hash__ = None  # type: ignore[assignment]  # it can be changed


class TensorInfo(_TensorInfoCore):
    """An element type and a shape: ``(dtype, shape)``, or those of a numpy array.

    Raises:
        KeyError: the type of Python or numpy is not one that PopART knows.
        TypeError: other arguments.
        popart_exception: there is no element type of that name, or the text is no shape.
    """

    def __init__(self, *args: Any) -> None:
        if len(args) == 1 and isinstance(args[0], np.ndarray):
            array = args[0]
            super().__init__(_get_popart_type(array.dtype), array.shape)
        elif len(args) == 2:
            super().__init__(_get_popart_type(args[0]), args[1])
        else:
            raise TypeError(f"Can not create TensorInfo with args {args}")


def _get_popart_type(dtype: object) -> object:
    """The name of a type of numpy; what else there is stays as it is.

    Raises:
        KeyError: the type is not one that PopART knows.
    """
    if isinstance(dtype, np.dtype):
        return _NUMPY[dtype.type] if dtype.names is None else data_type_of_array(dtype)
    if isinstance(dtype, type):
        return _NUMPY[dtype]
    return dtype


def _shape_of_text(text: str) -> list[int]:
    if " " in text:
        raise popart_exception(f"s contains a space: {text!r} is not a shape such as (2,3)")
    if not re.fullmatch(r"\(((\d+,)*\d+,?)?\)", text):
        raise popart_exception(f"invalid string for shape: {text!r} is not one such as (2,3)")
    return [int(number) for number in re.findall(r"\d+", text)]


def getTensorInfo(array: np.ndarray[Any, Any], /) -> _TensorInfoCore:
    """The element type and shape of an array.

    Raises:
        popart_exception: data of that type are not taken.
    """
    return _TensorInfoCore(data_type_of_array(array.dtype), array.shape)
