"""A random model that grows node by node; what it computes is known at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper

from popc_runtime.format import Array
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.recipe import Recipe, next_values
from tools.campaigns.random_models.value import Value

__all__ = ["MOST_ELEMENTS", "Builder"]

_T = TypeVar("_T")
MOST_ELEMENTS = 1 << 15  # of a tensor
_CHANNELS = (1, 2, 3, 4, 5, 7, 8, 8, 9, 12, 15, 16, 16, 17, 24, 31, 32, 33, 64, 65)
_EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 17, 31, 32, 33)


class Builder:
    """The parts of a recipe, and what is drawn for them.

    Attributes:
        random: Where all decisions come from.
        opset: Version of ONNX's operators.
        dtype: Of the floating-point numbers that inputs and weights hold.
        values: All tensors by name.
        pool: What later layers may read: names, the latest last.
        least: Elements of a result: 0 where tensors may be empty.
    """

    def __init__(self, random: np.random.Generator, opset: int, dtype: Any) -> None:
        self.random = random
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self.values = dict[str, Value]()
        self.pool = list[str]()
        self.inputs = dict[str, Array]()
        self.constants = dict[str, Array]()
        self.nodes = list[onnx.NodeProto]()
        self.least = 1
        self._count = 0

    # -- draws -----------------------------------------------------------------------------------

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.random.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return bool(self.random.random() < probability)

    def choice(self, items: Sequence[_T]) -> _T:
        """One of the items."""
        return items[self.number(0, len(items) - 1)]

    def channels(self) -> int:
        """A number of channels, around the widths of vectors."""
        return self.choice(_CHANNELS)

    def extent(self) -> int:
        """A number of pixels along an axis."""
        return self.choice(_EXTENTS)

    def normal(self, *shape: int, scale: float = 1.0, dtype: Any = None) -> Array:
        """Normal numbers of the model's type; some are zero."""
        array: Array = self.random.standard_normal(shape) * scale
        return np.asarray(array, dtype or self.dtype)

    def around(self, centre: float, *shape: int) -> Array:
        """Numbers up to a half from ``centre``."""
        return self.random.uniform(centre - 0.5, centre + 0.5, shape).astype(self.dtype)

    # -- tensors ---------------------------------------------------------------------------------

    def name(self, stem: str) -> str:
        """A new name."""
        self._count += 1
        return f"{stem}{self._count}"

    def add_input(self, array: Array) -> str:
        """An input of the model that holds ``array``."""
        name = self.name("x")
        self.inputs[name] = array
        self.values[name] = Value(name, array)
        return name

    def constant(self, array: Any, dtype: Any = None) -> str:
        """An initializer."""
        stored = np.array(array, dtype)
        name = self.name("c")
        self.constants[name] = stored
        self.values[name] = Value(name, stored, is_constant=True)
        return name

    def weight(self, array: Array) -> str:
        """Mostly an initializer, now and then an input."""
        return self.add_input(array) if self.chance(0.08) else self.constant(array)

    def ints(self, *numbers: int) -> str:
        """An initializer of int64: a shape, axes, ..."""
        return self.constant(np.array(numbers, np.int64))

    def ints_of(self, array: Array) -> str:
        """An initializer or, now and then, an input of int64."""
        indices = np.asarray(array, np.int64)
        return self.add_input(indices) if self.chance(0.2) else self.constant(indices)

    def get(self, name: str) -> Value:
        """The tensor of that name."""
        return self.values[name]

    def pick(self, fits: Callable[[Value], bool]) -> Value:
        """A tensor of the pool, of the latest ones rather than the first.

        Raises:
            RefusedError: none fits.
        """
        fitting = [self.values[name] for name in self.pool if fits(self.values[name])]
        if not fitting:
            raise RefusedError("no tensor fits")
        return self.choice(fitting[-2:] if self.chance(0.6) else fitting)

    def pick_float(self, *ranks: int) -> Value:
        """A tensor of floats, of one of these ranks if any are given."""
        return self.pick(lambda x: x.is_float and (not ranks or len(x.shape) in ranks))

    def like(self, tensor: Value, fits: Callable[[Value], bool]) -> Value:
        """Another tensor of the same type that fits, or ``tensor`` itself."""
        others = [
            self.values[name]
            for name in self.pool
            if name != tensor.name
            and self.values[name].array.dtype == tensor.array.dtype
            and fits(self.values[name])
        ]
        return self.choice(others) if others else tensor

    # -- nodes -----------------------------------------------------------------------------------

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str | None],
        outputs: int = 1,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Add a node; its results are not yet part of the pool.

        Raises:
            RefusedError: onnxruntime does not run it, or its results are no use or too large.
        """
        names = [self.name(f"t{i}_") for i in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(
            op_type, [name or "" for name in inputs], names, domain=domain, **given
        )
        return self.add_node(node)

    def add_node(self, node: onnx.NodeProto) -> list[Value]:
        """Add a node that is there already.

        Raises:
            RefusedError: as `emit`.
        """
        made = next_values(node, self.values, self.opset)
        for value in made.values():
            if not self.least <= value.array.size <= MOST_ELEMENTS:
                raise RefusedError("a result is empty or too large")
        self.nodes.append(node)
        self.values |= made
        return [made[name] for name in node.output if name]

    def put(self, op_type: str, inputs: Sequence[str | None], **attributes: Any) -> Value:
        """`emit` a node of one result, which goes to the pool."""
        (value,) = self.emit(op_type, inputs, **attributes)
        self.pool.append(value.name)
        return value

    def do(self, op_type: str, inputs: Sequence[str | None], **attributes: Any) -> str:
        """`emit` a node of one result; its name."""
        return self.emit(op_type, inputs, **attributes)[0].name

    def keep(self, *values: Value | str) -> None:
        """Put results into the pool."""
        self.pool += [value if isinstance(value, str) else value.name for value in values]

    @contextmanager
    def nested(self) -> Iterator[list[onnx.NodeProto]]:
        """Meanwhile nodes go to a list of their own; all tensors can be read in there."""
        nodes, values, pool = self.nodes, self.values, self.pool
        self.nodes, self.values, self.pool = [], dict(values), list(pool)
        try:
            yield self.nodes
        finally:
            inner = self.values
            self.nodes, self.values, self.pool = nodes, values, pool
            self._keep_constants(inner.values())

    def _keep_constants(self, inner: Iterable[Value]) -> None:
        """Initializers and inputs that nodes of a body read are those of the whole model."""
        for value in inner:
            if value.name in self.constants or value.name in self.inputs:
                self.values[value.name] = value

    def recipe(self, outputs: Iterable[str]) -> Recipe:
        """The model built so far, as far as ``outputs`` need it."""
        whole = Recipe(self.opset, self.inputs, self.constants, tuple(self.nodes), tuple(outputs))
        return whole.pruned()
