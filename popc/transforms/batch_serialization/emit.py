"""The common ground of both ways to compute parts: slices, sums, putting parts together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Final

import numpy as np

from popc.ir import Graph, Op, OpSettings, Recompute, Tensor, TensorType
from popc.ops.build import build
from popc.transforms.batch_serialization.analysis import Analysis
from popc.transforms.batch_serialization.cut import Combination
from popc_runtime.format import Attribute, DType
from popc_runtime.ground.frozen import frozen, mutable
from popc_runtime.kernels.core.stored import as_stored

__all__ = [
    "Finished",
    "PartEmitter",
    "beside",
    "is_needed_whole",
    "neutral",
    "part_settings",
    "whole_after",
]


def part_settings(op: Op, phase: int | None, origin: str = "") -> OpSettings:
    """The settings of a part of ``op``, or, with an ``origin``, of what stands beside it."""
    settings = replace(op.settings, batch_phase=phase)
    return replace(settings, origin=origin, recompute=Recompute.UNDEFINED) if origin else settings


def whole_after(phase: int, parts: int) -> int | None:
    """The phase of what adds part ``phase`` to those before: the last one makes the whole."""
    return phase if phase < parts - 1 else None


def beside(op: Op, origin: str, phase: int | None = None) -> OpSettings:
    """The settings of an op that serves ``op``."""
    return part_settings(op, phase, origin)


@frozen
class PartEmitter:
    """Adds ops to a graph."""

    graph: Graph

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        settings: OpSettings,
        /,
        **attributes: Attribute,
    ) -> Tensor:
        """Add an op; its first result."""
        return build(self.graph, op_type, inputs, dict(attributes), settings=settings).output

    def constant(self, value: float, like: Tensor) -> Tensor:
        """A number of the type of ``like``."""
        type_ = like.type.with_shape(())
        return self.graph.add_constant("parts", type_, as_stored(value, type_.dtype))

    def index(self, value: int) -> Tensor:
        """The offset of a dynamic slice."""
        type_ = TensorType(DType.INT64, (1,))
        return self.graph.add_constant("offset", type_, np.asarray([value], np.int64))

    def slice(self, x: Tensor, axis: int, start: int, size: int, settings: OpSettings) -> Tensor:
        """``size`` elements of ``axis``, from ``start``."""
        starts, sizes = [0] * x.type.rank, list(x.type.shape)
        starts[axis], sizes[axis] = start, size
        return self.emit(
            "Slice", [x], settings,
            starts=tuple(starts), sizes=tuple(sizes), steps=(1,) * x.type.rank,
        )  # fmt: skip

    def dynamic_slice(
        self, x: Tensor, axis: int, offset: Tensor, size: int, settings: OpSettings
    ) -> Tensor:
        """``size`` elements of ``axis``, from ``offset``."""
        return self.emit("DynamicSlice", [x, offset], settings, axes=(axis,), sizes=(size,))

    def stacked(self, x: Tensor, axis: int, settings: OpSettings) -> Tensor:
        """Parts [parts, ...], put together along ``axis`` of what follows."""
        parts, *rest = x.type.shape
        shape = (*rest[:axis], parts * rest[axis], *rest[axis + 1 :])
        if prod(rest[:axis]) != 1:
            axes = range(1, x.type.rank)
            x = self.emit("Transpose", [x], settings, perm=(*axes[:axis], 0, *axes[axis:]))
        return self.emit("Reshape", [x], settings, shape=shape)

    def combined(
        self, total: Tensor | None, part: Tensor, how: Combination, settings: OpSettings
    ) -> Tensor:
        """``part`` added to what earlier parts gave."""
        if total is None:
            return part
        op_type = "Add" if how is Combination.MEAN else how.value
        return self.emit(op_type, [total, part], settings)

    def finished(self, total: Tensor, how: Combination, parts: int, op: Op) -> Tensor:
        """The whole of ``op``'s result from all parts together."""
        if how is not Combination.MEAN:
            return total
        divisor = self.constant(parts, total)
        return self.emit("Div", [total, divisor], beside(op, "batchMean"))


def neutral(graph: Graph, type_: TensorType, how: Combination) -> Tensor:
    """The neutral element of a combination: a tensor of one number."""
    value = _NEUTRAL.get(how, 0)
    if how in (Combination.MAX, Combination.MIN) and not type_.dtype.is_float:
        limits = np.iinfo(type_.dtype.storage)
        value = limits.min if how is Combination.MAX else limits.max
    scalar = graph.add_constant("start", type_.with_shape(()), as_stored(value, type_.dtype))
    return build(graph, "Expand", [scalar], {"shape": type_.shape}).output


_NEUTRAL: Final = {
    Combination.PRODUCT: 1,
    Combination.MAX: -np.inf,
    Combination.MIN: np.inf,
}


def is_needed_whole(graph: Graph, analysis: Analysis, tensor: Tensor) -> bool:
    """True if anyone reads more than the parts of ``tensor`` as they are."""
    return graph.is_output(tensor) or any(
        not analysis.crosses(tensor, user) for user in tensor.users
    )


@mutable
class Finished:
    """The replacements of the results of cut ops."""

    whole: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    quotients: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])

    def of(self, tensor: Tensor) -> Tensor:
        """The whole of ``tensor``."""
        return self.whole.get(tensor, tensor)

    def divided(self, graph: Graph, tensor: Tensor, reader: Op, parts: int) -> Tensor:
        """``tensor`` divided by the number of parts."""
        if tensor not in self.quotients:
            emitter = PartEmitter(graph)
            operands = [tensor, emitter.constant(parts, tensor)]
            self.quotients[tensor] = emitter.emit("Div", operands, beside(reader, "batchMean"))
        return self.quotients[tensor]

    def install(self, graph: Graph, cut: Mapping[Op, object]) -> None:
        """Let what stays whole read the new tensors, and remove the ops that were cut."""
        for old, new in self.whole.items():
            for user in old.users:
                if user not in cut:
                    for index, operand in enumerate(user.inputs):
                        if operand is old:
                            graph.set_input(user, index, new)
            graph.outputs = [new if output is old else output for output in graph.outputs]
        for op in reversed(list(cut)):
            names = [tensor.name for tensor in op.outputs]
            graph.remove_op(op)
            for name, tensor in zip(names, list(op.outputs), strict=True):
                if tensor in self.whole:
                    graph.rename(self.whole[tensor], name)
