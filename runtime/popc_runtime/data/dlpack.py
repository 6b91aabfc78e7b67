"""Tensors of other libraries by DLPack (https://dmlc.github.io/dlpack), without importing them.

numpy knows the protocol too, but not its bfloat16, and plain runs go without numpy.
"""

from __future__ import annotations

import ctypes
from math import prod

from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any, Final

__all__ = ["CPU", "ForeignTensor", "capsule_of", "foreign_tensor"]

CPU: Final = (1, 0)  # kDLCPU
_ON_HOST: Final = frozenset({1, 3, 11, 13})  # that, and pinned or managed memory of devices
_BFLOAT: Final = 4  # kDLBfloat
_TYPES: Final = (
    {(0, 8 * size): f"int{8 * size}" for size in (1, 2, 4, 8)}
    | {(1, 8 * size): f"uint{8 * size}" for size in (1, 2, 4, 8)}
    | {(2, 8 * size): f"float{8 * size}" for size in (2, 4, 8)}
    | {(_BFLOAT, 16): "bfloat16", (6, 8): "bool"}
)


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


@frozen
class ForeignTensor:
    """The memory of another library's tensor.

    Attributes:
        dtype: Of its elements; bfloat16 as bit patterns.
        shape: Dimensions.
        strides: Bytes from element to element, by dimension; ``None`` if it is contiguous.
        memory: From the first element to the last; keeps the tensor alive.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    memory: memoryview


def foreign_tensor(value: Any) -> ForeignTensor:
    """The memory of an object with DLPack's interface.

    Raises:
        ValueError: it is not in the memory of the host, its owner does not give it, or its
            elements are of a type that popc does not know.
    """
    device = int(value.__dlpack_device__()[0])
    if device not in _ON_HOST:
        raise ValueError(f"a tensor on another device (of DLPack's type {device})")
    try:
        capsule = value.__dlpack__()
    except Exception as error:  # whatever its library raises
        raise ValueError(f"a tensor that cannot be shared: {error}") from error
    # The capsule keeps its name, so that it lets go of the tensor when nobody needs it any more.
    held = _Tensor.from_address(_address(capsule, b"dltensor"))
    name = _TYPES.get((held.dtype.code, held.dtype.bits)) if held.dtype.lanes == 1 else None
    if name is None:
        raise ValueError(f"elements of DLPack's type {held.dtype.code}, {held.dtype.bits} bits")
    dtype = DType(name)
    shape = tuple(held.shape[: held.ndim])
    steps = tuple(held.strides[: held.ndim]) if held.strides and held.ndim else _packed(shape)
    if any(step < 0 for step in steps):
        raise ValueError("a tensor with negative strides")
    reach = sum((size - 1) * step for size, step in zip(shape, steps, strict=True)) + 1
    nbytes = reach * dtype.itemsize if prod(shape) else 0
    memory: Any = b""
    if nbytes:
        memory = (ctypes.c_uint8 * nbytes).from_address(held.data + held.byte_offset)
        memory.owner = capsule
    contiguous = not nbytes or _is_packed(shape, steps)
    strides = None if contiguous else tuple(step * dtype.itemsize for step in steps)
    return ForeignTensor(dtype, shape, strides, memoryview(memory).cast("B"))


def capsule_of(array: Any, dtype: DType, settings: dict[str, Any]) -> Any:
    """The capsule of a numpy array with elements stored as ``dtype`` is."""
    capsule = array.__dlpack__(**settings)
    if dtype is DType.BFLOAT16:
        if _has_name(capsule, b"dltensor_versioned"):
            held = _Versioned.from_address(_address(capsule, b"dltensor_versioned")).tensor
        else:
            held = _Tensor.from_address(_address(capsule, b"dltensor"))
        held.dtype.code = _BFLOAT
    return capsule


def _has_name(capsule: object, name: bytes) -> bool:
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    return bool(is_valid(capsule, name))


def _address(capsule: object, name: bytes) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    found: int = pointer(capsule, name)
    return found


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _is_packed(shape: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    wanted = zip(shape, steps, _packed(shape), strict=True)
    return all(size == 1 or step == packed for size, step, packed in wanted)
