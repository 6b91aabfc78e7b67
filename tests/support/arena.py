"""Runs a memory plan as it stands: real regions, real views, nothing but what the plan says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from popc.ir import Graph, Op, Tensor, TensorType
from popc.memory import MemoryPlace, MemoryPlan
from popc.schedule import Schedule
from popc_runtime.format import Array, DType, Region
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.random_graphs import first_state

__all__ = ["Arena"]

_GARBAGE = 0xA5


class Arena:
    """The memory of one loaded program."""

    def __init__(self, graph: Graph, schedule: Schedule, plan: MemoryPlan) -> None:
        self.graph, self.schedule, self.plan = graph, schedule, plan
        self.regions = {
            Region.ARENA: np.full(plan.arena_bytes, _GARBAGE, np.uint8),
            Region.STATE: np.full(plan.state_bytes, _GARBAGE, np.uint8),
            Region.REMOTE: np.full(plan.remote_bytes, _GARBAGE, np.uint8),
            Region.CONSTANT: np.full(plan.constant_bytes, _GARBAGE, np.uint8),
        }
        for block in plan.constants:
            data = np.frombuffer(block.data.tobytes(), np.uint8)
            self.regions[Region.CONSTANT][block.offset : block.offset + data.size] = data
        self._parameters: Sequence[Array] = ()
        self._constants = self.regions[Region.CONSTANT].copy()
        for variable, value in first_state(graph).items():
            self.view(variable)[...] = value
        self._run_ops(schedule.load)
        self._state = self._loaded_state()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the program once; nothing survives in the arena from before."""
        self.regions[Region.ARENA][:] = _GARBAGE
        for tensor, array in zip(self.graph.inputs, inputs, strict=True):
            self.view(tensor)[...] = array
        self._run_ops(self.schedule.orders[self.graph])
        assert np.array_equal(self.regions[Region.CONSTANT], self._constants)
        assert np.array_equal(self._loaded_state(), self._state)
        return [self.view(tensor).copy() for tensor in self.graph.outputs]

    def _loaded_state(self) -> Array:
        """The state region without the variables."""
        state = self.regions[Region.STATE].copy()
        for variable in self.graph.variables:
            if variable.off_chip:
                continue
            start = self.plan.placements[variable].offset
            state[start : start + variable.type.nbytes] = 0
        return state

    def view(self, tensor: Tensor) -> Array:
        """Where ``tensor`` lies."""
        place, type_ = self.plan.placements[tensor], tensor.type
        if type_.size == 0:
            return np.empty(type_.shape, type_.dtype.storage)
        return self._show(place, type_)

    def _show(self, place: MemoryPlace, type_: TensorType) -> Array:
        shape, dtype = type_.shape, type_.dtype.storage
        if place.region is not Region.PARAMETER:
            buffer = self.regions[place.region]
            return np.ndarray(shape, dtype, buffer, place.offset, place.strides)
        # Nothing in a parameter may lie outside of it.
        memory = self._parameters[place.parameter].reshape(-1).view(np.uint8)
        return np.ndarray(shape, dtype, memory, place.offset, place.strides)

    def _run_ops(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op in self.plan.views:
                continue
            if op.op_type == "CopyVarUpdate":
                self._copy(op.operand(1), op.operand(0))
            elif op.op_type == "If":
                self._run_if(op)
            elif op.op_type == "Loop":
                self._run_loop(op)
            elif op.op_type == "Call":
                self._run_call(op)
            elif op in self.plan.joined:
                self._run_concat(op)
            else:
                self._run_op(op)

    def _run_op(self, op: Op) -> None:
        binding = Binding(
            inputs=tuple(None if tensor is None else self.view(tensor) for tensor in op.inputs),
            outputs=tuple(self.view(tensor) for tensor in op.outputs),
            input_dtypes=tuple(None if t is None else t.type.dtype for t in op.inputs),
            output_dtypes=tuple(tensor.type.dtype for tensor in op.outputs),
            attributes=op.attributes,
            constant=(False,) * len(op.inputs),
            scratch=Scratch(),
            random=RandomState(),
        )
        with np.errstate(all="ignore"):
            for call in prepare(KERNELS[op.op_type], binding):
                call()

    def _run_concat(self, op: Op) -> None:
        """Only what is not joined is copied."""
        axis = int(str(op.attributes["axis"]))
        ends = np.cumsum([op.operand(i).type.shape[axis] for i in range(len(op.inputs))])
        parts = np.split(self.view(op.output), ends[:-1], axis)
        for index, part in enumerate(parts):
            if index not in self.plan.joined[op]:
                part[...] = self.view(op.operand(index))

    def _copy(self, source: Tensor, target: Tensor) -> None:
        if self.plan.placements[source] != self.plan.placements[target]:
            self.view(target)[...] = self.view(source)

    def _run_if(self, op: Op) -> None:
        name = "then_branch" if self.view(op.operand(0)) else "else_branch"
        branch = op.subgraphs[name]
        self._run_ops(self.schedule.orders[branch])
        for source, target in zip(branch.outputs, op.outputs, strict=True):
            self._copy(source, target)

    def _run_call(self, op: Op) -> None:
        """What the callee works in has no content before, and need not have the same after."""
        callee = op.subgraphs["callee"]
        size = self.plan.frame_bytes[callee]
        frame = self._show(self.plan.frames[op], TensorType(DType.UINT8, (size,)))
        handed_over = [*(self.view(tensor) for tensor in (*op.present_inputs, *op.outputs)), frame]
        before = [self.view(tensor).copy() for tensor in op.present_inputs]
        outer, self._parameters = self._parameters, handed_over
        frame[:] = _GARBAGE
        self._run_ops(self.schedule.orders[callee])
        frame[:] = _GARBAGE
        self._parameters = outer
        for tensor, value in zip(op.present_inputs, before, strict=True):
            assert np.array_equal(self.view(tensor), value)

    def _run_loop(self, op: Op) -> None:
        body = op.subgraphs["body"]
        count = int(str(op.attributes["states"]))
        states = body.inputs[2 : 2 + count]
        self.view(body.inputs[1])[...] = True
        if op.inputs[1] is not None:
            self._copy(op.inputs[1], body.inputs[1])
        for initial, state in zip(op.inputs[2 : 2 + count], states, strict=True):
            assert initial is not None
            self._copy(initial, state)
        iteration = 0
        while self._continues(op, body, iteration):
            self.view(body.inputs[0])[...] = iteration
            self._run_ops(self.schedule.orders[body])
            for source, stack in zip(body.outputs[1 + count :], op.outputs[count:], strict=True):
                self.view(stack)[iteration] = self.view(source)
            for source, state in zip(body.outputs[1 : 1 + count], states, strict=True):
                self._copy(source, state)
            if op.attributes["conditional"]:
                self._copy(body.outputs[0], body.inputs[1])
            iteration += 1

    def _continues(self, op: Op, body: Graph, iteration: int) -> bool:
        """The trip count and the condition are read before every iteration."""
        trips = int(str(op.attributes["trip_count"]))
        if trips < 0:
            trips = int(self.view(op.operand(0)))
        return iteration < trips and bool(self.view(body.inputs[1]))
