"""Losses as ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from popc.ir import AttributeMap, Graph, OpSettings, Shape, Tensor, TensorType
from popc.ir.attributes import integers
from popc.ops.build import build
from popc.ops.infer import normal_axis
from popc.ops.loss_forms import ctc_loss, l1_loss, nll_loss, reduced, squared_error
from popc.training.losses.sampled import noise_contrastive, sampled_softmax
from popc.training.losses.spec import LossSpec
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import DType
from popc_runtime.kernels.core.stored import as_stored

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["add_loss"]

Find: TypeAlias = Callable[[str], Tensor]


def add_loss(graph: Graph, spec: LossSpec, find: Find, *, in_float32: bool = False) -> Tensor:
    """Add the ops of a loss to ``graph``, and inputs for the labels that it does not have.

    Args:
        graph: The graph.
        spec: What the loss is.
        find: The tensor of a name that the user knows.
        in_float32: Whether the loss of a float16 or bfloat16 tensor is computed in float32.

    Returns:
        The loss: a scalar, unless ``reduction`` is "none".

    Raises:
        ModelError: the tensors do not fit the loss.
        OptionError: lists what is wrong with ``spec``.
    """
    problems = tuple(spec.problems())
    if problems:
        raise OptionError("the loss is not described correctly", subject="loss", details=problems)
    builder = _Builder(graph, spec, find, in_float32=in_float32)
    try:
        loss = _BUILDERS[spec.type](builder)
    except ModelError as error:
        raise ModelError(
            f"the loss {spec.name!r} of {spec.input!r}: {error.message}",
            subject=spec.input,
            hint=error.hint,
        ) from error
    if loss is not builder.input:
        graph.rename(loss, spec.name)
    return loss


class _Builder:
    """The graph that a loss is added to; emits ops."""

    def __init__(self, graph: Graph, spec: LossSpec, find: Find, *, in_float32: bool) -> None:
        self.graph = graph
        self.spec = spec
        self._settings = OpSettings(origin=spec.name)
        self._find = find
        self._in_float32 = in_float32
        self._given = find(spec.input).type
        self.input = self.find(spec.input)
        dtype = self.input.type.dtype
        if not dtype.is_float:
            raise ModelError(
                f"the loss cannot be computed from {spec.input!r}, which is {self.input.type}",
                subject=spec.input,
                hint="name a floating-point tensor",
            )

    def find(self, name: str) -> Tensor:
        """A tensor to compute with."""
        return self._widened(self._find(name))

    def _widened(self, tensor: Tensor) -> Tensor:
        if not self._in_float32 or tensor.type.dtype not in (DType.FLOAT16, DType.BFLOAT16):
            return tensor
        return self.emit("Cast", [tensor], {"to": DType.FLOAT32.value})

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        attributes: AttributeMap | None = None,
        /,
    ) -> Tensor:
        """Add an op; its first result."""
        return build(self.graph, op_type, inputs, attributes, settings=self._settings).output

    def constant(self, values: npt.ArrayLike, dtype: DType, /) -> Tensor:
        """A constant."""
        data = as_stored(values, dtype)
        return self.graph.add_constant("constant", TensorType(dtype, data.shape), data)

    def labels(self, name: str, shape: Shape) -> Tensor:
        """Integers: an existing tensor of ``shape``, or a new input."""
        return self._fed(name, TensorType(self.spec.label_dtype, shape), any_integer=True)

    def target(self) -> Tensor:
        """The target of the input: an existing tensor of its type, or a new input."""
        return self._widened(self._fed(self.spec.label, self._given, any_integer=False))

    def _fed(self, name: str, type_: TensorType, *, any_integer: bool) -> Tensor:
        found = self.graph.tensors.get(name)
        if found is None:
            return self.graph.add_input(name, type_)
        fits = found.type == type_ or (any_integer and found.type.dtype.is_integer)
        if not fits or found.type.shape != type_.shape:
            raise ModelError(f"{name!r} is {found.type}, but must be {type_}")
        return found

    def reshaped(self, x: Tensor, shape: Shape) -> Tensor:
        """``x`` in another shape."""
        return x if x.type.shape == shape else self.emit("Reshape", [x], {"shape": shape})

    def with_axis(self, axis: int, place: int) -> Tensor:
        """The input with dimension ``axis`` moved to ``place``."""
        order = [other for other in range(self.input.type.rank) if other != axis]
        order.insert(place, axis)
        if order == sorted(order):
            return self.input
        return self.emit("Transpose", [self.input], {"perm": tuple(order)})

    def with_classes_last(self, axis: int) -> Tensor | None:
        """The input, or what it is transposed from, if ``axis`` is last there and all in order."""
        last = self.input.type.rank - 1
        if axis == last:
            return self.input
        mover = self.input.producer
        order = [*range(axis), last, *range(axis, last)]
        if mover is None or mover.op_type != "Transpose":
            return None
        if list(integers(mover.attributes, "perm")) != order:
            return None
        # The loss is computed where its input is, which may be another place than the operand's.
        there = mover.settings
        self._settings = replace(
            self._settings,
            virtual_graph=there.virtual_graph,
            pipeline_stage=there.pipeline_stage,
            execution_phase=there.execution_phase,
        )
        return mover.operand(0)


def _identity(b: _Builder) -> Tensor:
    return reduced(b, b.input, b.spec.reduction)


def _l1(b: _Builder) -> Tensor:
    x = b.emit("Sub", [b.input, b.target()]) if b.spec.label else b.input
    return l1_loss(b, x, b.spec.lambda_, b.spec.reduction)


def _mse(b: _Builder) -> Tensor:
    return squared_error(b, b.input, b.target(), b.spec.reduction)


def _nll(b: _Builder) -> Tensor:
    axis = _class_axis(b, -1)
    x = b.with_axis(axis, b.input.type.rank - 1)
    return nll_loss(
        b,
        x,
        b.labels(b.spec.label, x.type.shape[:-1]),
        b.spec.reduction,
        ignore_index=b.spec.ignore_index,
        log_probability=b.spec.log_probability,
    )


def _cross_entropy(b: _Builder) -> Tensor:
    """With the classes last, all others are taken as one: nothing needs to be moved."""
    shape = b.input.type.shape
    axis = _class_axis(b, 1)
    labels = b.labels(b.spec.label, shape[:axis] + shape[axis + 1 :])
    rows = labels.type.shape
    last = b.with_classes_last(axis)
    if last is not None:
        scores = b.reshaped(last, (prod(rows), shape[axis]))
        labels = b.reshaped(labels, (prod(rows),))
    else:
        scores = b.with_axis(axis, 1)
    attributes: AttributeMap = {"reduction": b.spec.reduction}
    if b.spec.ignore_index is not None:
        attributes["ignore_index"] = b.spec.ignore_index
    weights = b.find(b.spec.weights) if b.spec.weights else None
    loss = b.emit("SoftmaxCrossEntropyLoss", [scores, labels, weights], attributes)
    return b.reshaped(loss, rows) if b.spec.reduction == "none" else loss


def _class_axis(b: _Builder, default: int) -> int:
    rank = b.input.type.rank
    if rank < 2:
        raise ModelError(
            f"it is {b.input.type}, but must have a dimension of samples and one of classes"
        )
    return normal_axis(default if b.spec.axis is None else b.spec.axis, rank)


def _ctc(b: _Builder) -> Tensor:
    if b.input.type.rank != 3:
        raise ModelError(f"it is {b.input.type}, but must be [time, batch, classes]")
    steps, batch, _ = b.input.type.shape
    labels = b.labels(b.spec.label, (batch, _label_count(b)))
    operands = [
        b.input,
        labels,
        _lengths(b, b.spec.input_lengths, batch, steps),
        _lengths(b, b.spec.label_lengths, batch, labels.type.shape[1]),
    ]
    return ctc_loss(
        b, operands, b.spec.reduction, blank=b.spec.blank, zero_infinity=b.spec.zero_infinity
    )


def _label_count(b: _Builder) -> int:
    given = b.graph.tensors.get(b.spec.label)
    if given is not None and given.type.rank == 2:
        return given.type.shape[1]
    if b.spec.max_labels is None:
        raise ModelError(
            f"the number of labels in {b.spec.label!r} is unknown",
            hint="set max_labels to the largest number of labels of a sample",
        )
    return b.spec.max_labels


def _lengths(b: _Builder, name: str, batch: int, everything: int) -> Tensor:
    if name:
        return b.labels(name, (batch,))
    return b.constant(np.full(batch, everything), b.spec.label_dtype)


_BUILDERS: Final[dict[str, Callable[[_Builder], Tensor]]] = {
    "cross_entropy": _cross_entropy,
    "ctc": _ctc,
    "identity": _identity,
    "l1": _l1,
    "mse": _mse,
    "nce": noise_contrastive,
    "nll": _nll,
    "sampled_softmax": sampled_softmax,
}
