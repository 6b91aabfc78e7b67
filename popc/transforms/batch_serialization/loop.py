"""Compute the parts of a region in a loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.ops.build import build
from popc.transforms.batch_serialization.analysis import Analysis, Context
from popc.transforms.batch_serialization.cut import Combination
from popc.transforms.batch_serialization.emit import (
    Finished,
    PartEmitter,
    beside,
    is_needed_whole,
    neutral,
    part_settings,
)
from popc_runtime.format import DType
from popc_runtime.ground.frozen import mutable

__all__ = ["make_loops"]


def make_loops(graph: Graph, analysis: Analysis, regions: Sequence[Sequence[Op]]) -> None:
    """Put loops in the place of the ops of ``regions``; one for each place where they run.

    Before::

        %h = MatMul(%x, @w)
        %y = Relu(%h)

    After, with two parts::

        %s: float32[2,4,3] = Loop(-, -, %x) states=0 trip_count=2
          body = graph batchLoop(%iteration, %condition, %x) {
            %offset = Mul(%iteration, @4)
            %x1 = DynamicSlice(%x, %offset) axes=[0] sizes=[4]
            %h1 = MatMul(%x1, @w)
            %y1 = Relu(%h1)
            return True, %y1
          }
        %y = Reshape(%s) shape=[8, 3]

    What is combined over the parts is a state of the loop.
    """
    done = Finished()
    for region in regions:
        places: dict[Context, list[Op]] = defaultdict(list)
        for op in region:
            places[analysis.crossing.context(op)].append(op)
        for ops in places.values():
            _Loop(graph, analysis, done, ops).add()
    done.install(graph, analysis.cuts)


@mutable
class _Loop:
    """One loop on its way."""

    outer: Graph
    analysis: Analysis
    done: Finished
    ops: Sequence[Op]
    body: Graph = field(default_factory=lambda: Graph("batchLoop"))
    # By tensor of the outer graph, what the body sees of it.
    seen: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    captures: list[Tensor] = field(default_factory=list[Tensor])
    slices: dict[tuple[Tensor, int], Tensor] = field(
        default_factory=dict[tuple[Tensor, int], Tensor]
    )
    offsets: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    parts: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    states: list[tuple[Op, Tensor, Combination, Tensor]] = field(
        default_factory=list[tuple[Op, Tensor, Combination, Tensor]]
    )

    def add(self) -> None:
        """Make the body and the loop, and note what takes the place of the ops' results."""
        self.body.add_input("iteration", TensorType(DType.INT64, ()))
        self.body.add_input("condition", TensorType(DType.BOOL, ()))
        self._declare_states()
        for op in self.ops:
            self._add_part(op)
        scans = [
            (op, tensor, place)
            for op in self.ops
            for tensor, place in zip(op.outputs, self.analysis.cuts[op].results, strict=True)
            if isinstance(place, int) and self._leaves(tensor)
        ]
        self._return([self.parts[tensor] for _, tensor, _ in scans])
        loop = self._loop()
        results = iter(loop.outputs)
        for op, tensor, how, _ in self.states:
            total = PartEmitter(self.outer).finished(next(results), how, self.analysis.parts, op)
            self.done.whole[tensor] = total
        for op, tensor, axis in scans:
            settings = beside(op, "batchStack")
            self.done.whole[tensor] = PartEmitter(self.outer).stacked(next(results), axis, settings)

    def _declare_states(self) -> None:
        """One state for each result that is combined."""
        for op in self.ops:
            for tensor, place in zip(op.outputs, self.analysis.cuts[op].results, strict=True):
                if isinstance(place, Combination):
                    formal = self.body.add_input(f"{tensor.name}_total", tensor.type)
                    self.states.append((op, tensor, place, formal))

    def _add_part(self, op: Op) -> None:
        cut = self.analysis.cuts[op]
        operands = [
            None if tensor is None else self._operand(op, index, tensor)
            for index, tensor in enumerate(op.inputs)
        ]
        part = build(
            self.body,
            op.op_type,
            operands,
            {**op.attributes, **cut.attributes},
            output_names=[tensor.name for tensor in op.outputs],
            settings=part_settings(op, None),
        )
        self.parts.update(zip(op.outputs, part.outputs, strict=True))

    def _operand(self, op: Op, index: int, tensor: Tensor) -> Tensor:
        cut = self.analysis.cuts[op]
        axis = cut.operands[index]
        if tensor in self.parts and self.analysis.crosses(tensor, op):
            return self.parts[tensor]
        whole = self.done.of(tensor)
        if index in cut.divided:
            whole = self.done.divided(self.outer, whole, op, self.analysis.parts)
        if axis is None:
            return self._inside(whole)
        if (whole, axis) not in self.slices:
            self.slices[whole, axis] = self._slice(op, whole, axis)
        return self.slices[whole, axis]

    def _slice(self, op: Op, whole: Tensor, axis: int) -> Tensor:
        size = whole.type.shape[axis] // self.analysis.parts
        settings = beside(op, "batchSlice")
        offset = self._offset(size, settings)
        source = self._inside(whole)
        return PartEmitter(self.body).dynamic_slice(source, axis, offset, size, settings)

    def _offset(self, size: int, settings: OpSettings) -> Tensor:
        """The beginning of the part of an iteration."""
        if size not in self.offsets:
            type_ = TensorType(DType.INT64, ())
            factor = self.body.add_constant("size", type_, np.asarray(size, np.int64))
            emit = PartEmitter(self.body).emit
            product = emit("Mul", [self.body.inputs[0], factor], settings)
            self.offsets[size] = emit("Reshape", [product], settings, shape=(1,))
        return self.offsets[size]

    def _inside(self, tensor: Tensor) -> Tensor:
        """``tensor``, which the body reads: constants are its own, others are captured."""
        if tensor not in self.seen:
            if tensor.data is not None:
                inside = self.body.add_constant(tensor.name, tensor.type, tensor.data)
            else:
                inside = self.body.add_input(tensor.name, tensor.type)
                self.captures.append(tensor)
            self.seen[tensor] = inside
        return self.seen[tensor]

    def _return(self, scans: Sequence[Tensor]) -> None:
        true = np.asarray(1, DType.BOOL.storage)
        self.body.add_output(
            "condition", self.body.add_constant("true", TensorType(DType.BOOL, ()), true)
        )
        for op, tensor, how, formal in self.states:
            settings = beside(op, "batchSum")
            total = PartEmitter(self.body).combined(formal, self.parts[tensor], how, settings)
            self.body.add_output(total.name, total)
        for part in scans:
            self.body.add_output(part.name, part)

    def _loop(self) -> Op:
        parts, outputs = self.analysis.parts, self.body.outputs[1:]
        count = len(self.states)
        types = [tensor.type for tensor in outputs[:count]]
        types += [output.type.with_shape((parts, *output.type.shape)) for output in outputs[count:]]
        initial = [neutral(self.outer, state.type, how) for _, state, how, _ in self.states]
        settings = replace(part_settings(self.ops[-1], None), origin="batchLoop", bins=())
        return self.outer.add_op(
            "Loop",
            [None, None, *initial, *self.captures],
            types,
            {"trip_count": parts, "conditional": 0, "states": count},
            settings=settings,
            subgraphs={"body": self.body},
        )

    def _leaves(self, tensor: Tensor) -> bool:
        """True if a result is read outside of the loop, or as a whole."""
        ours = frozenset(self.ops)
        return is_needed_whole(self.outer, self.analysis, tensor) or any(
            user not in ours for user in tensor.users
        )
