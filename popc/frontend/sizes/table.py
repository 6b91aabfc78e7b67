"""Small tensors of whole numbers, element by element, as far as ops on sizes tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final, TypeAlias

import numpy as np

from popc.frontend.known import KnownValues
from popc.frontend.sizes.expressions import Range, Size, SizeAlgebra
from popc.ir import Op, Tensor
from popc.ops.build import evaluate
from popc.options import FrozenTable
from popc_runtime.format import Array, DType

__all__ = ["SizeTable"]

_MOST_ELEMENTS: Final = 64
_DEEPEST: Final = 100  # ops in a row that are followed

_Elements: TypeAlias = "tuple[Size, ...] | None"
_Rule: TypeAlias = "Callable[[SizeTable, Op, Tensor], _Elements]"


class SizeTable(SizeAlgebra):
    """The sizes of one import, in all graphs of the model.

    Attributes:
        made: Results that are made once, by what they are made of.
        bounds: By the name of tensors, or a pattern, the most that the user allows for their size.
        bounded: The names of tensors whose size data decides, in order.
        is_used: Whether there is such a tensor.
    """

    def __init__(self, known: KnownValues, bounds: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.bounds = FrozenTable(bounds)
        self.bounded: dict[str, None] = {}
        self.made: dict[object, Any] = {}
        self.is_used = False
        self._known = known
        self._elements: dict[Tensor, tuple[Size, ...]] = {}
        self._ranges_of: dict[Tensor, Range] = {}
        self._depth = 0

    def elements(self, tensor: Tensor) -> tuple[Size, ...]:
        """The elements of a small tensor of integers or truth values, in order."""
        tensor = self._known.source(tensor)
        if tensor not in self._elements:
            self._elements[tensor] = self._found(tensor) or self._opaque(tensor)
        return self._elements[tensor]

    def scalar(self, tensor: Tensor) -> Size:
        """The one element of a tensor."""
        (size,) = self.elements(tensor)
        return size

    def given_bound(self, *names: str) -> float:
        """The most that the user allows for a size that data decides, which these tensors have."""
        self.bounded.update(dict.fromkeys(names))
        given = map(self.bounds.matching, names)
        return min((bound for bound in given if bound is not None), default=inf)

    def limit(self, tensor: Tensor, high: int) -> None:
        """Note that the one element of ``tensor`` is from 0 to ``high``."""
        self._elements[tensor] = (self.atom((tensor, 0), 0, high),)

    def known_elements(self, tensor: Tensor) -> Array | None:
        """The value of a tensor of integers all of whose elements turn out to be known."""
        if not _is_small(tensor):
            return None
        numbers = [size.known for size in self.elements(tensor)]
        if any(number is None for number in numbers):
            return None
        return np.array(numbers, tensor.type.dtype.storage).reshape(tensor.type.shape)

    def range_of(self, tensor: Tensor) -> Range:
        """The least and the most that elements of ``tensor`` can be."""
        tensor = self._known.source(tensor)
        if tensor in self._ranges_of:
            return self._ranges_of[tensor]
        if tensor.data is not None and tensor.type.dtype is not DType.BFLOAT16:
            data = tensor.data
            found = (float(data.min()), float(data.max())) if data.size else (0.0, 0.0)
        elif _is_small(tensor) and tensor.type.size:
            ranges = [self.range(size) for size in self.elements(tensor)]
            found = min(low for low, _ in ranges), max(high for _, high in ranges)
        else:
            found = self._range_by_op(tensor)
        self._ranges_of[tensor] = found
        return found

    def _range_by_op(self, tensor: Tensor) -> Range:
        from popc.frontend.sizes.ranges import range_by_op, range_of_type

        if self._depth >= _DEEPEST:
            return range_of_type(tensor.type.dtype)
        self._depth += 1
        try:
            return range_by_op(tensor, self.range_of)
        finally:
            self._depth -= 1

    def _opaque(self, tensor: Tensor) -> tuple[Size, ...]:
        """Elements that nothing is known of but their range."""
        from popc.frontend.sizes.ranges import ANYTHING, range_of_type

        low, high = self._range_by_op(tensor) if tensor.producer else ANYTHING
        least, most = range_of_type(tensor.type.dtype)
        low, high = max(low, least), min(high, most)
        return tuple(self.atom((tensor, i), low, high) for i in range(tensor.type.size))

    def _found(self, tensor: Tensor) -> _Elements:
        if tensor.data is not None:
            return tuple(self.constant(int(number)) for number in tensor.data.reshape(-1))
        op = tensor.producer
        rule = None if op is None else _RULES.get(op.op_type)
        if op is None or rule is None or self._depth >= _DEEPEST:
            return None
        self._depth += 1
        try:
            return rule(self, op, tensor)
        finally:
            self._depth -= 1

    # -- ops -------------------------------------------------------------------------------------

    def of_operand(self, op: Op, index: int) -> Array | None:
        """The elements of an operand, of type object, in its shape; ``None`` if they are many."""
        tensor = op.operand(index)
        if not _is_small(tensor):
            return None
        sizes = np.empty(tensor.type.size, object)
        sizes[:] = self.elements(tensor)
        return sizes.reshape(tensor.type.shape)

    def moved(self, op: Op, tensor: Tensor) -> _Elements:
        """The elements of an op that only moves them: it is computed on their numbers."""
        sizes: list[Size] = []
        operands: list[Array | None] = []
        for index, operand in enumerate(op.inputs):
            if operand is None:
                operands.append(None)
            elif index == 0 or op.op_type == "Concat":
                if not _is_small(operand):
                    return None
                start = len(sizes)
                sizes.extend(self.elements(operand))
                numbers = np.arange(start, len(sizes)).astype(operand.type.dtype.storage)
                operands.append(numbers.reshape(operand.type.shape))
            else:
                operands.append(self.known_elements(operand))
                if operands[-1] is None:
                    return None
        if len(sizes) > _MOST_ELEMENTS or op.operand(0).type.dtype is DType.BOOL:
            return None
        result = evaluate(op, operands)[op.outputs.index(tensor)]
        return tuple(sizes[int(number)] for number in result.reshape(-1))


def _is_small(tensor: Tensor) -> bool:
    dtype = tensor.type.dtype
    return (dtype.is_integer or dtype is DType.BOOL) and tensor.type.size <= _MOST_ELEMENTS


def _moved(table: SizeTable, op: Op, tensor: Tensor) -> _Elements:
    return table.moved(op, tensor) if _is_small(tensor) else None


def _elementwise(
    compute: Callable[[SizeTable, Sequence[Size]], Size | None],
) -> _Rule:
    """Elements computed one by one; those that ``compute`` knows nothing of are opaque."""

    def rule(table: SizeTable, op: Op, tensor: Tensor) -> _Elements:
        operands = [table.of_operand(op, index) for index in range(len(op.inputs))]
        if not _is_small(tensor) or any(operand is None for operand in operands):
            return None
        spread = [
            np.broadcast_to(operand, tensor.type.shape).reshape(-1)
            for operand in operands
            if operand is not None
        ]
        found = [compute(table, sizes) for sizes in zip(*spread, strict=True)]
        if any(size is None for size in found):
            return None
        return tuple(size for size in found if size is not None)

    return rule


def _cast(table: SizeTable, op: Op, tensor: Tensor) -> _Elements:
    """Between types of whole numbers nothing changes, if the new one has room for them."""
    source = op.operand(0)
    if not (_is_small(source) and tensor.type.dtype.is_integer):
        return None
    found = table.elements(source)
    half = 1 << (8 * tensor.type.dtype.itemsize - 1)
    ranges = [table.range(size) for size in found]
    wide = tensor.type.dtype is DType.INT64
    fits = wide or all(-half <= low and high < half for low, high in ranges)
    return found if fits else None


def _check_size(table: SizeTable, op: Op, tensor: Tensor) -> _Elements:
    """The size as it is, unless the check says more about it."""
    del tensor
    size = table.scalar(op.operand(0))
    if len(op.inputs) > 1 and op.inputs[1] is not None:
        other = table.scalar(op.inputs[1])
        return (other if other.known is not None else size,)
    low, high = table.range(size)
    bound = op.attributes["bound"]
    assert isinstance(bound, int)
    return (size,) if low >= 0 and high <= bound else None


def _chosen(table: SizeTable, sizes: Sequence[Size]) -> Size | None:
    """An element of Where, by a condition that is known, or of two equal choices."""
    condition, x, y = sizes
    if condition.known is not None:
        return x if condition.known else y
    if x == y:
        return x
    (a, b), (c, d) = table.range(x), table.range(y)
    return table.atom(("where", condition, x, y), min(a, c), max(b, d))


def _truth(test: Callable[[float, float], bool | None]) -> _Rule:
    """A comparison, by the range of the difference."""

    def compute(table: SizeTable, sizes: Sequence[Size]) -> Size | None:
        left, right = sizes
        found = test(*table.compare(left, right))
        if found is None:
            return table.atom((test, left, right), 0, 1)
        return table.constant(int(found))

    return _elementwise(compute)


def _equal(low: float, high: float) -> bool | None:
    if low == high == 0:
        return True
    return False if low > 0 or high < 0 else None


def _below(limit: float) -> Callable[[float, float], bool | None]:
    """Less (0) or at most (1)."""

    def test(low: float, high: float) -> bool | None:
        if high < limit:
            return True
        return False if low >= limit else None

    return test


def _above(limit: float) -> Callable[[float, float], bool | None]:
    """Greater (1) or at least (0)."""

    def test(low: float, high: float) -> bool | None:
        if low >= limit:
            return True
        return False if high < limit else None

    return test


def _all_true(table: SizeTable, sizes: Sequence[Size]) -> Size | None:
    left, right = sizes
    if 0 in (left.known, right.known):
        return table.constant(0)
    return table.constant(1) if left.known == right.known == 1 else None


def _any_true(table: SizeTable, sizes: Sequence[Size]) -> Size | None:
    left, right = sizes
    if 1 in (left.known, right.known):
        return table.constant(1)
    return table.constant(0) if left.known == right.known == 0 else None


def _negated(table: SizeTable, sizes: Sequence[Size]) -> Size | None:
    (size,) = sizes
    return None if size.known is None else table.constant(1 - size.known)


def _product(table: SizeTable, op: Op, tensor: Tensor) -> _Elements:
    """ReduceProd over everything: the number of elements of a shape."""
    sizes = table.of_operand(op, 0)
    if sizes is None or tensor.type.size != 1:
        return None
    return (table.product(sizes.reshape(-1).tolist()),)


_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(
        ("Concat", "Copy", "Expand", "Gather", "Reshape", "Slice", "Split", "Tile", "Transpose"),
        _moved,
    ),
    "Add": _elementwise(lambda table, sizes: table.add(*sizes)),
    "And": _elementwise(_all_true),
    "Cast": _cast,
    "CheckSize": _check_size,
    "Div": _elementwise(lambda table, sizes: table.div(*sizes)),
    "Equal": _truth(_equal),
    "Greater": _truth(_above(1)),
    "GreaterOrEqual": _truth(_above(0)),
    "Less": _truth(_below(0)),
    "LessOrEqual": _truth(_below(1)),
    "Max": _elementwise(lambda table, sizes: table.maximum(*sizes)),
    "Min": _elementwise(lambda table, sizes: table.minimum(*sizes)),
    "Mul": _elementwise(lambda table, sizes: table.mul(*sizes)),
    "Not": _elementwise(_negated),
    "Or": _elementwise(_any_true),
    "ReduceProd": _product,
    "Sub": _elementwise(lambda table, sizes: table.sub(*sizes)),
    "Where": _elementwise(_chosen),
}
