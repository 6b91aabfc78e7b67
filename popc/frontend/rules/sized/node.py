"""A node that data decides a size of: of an operand, of a result, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeAlias

import numpy as np

from popc.frontend.node import Node
from popc.frontend.open_graph import OpenGraph
from popc.frontend.problems import DataDependent
from popc.frontend.rules.moves import emit_slice
from popc.frontend.sizes import Size, SizeTable
from popc.frontend.values import SizedValue, Value
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["SizedNode", "SizedRule", "sized"]

# Gives the results of the operator on other operands, by its rule for tensors of known size.
_Apply: TypeAlias = "Callable[[Sequence[Value | None]], Sequence[Value | None]]"


def sized(value: Value | None) -> SizedValue:
    """A tensor operand, with its sizes.

    Raises:
        ModelError: it is no tensor.
    """
    if isinstance(value, Tensor):
        return SizedValue(value, (None,) * value.type.rank)
    if not isinstance(value, SizedValue):
        raise ModelError("an input that must be a tensor is none")
    return value


class SizedNode(Node):
    """A node, and what rules about sizes need beside it."""

    def __init__(self, node: Node, apply: _Apply) -> None:
        super().__init__(
            node.importer,
            node.op_type,
            node.domain,
            node.version,
            node.name,
            node.inputs,
            node.output_names,
            node.attributes,
        )
        self._apply = apply
        self.table.is_used = True

    @classmethod
    def within_body(cls, node: Node, body: OpenGraph) -> SizedNode:
        """A node that emits into the graph of another importer, a body of ``node``."""
        return cls(node.within(body), lambda _: ())

    @property
    def table(self) -> SizeTable:
        """The facts about sizes."""
        return self.importer.context.sizes

    def sized(self, index: int) -> SizedValue:
        """A required tensor operand, with its sizes."""
        return sized(self.value(index))

    def operands(self) -> list[SizedValue | None]:
        """All operands, which must be tensors, or absent."""
        return [None if value is None else sized(value) for value in self.inputs]

    def first_sized(self) -> tuple[SizedValue, list[Tensor | None]]:
        """The first operand, with its sizes, and the others, whose sizes must all be known.

        Raises:
            DataDependent: they are not; or the first operand is absent.
        """
        first, *others = self.operands()
        if first is None or any(other is not None and any(other.counts) for other in others):
            raise self.refuse("takes sizes that data decides for its first operand only")
        return first, [None if other is None else other.padded for other in others]

    def tensors_behind(self, first: int) -> list[Tensor | None]:
        """The operands from number ``first`` on, whose sizes must all be known."""
        return [self.optional(index) for index in range(first, len(self.inputs))]

    def plain(self, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """The results of the operator on operands of known size."""
        results = self.plain_or_none(inputs)
        found = [result for result in results if result is not None]
        if len(found) != len(results):
            raise DataDependent(f"{self.op_type}: does not keep sizes that data decides")
        return found

    def plain_or_none(self, inputs: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The same of operators that may leave out results that nobody reads."""
        results = self._apply(inputs)
        found = [result for result in results if result is None or isinstance(result, Tensor)]
        if len(found) != len(results):
            raise DataDependent(f"{self.op_type}: does not keep sizes that data decides")
        return found

    def refuse(self, why: str) -> DataDependent:
        """The error for what cannot be done with sizes that data decides."""
        return DataDependent(f"{self.op_type}: {why}")

    # -- sizes -----------------------------------------------------------------------------------

    def size(self, value: SizedValue, axis: int) -> Size:
        """The size of an axis."""
        count = value.counts[axis]
        if count is None:
            return self.table.constant(value.padded.type.shape[axis])
        return self.table.scalar(count)

    def count(self, value: SizedValue, axis: int) -> Tensor:
        """The size of an axis as a tensor, one int64."""
        count = value.counts[axis]
        return self.int64(value.padded.type.shape[axis]) if count is None else count

    def int64(self, number: int) -> Tensor:
        """A constant int64."""
        made: Tensor = self.once(("int64", number), lambda: self.constant(np.int64(number)))
        return made

    def once(self, what: object, make: Callable[[], Any]) -> Any:
        """The result of ``make``: made once in a graph for equal ``what``."""
        made, key = self.table.made, (self.importer.graph, what)
        if key not in made:
            made[key] = make()
        return made[key]

    def integers_in(self, index: int, name: str = "") -> list[Tensor]:
        """The elements of a list of integers, each one int64; attribute ``name`` in old opsets."""
        if self.optional_value(index) is None:
            return [self.int64(item) for item in self.integers(name)] if name else []
        given = self.value(index)
        if isinstance(given, SizedValue):
            raise self.refuse("the rank of its result depends on a run-time value")
        tensor = self.input(index)
        flat = self.as_int64(tensor)
        if flat.type.rank != 1:
            flat = self.emit("Reshape", [flat], {"shape": (flat.type.size,)})
        return [self._element(flat, place) for place in range(flat.type.size)]

    def _element(self, flat: Tensor, place: int) -> Tensor:
        size = self.table.elements(flat)[place]
        if size.known is not None:
            return self.int64(size.known)
        index = self.constant(np.int64(place))

        def make() -> Tensor:
            return self.emit("Gather", [flat, index], {"axis": 0})

        return self.named(size, make)

    def named(self, size: Size, make: Callable[[], Tensor]) -> Tensor:
        """The tensor that holds ``size``: made once in a graph for equal sizes."""
        if size.known is not None:
            return self.int64(size.known)
        found: Tensor = self.once(size, make)
        return found

    def noted(self, count: Tensor) -> Tensor:
        """``count``, or a tensor of the same size that was there before."""
        return self.named(self.table.scalar(count), lambda: count)

    def scalar(self, index: int) -> Tensor:
        """An operand of one number, without dimensions."""
        tensor = self.input(index)
        if tensor.type.size != 1:
            raise ModelError(f"input {index} must be one value, not {tensor.type}")
        return tensor if tensor.type.rank == 0 else self.emit("Reshape", [tensor], {"shape": ()})

    def as_int64(self, tensor: Tensor) -> Tensor:
        """``tensor`` with elements of int64."""
        if tensor.type.dtype is DType.INT64:
            return tensor
        return self.emit("Cast", [tensor], {"to": DType.INT64.value})

    def planned(self, count: Tensor, most: float = inf, output: int = 0) -> tuple[Tensor, int]:
        """A size, at least 0, as it is from now on, and the most that is planned for.

        Args:
            count: The size, one int64.
            most: What it cannot exceed, as far as the rule knows.
            output: The result that has it.

        Raises:
            DataDependent: nothing bounds it.
        """
        table = self.table
        low, high = table.range(table.scalar(count))
        high = min(high, most)
        name = self.result_name(output)
        bound = min(high, table.given_bound(name))
        if bound == inf:
            raise self.refuse(
                f"nothing bounds the size of its result (give the most that it can be: "
                f"--bound {name}=N)"
            )
        bound = max(int(bound), 0)
        if bound < high or low < 0:
            attributes: AttributeMap = {"bound": bound, "tensor": name}
            count = self.emit("CheckSize", [count], attributes)
        return self.noted(count), bound

    def result_name(self, output: int = 0) -> str:
        """The name that users know a result by; that of the first if it has none."""
        names = [name for name in self.output_names if name]
        own = self.output_names[output] if output < len(self.output_names) else ""
        return own or (names[0] if names else self.name)

    def bound_of(self, most: int, output: int = 0) -> int:
        """The bound of a size that an op counts itself, and refuses to exceed."""
        return int(min(most, self.table.given_bound(self.result_name(output))))

    def same(self, left: Tensor, right: Tensor) -> Tensor:
        """A size that two tensors hold; checked at run time unless it is certain."""
        table = self.table
        a, b = table.scalar(left), table.scalar(right)
        if a == b:
            return left
        if a.known is not None and b.known is not None:
            raise ModelError(f"sizes {a.known} and {b.known} do not fit together")
        if a.known is not None:
            left, right = right, left
        attributes: AttributeMap = {"bound": -1, "tensor": self.name}
        checked: Tensor = self.once(
            ("same", left, right), lambda: self.emit("CheckSize", [left, right], attributes)
        )
        return checked

    def exactly(self, tensor: Tensor, axis: int, count: Tensor, dim: int) -> Tensor:
        """``tensor`` with a known size along an axis, which its size must turn out to be."""
        if self.table.scalar(count).known == dim:
            return self.cropped(tensor, axis, dim)
        checked = self.same(count, self.int64(dim))
        places = self.emit("PlacesWithin", [self.iota(dim), checked], {"padding": 0})
        return self.emit("Gather", [self.cropped(tensor, axis, dim), places], {"axis": axis})

    # -- padding ---------------------------------------------------------------------------------

    def value_of(self, padded: Tensor, counts: Sequence[Tensor | None]) -> Value:
        """A result; a plain tensor if all of its sizes are known."""
        sizes = zip(counts, padded.type.shape, strict=True)
        left = [None if self._is(count, dim) else count for count, dim in sizes]
        if not any(count is not None for count in left):
            return padded
        return SizedValue(padded, tuple(left))

    def _is(self, count: Tensor | None, dim: int) -> bool:
        return count is None or self.table.scalar(count).known == dim

    def iota(self, length: int) -> Tensor:
        """The numbers from 0 to ``length`` - 1."""
        found: Tensor = self.once(
            ("iota", length), lambda: self.constant(self.positions(length).astype(np.int64))
        )
        return found

    def valid(self, value: SizedValue, axes: Sequence[int] | None = None) -> Tensor | None:
        """True where a tensor is no padding, in a shape that spreads over it."""
        shape = value.padded.type.shape
        masks = [
            self._valid_along(count, shape[axis], len(shape) - axis - 1)
            for axis, count in enumerate(value.counts)
            if count is not None and (axes is None or axis in axes)
        ]
        if not masks:
            return None
        mask = masks[0]
        for other in masks[1:]:
            mask = self.emit("And", [mask, other])
        return mask

    def _valid_along(self, count: Tensor, dim: int, behind: int) -> Tensor:
        def make() -> Tensor:
            mask = self.emit("Less", [self.iota(dim), count])
            return self.emit("Reshape", [mask], {"shape": (dim, *(1,) * behind)})

        found: Tensor = self.once(("valid", count, dim, behind), make)
        return found

    def masked(
        self, value: SizedValue, fill: float | Array | np.bool_, axes: Sequence[int] | None = None
    ) -> Tensor:
        """A tensor with padding along ``axes`` (default: all) replaced by ``fill``."""
        mask = self.valid(value, axes)
        if mask is None:
            return value.padded
        dtype = value.padded.type.dtype
        return self.emit("Where", [mask, value.padded, self.constant(np.asarray(fill), dtype)])

    def cropped(self, tensor: Tensor, axis: int, size: int) -> Tensor:
        """The first ``size`` places along an axis; zeros behind if it is shorter."""
        dims = tensor.type.shape
        if size > dims[axis]:
            zeros = self.constant(0, tensor.type.dtype)
            missing = (*dims[:axis], size - dims[axis], *dims[axis + 1 :])
            behind = self.emit("Expand", [zeros], {"shape": missing})
            return self.emit("Concat", [tensor, behind], {"axis": axis})
        windows = [range(dim) for dim in dims]
        windows[axis] = range(size)
        return emit_slice(self, tensor, windows)

    # -- arithmetic on sizes ---------------------------------------------------------------------

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum."""
        return self.noted(self.emit("Add", [left, right]))

    def sub(self, left: Tensor, right: Tensor) -> Tensor:
        """The difference."""
        return self.noted(self.emit("Sub", [left, right]))

    def mul(self, left: Tensor, right: Tensor) -> Tensor:
        """The product."""
        return self.noted(self.emit("Mul", [left, right]))

    def div(self, left: Tensor, right: Tensor) -> Tensor:
        """The quotient of numbers that are not negative, rounded down; by 1 if ``right`` is 0."""
        table = self.table
        exact = table.div(table.scalar(left), table.scalar(right))
        if exact.known is not None:
            return self.int64(exact.known)
        found: Tensor | None = table.made.get((self.importer.graph, exact))
        if found is not None:
            return found
        return self.noted(self.emit("Div", [left, self.largest(right, self.int64(1))]))

    def largest(self, left: Tensor, right: Tensor) -> Tensor:
        """The larger of two."""
        return self.noted(self.emit("Max", [left, right]))

    def smallest(self, left: Tensor, right: Tensor) -> Tensor:
        """The smaller of two."""
        return self.noted(self.emit("Min", [left, right]))

    def steps(self, distance: Tensor, step: int) -> Tensor:
        """The number of steps that reach over a distance: rounded up, at least 0."""
        if step < 0:
            distance, step = self.sub(self.int64(0), distance), -step
        distance = self.largest(distance, self.int64(0))
        if step == 1:
            return distance
        return self.div(self.add(distance, self.int64(step - 1)), self.int64(step))


SizedRule: TypeAlias = "Callable[[SizedNode], Value | Sequence[Value | None]]"
