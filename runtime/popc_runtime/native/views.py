"""Operands as encoders see them: views of memory, without numpy.

A process that loads a program and runs it need not import numpy, which takes longer than all the
rest.  So encoders get `View` objects, which have the names that numpy's arrays have for the same
things, and do with them what the functions here do, no more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import copysign, inf, prod
from types import EllipsisType

from popc_runtime.format.buffers import aligned_bytes
from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Packing
from popc_runtime.ground.hints import Any, TypeAlias, overload

__all__ = [
    "PackedView",
    "View",
    "address_of",
    "as_view",
    "broadcast_to",
    "empty",
    "filled",
    "is_same_memory",
    "merged_view",
    "row_major",
    "view_of_bytes",
    "view_of_numbers",
]

Index: TypeAlias = "int | slice | EllipsisType | None"


class View:
    """A strided view of memory.

    Attributes:
        address: Of the first element.
        shape: As numpy's.
        strides: In bytes, as numpy's.
        dtype: The type that the elements are stored as: UINT16 for bfloat16.
        owner: Whatever owns the memory.
    """

    __slots__ = ("address", "dtype", "owner", "shape", "strides")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: DType,
        strides: tuple[int, ...] | None = None,
        owner: object = None,
    ) -> None:
        self.address = address
        self.shape = shape
        self.strides = row_major(shape, dtype.itemsize) if strides is None else strides
        self.dtype = dtype
        self.owner = owner

    def __repr__(self) -> str:
        return f"View({self.dtype}[{','.join(map(str, self.shape))}], strides {self.strides})"

    def __len__(self) -> int:
        """Elements of the first dimension."""
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """True if elements lie in memory one after another, in the order of their indices."""
        expected = self.itemsize
        for dim, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if dim != 1:
                if stride != expected and 0 not in self.shape:
                    return False
                expected *= dim
        return True

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For numpy, where something is left to it: the array shares the memory."""
        return {
            "version": 3,
            "typestr": self.dtype.typestr,
            "shape": self.shape,
            "strides": self.strides,
            "data": (self.address, False),
        }

    def of_memory(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        dtype: DType | None = None,
    ) -> View:
        """Another view of the same memory, ``offset`` bytes behind the first element."""
        return View(self.address + offset, shape, dtype or self.dtype, strides, self.owner)

    @property
    def T(self) -> View:  # noqa: N802 - numpy's name
        """Dimensions in the opposite order."""
        return self.of_memory(self.shape[::-1], self.strides[::-1])

    def transpose(self, *order: int) -> View:
        """Dimensions in another order."""
        return self.of_memory(
            tuple(self.shape[axis] for axis in order), tuple(self.strides[axis] for axis in order)
        )

    def reshape(self, *shape: int | tuple[int, ...]) -> View:
        """Another shape of the same elements, one dimension of which may be -1.

        Raises:
            ValueError: that needs a copy.
        """
        flat = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        view = merged_view(self, tuple(int(size) for size in flat))  # type: ignore[arg-type]
        if view is None:
            raise ValueError(f"{self} cannot have shape {flat} without a copy")
        return view

    def __getitem__(self, index: Index | tuple[Index, ...]) -> View:
        """A part: integers, slices, ``None`` and ``...`` as numpy's."""
        parts = index if isinstance(index, tuple) else (index,)
        used = sum(part is not None and part is not ... for part in parts)
        rest = (slice(None),) * (self.ndim - used)
        at = next((place for place, part in enumerate(parts) if part is ...), len(parts))
        whole: Iterator[Index] = iter((*parts[:at], *rest, *parts[at + 1 :]))
        offset, shape, strides, axis = 0, [], [], 0
        for part in whole:
            if part is None:
                shape.append(1)
                strides.append(0)
                continue
            dim, stride = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(part, int):
                offset += range(dim)[part] * stride
                continue
            assert isinstance(part, slice), "there is one ellipsis at most"
            chosen = range(dim)[part]
            offset += chosen.start * stride if chosen else 0
            shape.append(len(chosen))
            strides.append(stride * chosen.step)
        return self.of_memory(tuple(shape), tuple(strides), offset)

    def item(self) -> Any:
        """The value of the only element."""
        assert self.size == 1, "there is one element"
        return struct.unpack(self.dtype.code, _window(self.address, self.itemsize))[0]

    def tolist(self) -> list[Any]:
        """The values of all elements, in the order of their indices, without the shape."""
        if self.is_contiguous:
            return list(struct.unpack(f"{self.size}{self.dtype.code}", self.memory()))
        if self.ndim == 1:
            return [self[place].item() for place in range(len(self))]
        return [value for row in range(len(self)) for value in self[row].tolist()]

    def memory(self) -> memoryview:
        """The bytes of contiguous elements; keep the view while they are used."""
        assert self.is_contiguous, "elements lie one after another"
        return _window(self.address, self.nbytes)


class PackedView(View):
    """A constant that is stored in panels.

    Its elements are in their own order for whoever asks where they lie: they are unpacked then.

    Attributes:
        panels: Its shape, at the address where its panels lie.
        packing: Which panels these are.
    """

    __slots__ = ("_unpack", "packing", "panels")

    def __init__(self, panels: View, packing: Packing, unpack: Callable[[], int]) -> None:
        self.shape, self.strides, self.dtype = panels.shape, panels.strides, panels.dtype
        self.owner = panels.owner
        self.panels = panels
        self.packing = packing
        self._unpack = unpack

    @property
    def address(self) -> int:  # type: ignore[override]
        """The address of the first element, in memory where all lie in their own order."""
        return self._unpack()


