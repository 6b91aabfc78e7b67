"""Find layer normalisation that exporters have written out."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ir.attributes import integers
from popc.ops.build import build
from popc.ops.constants import scalar_value
from popc.transforms.base import RewritePass
from popc.transforms.match import is_scalar, only_user, other_operand, produced_by
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["RecogniseLayerNorm"]


@frozen
class RecogniseLayerNorm(RewritePass):
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon), times a scale, plus a bias.

    Before::

        %m = ReduceMean(%x) axes=[2] keepdims=1
        %d = Sub(%x, %m)
        %s = Pow(%d, float32(2.0))
        %v = ReduceMean(%s) axes=[2] keepdims=1
        %e = Add(%v, float32(1e-05))
        %r = Sqrt(%e)
        %n = Div(%d, %r)
        %t = Mul(%n, @scale)
        %y = Add(%t, @bias)

    After::

        %y = LayerNormalization(%x, @scale, @bias) axis=2 epsilon=1e-05 stash_type='float32'
    """

    name: ClassVar[str] = "recognise_layer_norm"
    rewrites: ClassVar[frozenset[str]] = frozenset({"Div"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Match backwards from the division, then take the scale and the bias along."""
        if op.op_type != "Div" or op.output.type.dtype is not DType.FLOAT32:
            return False
        match = _match_core(op)
        if match is None:
            return False
        x, axis, epsilon = match
        replaced, operands = _with_scale_and_bias(graph, op, x, axis)
        last = replaced[-1]
        attributes: AttributeMap = {"axis": axis, "epsilon": epsilon, "stash_type": "float32"}
        norm = build(graph, "LayerNormalization", operands, attributes, settings=last.settings)
        graph.replace_uses(last.output, norm.output)
        for old in reversed(replaced):  # what comes before them is for `DeadCode`
            graph.remove_op(old)
        return True


def _match_core(division: Op) -> tuple[Tensor, int, float] | None:
    """Operand, first axis and epsilon, if ``division`` ends the formula."""
    centred = produced_by(division.operand(0), "Sub")
    root = produced_by(division.operand(1), "Sqrt")
    total = None if root is None else produced_by(root.operand(0), "Add")
    if centred is None or total is None:
        return None
    variance, epsilon = total.operand(0), scalar_value(total.operand(1))
    if epsilon is None:
        variance, epsilon = total.operand(1), scalar_value(total.operand(0))
    x = centred.operand(0)
    axis = _mean_axis(centred.operand(1), x)
    if axis is None or epsilon is None or division.output.type != x.type:
        return None
    mean = produced_by(variance, "ReduceMean")
    if mean is None or not _is_square(mean.operand(0), centred.output):
        return None
    return (x, axis, epsilon) if _mean_axis(variance, mean.operand(0)) == axis else None


def _mean_axis(tensor: Tensor, x: Tensor) -> int | None:
    """The first axis if ``tensor`` is the mean of ``x`` over all axes from there on, kept."""
    mean = produced_by(tensor, "ReduceMean")
    if mean is None or mean.operand(0) is not x or not mean.attributes.get("keepdims"):
        return None
    axes = integers(mean.attributes, "axes")
    expected = tuple(range(x.type.rank - len(axes), x.type.rank))
    return axes[0] if axes and tuple(sorted(axes)) == expected else None


def _is_square(tensor: Tensor, base: Tensor) -> bool:
    power = produced_by(tensor, "Pow")
    if power is not None:
        return power.operand(0) is base and is_scalar(power.operand(1), 2)
    product = produced_by(tensor, "Mul")
    return product is not None and product.operand(0) is base and product.operand(1) is base


def _with_scale_and_bias(
    graph: Graph, division: Op, x: Tensor, axis: int
) -> tuple[list[Op], list[Tensor | None]]:
    """The division and what follows it in the formula, and the operands of the normalisation."""
    ops = [division]
    operands: list[Tensor | None] = [x]
    for op_type in ("Mul", "Add"):
        user = only_user(graph, ops[-1].output)
        if user is None or user.op_type != op_type:
            break
        parameter = other_operand(user, ops[-1].output)
        if not parameter.is_constant or parameter.type.shape != x.type.shape[axis:]:
            break
        operands.append(parameter)
        ops.append(user)
    if len(operands) == 1:  # the scale is a required operand
        operands.append(_ones(graph, x, axis))
    return ops, operands


def _ones(graph: Graph, x: Tensor, axis: int) -> Tensor:
    type_ = x.type.with_shape(x.type.shape[axis:])
    return graph.add_constant("ones", type_, np.ones(type_.shape, type_.dtype.storage))
