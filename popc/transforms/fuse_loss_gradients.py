"""Compute the gradient of a softmax and the loss behind it at once."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from popc.ir import AttributeMap, Graph, Op, Shape, Tensor
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.match import produced_by
from popc_runtime.ground.frozen import frozen

__all__ = ["FuseLossGradients"]


@frozen
class FuseLossGradients(RewritePass):
    """The gradient of -log(softmax(x)[label]) is softmax(x), minus 1 at the label.

    The gradient of the loss alone is zero but for the labels, and as large as the scores: it is
    made for nothing.  Where a probability is nearly 0, dividing by it also loses what the
    multiplication by it would give back.

    Before::

        %g = NllGrad(%loss_gradient, %p, %labels) reduction='mean'
        %y = SoftmaxGrad(%g, %p) axis=1

    After::

        %y = SoftmaxCrossEntropyLossGrad(%loss_gradient, %p, %labels) reduction='mean'
    """

    name: ClassVar[str] = "fuse_loss_gradients"
    rewrites: ClassVar[frozenset[str]] = frozenset({"SoftmaxGrad", "LogSoftmaxGrad"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Match backwards from the gradient of the softmax, or of its logarithm."""
        if op.op_type == "SoftmaxGrad":
            loss = _loss_of_probabilities(op)
        elif op.op_type == "LogSoftmaxGrad":
            loss = _loss_of_logarithms(op)
        else:
            return False
        if loss is None:
            return False
        graph.replace_op(op, [_fused(graph, op, loss)])
        return True


@frozen
class _Loss:
    """The gradient of a loss: operands, and whether the classes are the last dimension."""

    op: Op
    grad: Tensor
    labels: Tensor
    weights: Tensor | None
    classes_last: bool


def _loss_of_probabilities(op: Op) -> _Loss | None:
    grad = produced_by(op.operand(0), "NllGrad")
    if grad is None or grad.operand(1) is not op.operand(1) or not _is_last(op):
        return None
    return _Loss(grad, grad.operand(0), grad.operand(2), None, classes_last=True)


def _loss_of_logarithms(op: Op) -> _Loss | None:
    """The logarithms may have been reshaped to [samples, classes] in front of the loss."""
    given, shape = op.operand(0), op.operand(1).type.shape
    reshape = produced_by(given, "Reshape")
    source = given if reshape is None else reshape.operand(0)
    grad = produced_by(source, "NegativeLogLikelihoodLossGrad")
    if grad is None:
        return None
    rows = _is_last(op) and source.type.shape == (prod(shape[:-1]), shape[-1])
    if not rows and (source.type.shape != shape or op.attributes["axis"] != 1):
        return None
    return _Loss(grad, grad.operand(0), grad.operand(1), grad.optional(2), classes_last=rows)


def _is_last(op: Op) -> bool:
    return op.attributes["axis"] == op.operand(1).type.rank - 1


def _fused(graph: Graph, op: Op, loss: _Loss) -> Tensor:
    grad, result, labels = loss.grad, op.operand(1), loss.labels
    shape = result.type.shape
    if loss.classes_last:
        rows = (prod(shape[:-1]),)
        result = _reshaped(graph, op, result, (*rows, shape[-1]))
        labels = _reshaped(graph, op, labels, rows)
        if loss.op.attributes["reduction"] == "none":
            grad = _reshaped(graph, op, grad, rows)
    attributes: AttributeMap = {
        key: value for key, value in loss.op.attributes.items() if key != "shape"
    }
    attributes["log_probability"] = int(op.op_type == "LogSoftmaxGrad")
    operands = [grad, result, labels, loss.weights]
    fused = build(graph, "SoftmaxCrossEntropyLossGrad", operands, attributes, settings=op.settings)
    return _reshaped(graph, op, fused.output, shape)


def _reshaped(graph: Graph, op: Op, x: Tensor, shape: Shape) -> Tensor:
    if x.type.shape == shape:
        return x
    return build(graph, "Reshape", [x], {"shape": shape}, settings=op.settings).output
