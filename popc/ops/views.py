"""View rules: when an output can lie in the memory of input 0, and how."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer, integers
from popc.ops.spec import OutputView
from popc_runtime.format import Attribute, Attributes

__all__ = [
    "contiguous_strides",
    "expand_view",
    "normal_strides",
    "reshape_view",
    "slice_view",
    "split_view",
    "transpose_view",
]


def contiguous_strides(type_: TensorType) -> tuple[int, ...]:
    """Byte strides of a C-contiguous tensor."""
    strides = [type_.dtype.itemsize]
    for dim in reversed(type_.shape[1:]):
        strides.append(strides[-1] * dim)
    return tuple(reversed(strides[: type_.rank]))


def normal_strides(type_: TensorType, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """``strides``, or ``None`` if they are those of a C-contiguous tensor.

    The stride of a dimension of size one does not matter.
    """
    same = all(
        dim == 1 or have == want
        for dim, have, want in zip(type_.shape, strides, contiguous_strides(type_), strict=True)
    )
    return None if same else strides


def reshape_view(
    source: TensorType,
    strides: tuple[int, ...],
    result: TensorType,
    index: int,
    attributes: Attributes,
) -> OutputView | None:
    """A view exactly when numpy could reshape without copying.

    Old and new dimensions are cut, from the left, into the smallest groups of equal size.  A group
    of old dimensions can be renumbered if they lie in memory like one dimension; the new
    dimensions of the group then divide it.
    """
    del index, attributes
    if source.size == 0:
        return OutputView(0, contiguous_strides(result))
    old = [(d, s) for d, s in zip(source.shape, strides, strict=True) if d != 1]
    found: list[int] = []
    start = 0
    for group in _groups(tuple(dim for dim, _ in old), result.shape):
        count, new_dims = group
        members = old[start : start + count]
        start += count
        if not _is_one_dimension(members):
            return None
        step = members[-1][1] if members else source.dtype.itemsize
        found.extend(step * prod(new_dims[i + 1 :]) for i in range(len(new_dims)))
    return OutputView(0, tuple(found))


def _groups(old: Shape, new: Shape) -> list[tuple[int, Shape]]:
    """(number of old dimensions, new dimensions) per group; sizes of old are over 1."""
    groups: list[tuple[int, Shape]] = []
    i = j = 0
    while i < len(old):
        first_old, first_new = i, j
        i, j = i + 1, j + 1
        while (have := prod(old[first_old:i])) != (want := prod(new[first_new:j])):
            i, j = (i + 1, j) if have < want else (i, j + 1)
        groups.append((i - first_old, new[first_new:j]))
    if j < len(new):
        groups.append((0, new[j:]))  # trailing dimensions of size 1
    return groups


def _is_one_dimension(members: list[tuple[int, int]]) -> bool:
    """True if each stride is what the next dimension spans."""
    return all(
        stride == next_dim * next_stride
        for (_, stride), (next_dim, next_stride) in pairwise(members)
    )


def transpose_view(
    source: TensorType,
    strides: tuple[int, ...],
    result: TensorType,
    index: int,
    attributes: Attributes,
) -> OutputView | None:
    """The same strides in another order."""
    del source, result, index
    return OutputView(0, tuple(strides[axis] for axis in integers(attributes, "perm")))


def expand_view(
    source: TensorType,
    strides: tuple[int, ...],
    result: TensorType,
    index: int,
    attributes: Attributes,
) -> OutputView | None:
    """Stride 0 along every dimension that repeats."""
    del index, attributes
    added = result.rank - source.rank
    kept = (
        stride if dim == wide else 0
        for dim, stride, wide in zip(source.shape, strides, result.shape[added:], strict=True)
    )
    return OutputView(0, (*(0,) * added, *kept))


def slice_view(
    source: TensorType,
    strides: tuple[int, ...],
    result: TensorType,
    index: int,
    attributes: Attributes,
) -> OutputView | None:
    """An offset to the first element, strides times the steps (which may be negative)."""
    del source, index
    if result.size == 0:
        return OutputView(0, contiguous_strides(result))
    starts, steps = integers(attributes, "starts"), integers(attributes, "steps")
    offset = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    scaled = tuple(step * stride for step, stride in zip(steps, strides, strict=True))
    return OutputView(offset, scaled)


def split_view(
    source: TensorType,
    strides: tuple[int, ...],
    result: TensorType,
    index: int,
    attributes: Attributes,
) -> OutputView | None:
    """An offset past the earlier parts."""
    del source
    if result.size == 0:
        return OutputView(0, contiguous_strides(result))
    start = _starts_of(_Same(attributes["split"]))[index]
    return OutputView(start * strides[integer(attributes, "axis")], strides)


class _Same:
    """Stands for an object that is equal to itself alone, so that to compare it takes no time."""

    def __init__(self, value: Attribute) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


@lru_cache(maxsize=8)  # it is asked about each part in turn, and there may be very many
def _starts_of(parts: _Same) -> tuple[int, ...]:
    """The beginning of each part of a Split."""
    return (0, *accumulate(integers({"split": parts.value}, "split")))
