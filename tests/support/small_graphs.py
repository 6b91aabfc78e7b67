"""Graphs written by hand, a line per op, and their memory plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.memory import MemoryPlan, check_plan, plan_memory
from popc.ops.build import build
from popc.schedule import Schedule, build_schedule
from popc_runtime.format import Attribute, DType

__all__ = ["SmallGraph", "plan_as_written"]

_HEADER = (TensorType(DType.INT64, ()), TensorType(DType.BOOL, ()))


class SmallGraph:
    """Builds one graph; results are named like variables where a test wants to find them."""

    def __init__(self, name: str = "main") -> None:
        self.graph = Graph(name)

    def input(self, *shape: int, dtype: DType = DType.FLOAT32) -> Tensor:
        return self.graph.add_input("x", TensorType(dtype, shape))

    def constant(self, value: npt.ArrayLike, dtype: DType = DType.FLOAT32) -> Tensor:
        array = np.asarray(value, dtype.storage)
        return self.graph.add_constant("c", TensorType(dtype, array.shape), array)

    def op(
        self, op_type: str, *inputs: Tensor, priority: float = 0.0, **attributes: Attribute
    ) -> Op:
        settings = OpSettings(schedule_priority=priority)
        return build(self.graph, op_type, inputs, attributes, settings=settings)

    def __call__(self, op_type: str, *inputs: Tensor, **attributes: Attribute) -> Tensor:
        return build(self.graph, op_type, inputs, attributes).output

    def output(self, *tensors: Tensor) -> Graph:
        for tensor in tensors:
            self.graph.add_output(tensor.name, tensor)
        return self.graph

    def branch(
        self,
        condition: Tensor,
        captures: Sequence[Tensor],
        then: Callable[[SmallGraph, list[Tensor]], list[Tensor]],
        otherwise: Callable[[SmallGraph, list[Tensor]], list[Tensor]],
    ) -> Op:
        """An If whose branches are written by functions from captures to results."""
        subgraphs: dict[str, Graph] = {}
        for name, write in (("then_branch", then), ("else_branch", otherwise)):
            inner = SmallGraph(name)
            inputs = [inner.graph.add_input(t.name, t.type) for t in captures]
            subgraphs[name] = inner.output(*write(inner, inputs))
        types = [tensor.type for tensor in subgraphs["then_branch"].outputs]
        return self.graph.add_op("If", [condition, *captures], types, subgraphs=subgraphs)

    def loop(
        self,
        states: Sequence[Tensor],
        captures: Sequence[Tensor],
        write: Callable[[SmallGraph, list[Tensor]], list[Tensor]],
        *,
        trip_count: int = 3,
        trip_operand: Tensor | None = None,
    ) -> Op:
        """A Loop; ``write`` takes (iteration, condition, states, captures), returns (condition,
        states, scans)."""
        inner = SmallGraph("body")
        types = [*_HEADER, *(t.type for t in states), *(t.type for t in captures)]
        inner.output(*write(inner, [inner.graph.add_input("in", type_) for type_ in types]))
        scans = inner.graph.outputs[1 + len(states) :]
        return self.graph.add_op(
            "Loop",
            [trip_operand, None, *states, *captures],
            [
                *(t.type for t in states),
                *(t.type.with_shape((trip_count, *t.type.shape)) for t in scans),
            ],
            {"trip_count": trip_count, "conditional": 0, "states": len(states)},
            subgraphs={"body": inner.graph},
        )


def plan_as_written(graph: Graph, *, inplace: bool = True) -> MemoryPlan:
    """The plan for the ops in the order in which the test wrote them."""
    load = build_schedule(graph).load
    orders = {part: tuple(op for op in part.ops if op not in load) for part in graph.walk()}
    schedule = Schedule(load, orders)
    plan = plan_memory(graph, schedule, inplace=inplace)
    assert check_plan(graph, schedule, plan) == []
    return plan
