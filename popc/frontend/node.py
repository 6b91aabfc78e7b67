"""One ONNX node as an import rule sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from popc.frontend.known_attributes import may_read
from popc.frontend.open_graph import OpenGraph
from popc.frontend.problems import DataDependent
from popc.frontend.values import (
    STRINGS,
    ConstantText,
    OnnxAttribute,
    OptionalValue,
    SequenceValue,
    SizedValue,
    TextValue,
    Value,
)
from popc.ir import OpSettings, ProductCut, Tensor, TensorType
from popc.ops.build import build
from popc.ops.partials import PARTIALS, SUMS_OF_PRODUCTS
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attributes, DType

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ImportRule", "Node", "RuleResult"]

RuleResult: TypeAlias = "Value | Sequence[Value | None]"

_PARTIALS_TYPE: Final = "__partials_type"  # an attribute that PopART gives to any node


class Node:
    """The operands, attributes and opset of a node, and the means to emit IR ops for it.

    Attributes:
        op_type: ONNX operator name.
        domain: "" for ai.onnx.
        version: The opset version of ``domain`` that the model (or function body) imports.
        name: What to call this node in messages.
        inputs: Operands; ``None`` where an optional operand is absent.
        output_names: ONNX names of the outputs; "" where an output is not wanted.
        attributes: By name, those that `popc.frontend.known_attributes` lets the rule read.
        importer: The graph that the node is imported into.
    """

    def __init__(
        self,
        importer: OpenGraph,
        op_type: str,
        domain: str,
        version: int,
        name: str,
        inputs: Sequence[Value | None],
        output_names: Sequence[str],
        attributes: Mapping[str, OnnxAttribute],
    ) -> None:
        self.importer = importer
        self.op_type = op_type
        self.domain = domain
        self.version = version
        self.name = name
        self.inputs = list(inputs)
        self.output_names = list(output_names)
        self._settings: OpSettings | None = None  # of ops without a cut
        self.attributes: Mapping[str, OnnxAttribute] = attributes and {
            name: value for name, value in attributes.items() if may_read(domain, op_type, name)
        }

    def within(self, importer: OpenGraph) -> Node:
        """This node, emitting into the graph of another importer (a body of the node)."""
        return Node(
            importer,
            self.op_type,
            self.domain,
            self.version,
            self.name,
            (),
            (),
            self.attributes,
        )

    # -- operands --------------------------------------------------------------------------------

    def value(self, index: int) -> Value:
        """A required operand of any kind."""
        value = self.optional_value(index)
        if value is None:
            raise ModelError(f"input {index} is required but missing")
        return value

    def optional_value(self, index: int) -> Value | None:
        """An operand of any kind, ``None`` if absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> Tensor:
        """A required tensor operand."""
        value = self.value(index)
        if type(value) is Tensor:  # as it is for the most part
            return value
        if isinstance(value, OptionalValue) and value.value is not None:
            value = value.value
        if isinstance(value, TextValue):
            raise ModelError(f"{self.op_type} of strings is not supported: {STRINGS}")
        if isinstance(value, SizedValue):
            raise DataDependent(f"{self.op_type}: an operand has a size that data decides")
        if not isinstance(value, Tensor):
            raise ModelError(f"input {index} must be a tensor")
        return value

    def words(self, index: int) -> TextValue:
        """A required operand of strings."""
        value = self.value(index)
        if not isinstance(value, TextValue):
            raise ModelError(f"input {index} must be strings")
        return value

    def optional(self, index: int) -> Tensor | None:
        """A tensor operand, ``None`` if absent."""
        return None if self.optional_value(index) is None else self.input(index)

    def sequence(self, index: int) -> SequenceValue:
        """A required sequence operand."""
        value = self.value(index)
        if not isinstance(value, SequenceValue):
            raise ModelError(f"input {index} must be a sequence")
        return value

    def tensors(self) -> list[Tensor]:
        """All operands, which must be tensors (for variadic ops)."""
        return [self.input(index) for index in range(len(self.inputs))]

    def known(self, index: int) -> Array | None:
        """The value of a tensor operand if it is known at compile time, else ``None``.

        Constant subexpressions are computed on demand, whatever their size.
        """
        tensor = self.optional(index)
        return None if tensor is None else self.importer.known_value(tensor)

    def require_known(self, index: int, what: str) -> Array:
        """The value of an operand that must be known at compile time.

        Raises:
            DataDependent: it is not; ``what`` names what depends on it ("the output shape").
        """
        tensor = self.optional(index)
        value = None if tensor is None else self.importer.required_value(tensor)
        if value is None:
            raise DataDependent(f"{self.op_type}: {what} depends on a run-time value")
        return value

    def wants_output(self, index: int) -> bool:
        """True if the model names output ``index``."""
        return index < len(self.output_names) and self.output_names[index] != ""

    # -- attributes (schema defaults are filled in for ai.onnx) ------------------------------------

    def has(self, name: str) -> bool:
        """True if an attribute is present (or has a default in the operator's schema)."""
        return name in self.attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        value = self._attribute(name, default)
        if not isinstance(value, int):
            raise ModelError(f"attribute {name!r} must be an integer")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A float attribute."""
        value = self._attribute(name, default)
        if not isinstance(value, (int, float)):
            raise ModelError(f"attribute {name!r} must be a number")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        value = self._attribute(name, default)
        if not isinstance(value, str):
            raise ModelError(f"attribute {name!r} must be a string")
        return value

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list-of-integers attribute."""
        value = self._attribute(name, None if default is None else tuple(default))
        if not isinstance(value, tuple):
            raise ModelError(f"attribute {name!r} must be a list of integers")
        return tuple(map(int, value))

    def numbers(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """A list-of-floats attribute."""
        value = self._attribute(name, None if default is None else tuple(default))
        if not isinstance(value, tuple):
            raise ModelError(f"attribute {name!r} must be a list of numbers")
        return tuple(map(float, value))

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """A list-of-strings attribute."""
        value = self._attribute(name, None if default is None else tuple(default))
        if not isinstance(value, tuple):
            raise ModelError(f"attribute {name!r} must be a list of strings")
        return tuple(str(item) for item in value)

    def tensor(self, name: str) -> tuple[TensorType, Array]:
        """A tensor attribute: its type and its data."""
        value = self._attribute(name, None)
        if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], TensorType)):
            raise ModelError(f"attribute {name!r} must be a tensor")
        return value[0], value[1]

    def constant_text(self, name: str) -> ConstantText | None:
        """A tensor attribute of strings; ``None`` if it is absent, or a tensor of numbers."""
        value = self.attributes.get(name)
        return value if isinstance(value, ConstantText) else None

    def _attribute(self, name: str, default: OnnxAttribute | None) -> OnnxAttribute:
        value = self.attributes.get(name, default)
        if value is None:
            raise ModelError(f"attribute {name!r} is required but missing")
        return value

    # -- emitting --------------------------------------------------------------------------------

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        attributes: Attributes | None = None,
        *,
        cut: ProductCut | None = None,
    ) -> Tensor:
        """Add an IR op and return its first output (a constant, if it could be folded cheaply)."""
        return self.emit_all(op_type, inputs, attributes, cut=cut)[0]

    def emit_all(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        attributes: Attributes | None = None,
        *,
        cut: ProductCut | None = None,
    ) -> list[Tensor]:
        """Add an IR op and return all its outputs."""
        graph = self.importer.graph
        settings = self._settings
        if cut is not None or settings is None:
            settings = OpSettings(origin=self.name, cut=cut)
            self._settings = None if cut is not None else settings
        own = dict(attributes or {})
        if op_type in SUMS_OF_PRODUCTS and self.has(_PARTIALS_TYPE):
            own |= self._partials(inputs[0])
        op = build(graph, op_type, inputs, own, settings=settings)
        if op_type == "DequantizeLinear" and op.output.type.rank > 0:
            return list(op.outputs)  # weights: products may want the integers
        return self.importer.fold_if_small(op)

    def _partials(self, operand: Tensor | None) -> Attributes:
        """The attribute, unless it is half where results are wider: Poplar ignores it there too."""
        wanted = self.text(_PARTIALS_TYPE).lower()
        if wanted == "half" and operand is not None and operand.type.dtype is DType.FLOAT32:
            self.importer.context.narrow_sums.append(self.name)
            return {}
        return {PARTIALS: wanted}

    def constant(self, values: npt.ArrayLike, dtype: DType | None = None) -> Tensor:
        """A constant from a numpy array or Python values.

        ``dtype`` is needed for bfloat16, whose values are given as float32.
        """
        array = np.asarray(values)
        return self.importer.constant(array, dtype or DType.of(array.dtype))

    def positions(self, count: int) -> Array:
        """The int64 numbers 0 to ``count`` - 1, for a rule that computes with them.

        Raises:
            TooMuchWorkError: they are more than the options allow.
        """
        self.require_room(count)
        return np.arange(count)

    def require_room(self, count: int) -> None:
        """Ask before ``count`` numbers are computed: shapes of operands can make it any number.

        Raises:
            TooMuchWorkError: they are more than the options allow.
        """
        self.importer.context.budget.compute(count * np.dtype(np.int64).itemsize)


ImportRule: TypeAlias = Callable[[Node], RuleResult]
