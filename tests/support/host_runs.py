"""Run graphs that talk with a host, an op at a time: what arrives on each stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from popc.ir import Graph, Op
from popc_runtime.format import Array
from tests.support.graph_text import random_values
from tests.support.random_graphs import first_state, interpret

__all__ = ["HostRun"]


class HostRun:
    """Sends random values, and collects what comes back.

    The values that the n-th transfer of a stream carries depend on its name and on n alone.
    """

    def __init__(self) -> None:
        self.loads: dict[str, int] = defaultdict(int)
        self.results: dict[str, list[Array]] = defaultdict(list)

    def __call__(self, op: Op, operands: Sequence[Array | None]) -> list[Array]:
        """A transfer."""
        stream = str(op.attributes["stream"])
        if op.op_type == "HostStore":
            assert operands[0] is not None
            self.results[stream].append(operands[0].copy())
            return []
        self.loads[stream] += 1
        return [random_values(f"{stream} {self.loads[stream]}", op.output.type)]

    def run(self, graph: Graph, times: int) -> None:
        """Run ``graph`` so often, each time with the variables of the time before."""
        state = first_state(graph)
        for number in range(1, times + 1):
            feeds = [
                random_values(f"{operand.name} {number}", operand.type) for operand in graph.inputs
            ]
            found = interpret(graph, feeds, state, host=self)
            for name, array in zip(graph.output_names, found, strict=True):
                self.results[name].append(array)
        for variable, array in state.items():
            self.results[f"${variable.name}"] = [array]
