"""The argument of a gradient rule: one op, the gradients of its results, means to emit ops.

A rule returns the gradients of the op's operands, in order: ``None`` where there is none (integers,
indices, an operand that does not influence the loss), or a shorter list.  Each gradient has the
type of its operand.  Rules emit into the graph that holds the op and may read its operands and
results: those that are cheap to keep, or that live anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from popc.ir import AttributeMap, Graph, Op, Shape, Tensor, TensorType
from popc.ops.build import build, infer_types
from popc.ops.partials import PARTIALS, SUMS_OF_PRODUCTS
from popc_runtime.format import Attributes, DType
from popc_runtime.kernels.core.stored import as_stored

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["GRADIENT_PREFIX", "Backward", "GradientRule", "no_gradient"]

# PopART's reserved prefix: tensors can be anchored by this name.
GRADIENT_PREFIX: Final = "Gradient___"


class Backward:
    """The backward pass of one op.

    Attributes:
        graph: The graph that holds the op, and receives what the rule emits.
        op: The op to differentiate.
        attributes: Its attributes.
    """

    def __init__(
        self, graph: Graph, op: Op, grads: Sequence[Tensor | None], wanted: Sequence[bool]
    ) -> None:
        self.graph = graph
        self.op = op
        self.attributes: Attributes = op.attributes
        self._grads = list(grads)
        self._wanted = list(wanted)
        self._settings = op.settings.inherited()

    def inside(self, graph: Graph) -> Backward:
        """For rules of ops with subgraphs: the same op, emitting into another graph.

        That belongs to the calls that the op belongs to as a whole, as the op of the graph.
        """
        found = Backward(graph, self.op, self._grads, self._wanted)
        found._settings = replace(self._settings, call=())
        return found

    # -- the op ----------------------------------------------------------------------------------

    def input(self, index: int) -> Tensor:
        """A required operand of the op."""
        return self.op.operand(index)

    def optional(self, index: int) -> Tensor | None:
        """An operand of the op, ``None`` if absent."""
        return self.op.optional(index)

    def known(self, index: int) -> float | None:
        """The value of an operand that is a constant of one element (bfloat16 aside)."""
        tensor = self.optional(index)
        if tensor is None or tensor.data is None or tensor.type.size != 1:
            return None
        if tensor.type.dtype is DType.BFLOAT16:
            return None
        return float(tensor.data.reshape(()))

    def output(self, index: int = 0) -> Tensor:
        """A result of the op."""
        return self.op.outputs[index]

    def grad(self, index: int = 0) -> Tensor:
        """The gradient of result ``index``; zeros if the loss does not depend on it."""
        grad = self._grads[index]
        return self.zeros(self.output(index).type) if grad is None else grad

    def optional_grad(self, index: int) -> Tensor | None:
        """The gradient of result ``index``, ``None`` if the loss does not depend on it."""
        return self._grads[index]

    def demand(self, attribute: str) -> Tensor:
        """A result that the op has only if ``attribute`` is 1, which is the last one then.

        For what the forward pass computes anyway, but stores only if it is of use.
        """
        return self.demand_all(attribute)[-1]

    def demand_all(self, attribute: str) -> list[Tensor]:
        """The results, the last ones, that the op has only if ``attribute`` is 1."""
        op = self.op
        types = [None if tensor is None else tensor.type for tensor in op.inputs]
        less, more = (
            infer_types(op.op_type, types, {**op.attributes, attribute: value}) for value in (0, 1)
        )
        if not op.attributes.get(attribute):
            op.attributes = {**op.attributes, attribute: 1}
            for type_ in more[len(less) :]:
                self.graph.insert_output(op, len(op.outputs), attribute, type_)
        return op.outputs[len(less) :]

    def wants(self, index: int) -> bool:
        """True if the gradient of operand ``index`` is of any use.

        It is if the operand is present, a float, and depends on what is differentiated for.
        """
        return index < len(self._wanted) and self._wanted[index]

    # -- emitting --------------------------------------------------------------------------------

    def emit(
        self, op_type: str, inputs: Sequence[Tensor | None], attributes: Attributes | None = None
    ) -> Tensor:
        """Add an op; its first result."""
        return self.emit_all(op_type, inputs, attributes)[0]

    def emit_all(
        self, op_type: str, inputs: Sequence[Tensor | None], attributes: Attributes | None = None
    ) -> list[Tensor]:
        """Add an op; all its results."""
        own = dict(attributes or {})
        if op_type in SUMS_OF_PRODUCTS and PARTIALS in self.attributes:
            own[PARTIALS] = self.attributes[PARTIALS]
        return build(self.graph, op_type, inputs, own, settings=self._settings).outputs

    def constant(self, values: npt.ArrayLike, dtype: DType) -> Tensor:
        """A constant of ``dtype`` (bfloat16 is given as floats)."""
        data = as_stored(values, dtype)
        return self.graph.add_constant("constant", TensorType(dtype, data.shape), data)

    def scalar(self, value: float, like: Tensor) -> Tensor:
        """A scalar constant of the element type of ``like``."""
        return self.constant(value, like.type.dtype)

    def zeros(self, type_: TensorType) -> Tensor:
        """Zeros that take no space in the archive."""
        return self.filled(0.0, type_)

    def filled(self, value: float, type_: TensorType) -> Tensor:
        """``value`` everywhere."""
        return self.expand(self.constant(value, type_.dtype), type_.shape)

    def grad_op(self, *known: Tensor) -> Tensor:
        """The op that is called as this op and "Grad", on the gradient and what else it takes."""
        return self.emit(f"{self.op.op_type}Grad", [self.grad(), *known], dict(self.attributes))

    # -- frequent ops ----------------------------------------------------------------------------

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """a + b."""
        return self.emit("Add", [a, b])

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        """a - b."""
        return self.emit("Sub", [a, b])

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """a * b."""
        return self.emit("Mul", [a, b])

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        """a / b."""
        return self.emit("Div", [a, b])

    def neg(self, a: Tensor) -> Tensor:
        """-a."""
        return self.emit("Neg", [a])

    def scaled(self, a: Tensor, factor: float) -> Tensor:
        """a * factor."""
        return a if factor == 1 else self.mul(a, self.scalar(factor, a))

    def plus(self, a: Tensor, value: float) -> Tensor:
        """a + value."""
        return self.add(a, self.scalar(value, a))

    def square(self, a: Tensor) -> Tensor:
        """a * a."""
        return self.mul(a, a)

    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """a where ``condition``, else b."""
        return self.emit("Where", [condition, a, b])

    def masked(self, condition: Tensor, a: Tensor) -> Tensor:
        """a where ``condition``, else 0."""
        return self.where(condition, a, self.scalar(0.0, a))

    def cast(self, a: Tensor, dtype: DType) -> Tensor:
        """``a`` as another element type."""
        return a if a.type.dtype is dtype else self.emit("Cast", [a], {"to": dtype.value})

    def reshape(self, a: Tensor, shape: Shape) -> Tensor:
        """``a`` in another shape."""
        return a if a.type.shape == shape else self.emit("Reshape", [a], {"shape": shape})

    def transpose(self, a: Tensor, perm: Sequence[int]) -> Tensor:
        """``a`` with its dimensions in another order."""
        if list(perm) == list(range(a.type.rank)):
            return a
        return self.emit("Transpose", [a], {"perm": tuple(perm)})

    def swapped(self, a: Tensor) -> Tensor:
        """``a`` with its last two dimensions swapped."""
        rank = a.type.rank
        return self.transpose(a, [*range(rank - 2), rank - 1, rank - 2])

    def expand(self, a: Tensor, shape: Shape) -> Tensor:
        """``a`` broadcast to ``shape``."""
        return a if a.type.shape == shape else self.emit("Expand", [a], {"shape": shape})

    def slice(self, a: Tensor, windows: Sequence[range]) -> Tensor:
        """The elements of ``a`` in ``windows``, one per dimension."""
        if list(windows) == [range(dim) for dim in a.type.shape]:
            return a
        attributes: AttributeMap = {
            "starts": tuple(window.start if window else 0 for window in windows),
            "sizes": tuple(len(window) for window in windows),
            "steps": tuple(window.step if len(window) > 1 else 1 for window in windows),
        }
        return self.emit("Slice", [a], attributes)

    def part(self, a: Tensor, axis: int, window: range) -> Tensor:
        """The elements of ``a`` in one ``window`` of dimension ``axis``."""
        windows = [range(dim) for dim in a.type.shape]
        windows[axis] = window
        return self.slice(a, windows)

    def pad(self, a: Tensor, begins: Sequence[int], ends: Sequence[int]) -> Tensor:
        """``a`` between zeros; negative numbers crop."""
        if not any((*begins, *ends)):
            return a
        attributes: AttributeMap = {"pads": (*begins, *ends), "mode": "constant", "value": 0}
        return self.emit("Pad", [a], attributes)

    def sum(self, a: Tensor, axes: Sequence[int], *, keepdims: bool = False) -> Tensor:
        """``a`` summed over ``axes``."""
        if not axes:
            return a
        return self.emit("ReduceSum", [a], {"axes": tuple(axes), "keepdims": int(keepdims)})

    def sum_to(self, a: Tensor, type_: TensorType) -> Tensor:
        """Undo broadcasting: ``a`` summed over the dimensions in which ``type_`` was expanded."""
        lead = a.type.rank - type_.rank
        axes = [
            axis
            for axis, dim in enumerate(a.type.shape)
            if axis < lead or (type_.shape[axis - lead] == 1 and dim != 1)
        ]
        return self.reshape(self.sum(a, axes, keepdims=True), type_.shape)


GradientRule: TypeAlias = Callable[[Backward], Sequence[Tensor | None]]


def no_gradient(backward: Backward) -> Sequence[Tensor | None]:
    """The rule of ops that are constant wherever they are differentiable (Floor, Equal, ArgMax)."""
    del backward
    return ()