def _window(address: int, nbytes: int) -> memoryview:
    from popc_runtime.native import _native

    return _native.window(address, nbytes)


def address_of(buffer: memoryview) -> int:
    """The address of the bytes of a buffer."""
    from popc_runtime.native import _native

    return _native.address(buffer)


def row_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides of elements that lie one after another."""
    strides: list[int] = []
    step = itemsize
    for dim in reversed(shape):
        strides.append(step)
        step *= max(dim, 1)
    return tuple(reversed(strides))


@overload
def as_view(array: None) -> None: ...
@overload
def as_view(array: Any) -> View: ...
def as_view(array: Any) -> View | None:
    """The view of a numpy array; views, and ``None``, are what they are."""
    if array is None or isinstance(array, View):
        return array
    address = array.__array_interface__["data"][0]
    return View(address, array.shape, DType(array.dtype.name), array.strides, array)


def broadcast_to(view: View, shape: Sequence[int]) -> View:
    """The same as numpy's.

    Raises:
        ValueError: it does not broadcast.
    """
    added = len(shape) - view.ndim
    pairs = list(zip(view.shape, shape[added:], strict=True)) if added >= 0 else []
    if added < 0 or any(own not in (1, wanted) for own, wanted in pairs):
        raise ValueError(f"shape {view.shape} does not broadcast to {tuple(shape)}")
    steps = zip(pairs, view.strides, strict=True)
    strides = (0 if own != wanted else step for (own, wanted), step in steps)
    return view.of_memory(tuple(shape), ((0,) * added + tuple(strides)))


def merged_view(view: View, shape: tuple[int, ...]) -> View | None:
    """``view`` reshaped to ``shape``, with one -1 at most, if that needs no copy."""
    if -1 in shape:
        rest = -prod(shape)
        shape = tuple((view.size // rest if rest else 0) if size < 0 else size for size in shape)
    if prod(shape) != view.size:
        raise ValueError(f"{view.size} elements do not have shape {shape}")
    if view.size == 0:
        return view.of_memory(shape)
    return _regrouped(view, shape)


def _regrouped(view: View, shape: tuple[int, ...]) -> View | None:
    """By groups of dimensions, the smallest that have as many elements before and after."""
    pairs = zip(view.shape, view.strides, strict=True)
    old = [(dim, step) for dim, step in pairs if dim != 1]
    new = [dim for dim in shape if dim != 1]
    strides: list[int] = []
    start = end = first = last = 0
    while end < len(old):
        before, after, end, last = old[end][0], new[last], end + 1, last + 1
        while before != after:
            if after < before:
                after, last = after * new[last], last + 1
            else:
                before, end = before * old[end][0], end + 1
        group = old[start:end]
        if any(step != dim * inner for (_, step), (dim, inner) in pairwise(group)):
            return None
        strides += row_major(new[first:last], group[-1][1])
        start, first = end, last
    return view.of_memory(shape, _with_ones(shape, strides, view.itemsize))


def _with_ones(shape: Sequence[int], strides: list[int], itemsize: int) -> tuple[int, ...]:
    """Strides of dimensions of 1 among those of the others, as if memory were contiguous."""
    found: list[int] = []
    step = itemsize
    for dim in reversed(shape):
        if dim != 1:
            step = strides.pop()
        found.append(step)
        step *= dim
    return tuple(reversed(found))


def is_same_memory(a: View, b: View) -> bool:
    """True if two views of the same type are the same elements (an op done in place)."""
    return a.address == b.address and a.strides == b.strides and a.shape == b.shape


def empty(shape: tuple[int, ...], dtype: DType) -> View:
    """New memory, contiguous, whose elements are 0."""
    buffer = aligned_bytes(max(prod(shape) * dtype.itemsize, 1))
    return View(address_of(buffer), shape, dtype, owner=buffer)


def view_of_numbers(values: Sequence[Any], dtype: DType, shape: tuple[int, ...] = (-1,)) -> View:
    """New memory that holds ``values``, contiguous."""
    return view_of_bytes(_stored(values, dtype), dtype, shape)


def view_of_bytes(data: bytes, dtype: DType, shape: tuple[int, ...]) -> View:
    """New memory that holds elements as they are stored, contiguous."""
    view = empty((len(data) // dtype.itemsize,), dtype)
    view.memory()[:] = data
    return view.reshape(shape)


def filled(shape: tuple[int, ...], dtype: DType, value: Any) -> View:
    """New memory, contiguous, all elements ``value``."""
    view = empty(shape, dtype)
    view.memory()[:] = _stored([value], dtype) * view.size
    return view


def _stored(values: Sequence[Any], dtype: DType) -> bytes:
    """Bytes of elements; floating-point numbers that are too large become infinite, as numpy's."""
    try:
        return struct.pack(f"{len(values)}{dtype.code}", *values)
    except OverflowError:
        if not dtype.is_float:
            raise
        if len(values) > 1:
            return b"".join(_stored([value], dtype) for value in values)
        return struct.pack(dtype.code, copysign(inf, values[0]))
