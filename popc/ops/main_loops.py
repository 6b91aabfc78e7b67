"""The loops around a program: over the batches of a step, and over micro-batches."""

from __future__ import annotations

from typing import Final, NamedTuple

from popc.ir import Graph, Op
from popc.ir.attributes import integer

__all__ = [
    "ACCUMULATION_LOOP",
    "PIPELINE",
    "STEP_LOOP",
    "MainLoop",
    "is_pipeline",
    "main_loops",
    "step_of_pipeline",
]

STEP_LOOP: Final = "stepLoop"
ACCUMULATION_LOOP: Final = "accumulationLoop"
# What has become of the innermost one of them if stages overlap; also the name of the partition of
# bins that keeps the steps of a pipeline apart.
PIPELINE: Final = "pipeline"


class MainLoop(NamedTuple):
    """A main loop and the graph that it stands in."""

    outer: Graph
    op: Op

    @property
    def body(self) -> Graph:
        """The graph that runs in every iteration."""
        return self.op.subgraphs["body"]

    @property
    def trips(self) -> int:
        """The number of iterations."""
        return integer(self.op.attributes, "trip_count")


def main_loops(graph: Graph) -> list[MainLoop]:
    """The main loops of a program, the outermost first."""
    found: list[MainLoop] = []
    while True:
        loops = (MainLoop(graph, op) for op in graph.ops if _is_main(op))
        loop = next(loops, None)
        if loop is None:
            return found
        found.append(loop)
        graph = loop.body


def is_pipeline(op: Op) -> bool:
    """True if ``op`` is the loop in which the stages of a pipeline take turns."""
    return op.op_type == "Loop" and op.subgraphs["body"].name == PIPELINE


def step_of_pipeline(op: Op) -> int | None:
    """The number of the step of a pipeline that ``op`` runs in; ``None`` outside of pipelines."""
    return next((number for name, number in op.settings.bins if name == PIPELINE), None)


def _is_main(op: Op) -> bool:
    names = (STEP_LOOP, ACCUMULATION_LOOP)
    return op.op_type == "Loop" and op.subgraphs["body"].name == op.settings.origin in names
