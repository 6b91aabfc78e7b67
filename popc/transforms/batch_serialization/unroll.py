"""Repeat the ops of a region for every part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from popc.ir import Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.batch_serialization.analysis import Analysis, Context
from popc.transforms.batch_serialization.cut import Combination
from popc.transforms.batch_serialization.emit import (
    Finished,
    PartEmitter,
    beside,
    is_needed_whole,
    part_settings,
    whole_after,
)
from popc_runtime.ground.frozen import mutable

__all__ = ["unroll"]


def unroll(
    graph: Graph, analysis: Analysis, regions: Sequence[Sequence[Op]], *, dynamic: bool
) -> None:
    """Put parts in the place of the ops of ``regions``.

    Before::

        %h = MatMul(%x, @w)
        %y = Relu(%h)

    After, with two parts and plain slices::

        %x1 = Slice(%x) starts=[0, 0] sizes=[4, 3] steps=[1, 1]         batch_phase 0
        %h1 = MatMul(%x1, @w)
        %y1 = Relu(%h1)
        %x2 = Slice(%x) starts=[4, 0] sizes=[4, 3] steps=[1, 1]         batch_phase 1
        %h2 = MatMul(%x2, @w)
        %y2 = Relu(%h2)
        %y = Concat(%y1, %y2) axis=0

    With ``dynamic`` slices an index says which part is read, and parts are written into a tensor
    one after another.
    """
    unroller = _Unroller(graph, analysis, dynamic)
    for region in regions:
        for phase in range(analysis.parts):
            for op in region:
                unroller.add_part(op, phase)
        for op in region:
            unroller.finish(op)
    unroller.done.install(graph, analysis.cuts)


@mutable
class _Unroller:
    """The parts made so far."""

    graph: Graph
    analysis: Analysis
    dynamic: bool
    done: Finished = field(default_factory=Finished)
    # By result of a cut op, one for each part; or the last of the combined ones.
    parts: dict[Tensor, list[Tensor]] = field(default_factory=dict[Tensor, list[Tensor]])
    slices: dict[tuple[Tensor, int, int, Context], Tensor] = field(
        default_factory=dict[tuple[Tensor, int, int, Context], Tensor]
    )

    @property
    def emitter(self) -> PartEmitter:
        return PartEmitter(self.graph)

    def add_part(self, op: Op, phase: int) -> None:
        """Compute part ``phase`` of ``op``."""
        cut = self.analysis.cuts[op]
        operands = [
            None if tensor is None else self._operand(op, index, tensor, phase)
            for index, tensor in enumerate(op.inputs)
        ]
        part = build(
            self.graph,
            op.op_type,
            operands,
            {**op.attributes, **cut.attributes},
            output_names=[f"{tensor.name}_part" for tensor in op.outputs],
            settings=part_settings(op, phase),
        )
        for tensor, place, result in zip(op.outputs, cut.results, part.outputs, strict=True):
            parts = self.parts.setdefault(tensor, [])
            if isinstance(place, Combination):
                total = parts.pop() if parts else None
                settings = beside(op, "batchSum", whole_after(phase, self.analysis.parts))
                parts.append(self.emitter.combined(total, result, place, settings))
            else:
                parts.append(result)

    def finish(self, op: Op) -> None:
        """Put the results of ``op`` together that anyone needs as a whole."""
        for tensor, place in zip(op.outputs, self.analysis.cuts[op].results, strict=True):
            if isinstance(place, Combination):
                (total,) = self.parts[tensor]
                whole = self.emitter.finished(total, place, self.analysis.parts, op)
                self.done.whole[tensor] = whole
            elif is_needed_whole(self.graph, self.analysis, tensor):
                self.done.whole[tensor] = self._joined(op, self.parts[tensor], place)

    def _operand(self, op: Op, index: int, tensor: Tensor, phase: int) -> Tensor:
        cut = self.analysis.cuts[op]
        axis = cut.operands[index]
        if self.analysis.crosses(tensor, op):
            return self.parts[tensor][phase]
        whole = self.done.of(tensor)
        if index in cut.divided:
            whole = self.done.divided(self.graph, whole, op, self.analysis.parts)
        return whole if axis is None else self._slice(op, whole, axis, phase)

    def _slice(self, op: Op, whole: Tensor, axis: int, phase: int) -> Tensor:
        key = (whole, axis, phase, self.analysis.crossing.context(op))
        if key not in self.slices:
            size = whole.type.shape[axis] // self.analysis.parts
            settings = beside(op, "batchSlice", phase)
            if self.dynamic:
                offset = self.emitter.index(phase * size)
                part = self.emitter.dynamic_slice(whole, axis, offset, size, settings)
            else:
                part = self.emitter.slice(whole, axis, phase * size, size, settings)
            self.slices[key] = part
        return self.slices[key]

    def _joined(self, op: Op, parts: Sequence[Tensor], axis: int) -> Tensor:
        emit = self.emitter.emit
        if not self.dynamic:
            return emit("Concat", parts, beside(op, "batchConcat"), axis=axis)
        first, *rest = parts
        size, rank = first.type.shape[axis], first.type.rank
        pads = [0] * (2 * rank)
        pads[rank + axis] = size * len(rest)
        total = emit(
            "Pad", [first], beside(op, "batchInit", 0), pads=tuple(pads), mode="constant", value=0
        )
        for phase, part in enumerate(rest, start=1):
            offset = self.emitter.index(phase * size)
            settings = beside(op, "batchUpdate", whole_after(phase, len(parts)))
            total = emit(
                "DynamicUpdate", [total, offset, part], settings, axes=(axis,), sizes=(size,)
            )
        return total
