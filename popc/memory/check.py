"""An independent, naive check of memory plans: no cleverness shared with the planner.

It replays the program as a list of steps, each reading and writing tensors, follows every tensor
back to the one whose memory it shows (its origin), and compares all origins pair by pair: two that
hold values at the same step must lie apart, unless the plan says why they need not, and is right.
A graph that is called is a program of its own; the caller keeps what it hands over apart.
"""

from __future__ import annotations

from popc.ir import Graph
from popc.memory.check_calls import check_calls, with_frames
from popc.memory.check_places import check_constants, check_places, check_views
from popc.memory.check_remote import check_remote
from popc.memory.check_sharing import check_sharing
from popc.memory.plan import MemoryPlan
from popc.memory.replay import replay, replay_callee
from popc.ops.control import called_graphs
from popc.schedule import Schedule

__all__ = ["check_plan"]


def check_plan(graph: Graph, schedule: Schedule, plan: MemoryPlan) -> list[str]:
    """The problems of ``plan``, a sentence each; empty if it is legal."""
    tensors = [tensor for part in graph.walk() for tensor in part.tensors.values()]
    missing = [tensor for tensor in tensors if tensor not in plan.placements]
    if missing:
        return [f"{tensor!r} has no place" for tensor in missing]
    framed, frames = with_frames(graph, plan)
    runs = [replay(graph, schedule, framed, frames)]
    runs += [replay_callee(callee, schedule, framed, frames) for callee in called_graphs(graph)]
    return [
        *check_places(graph, plan),
        *check_calls(graph, plan),
        *check_constants(graph, plan),
        *check_views(graph, plan),
        *check_remote(graph, plan),
        *(problem for run in runs for problem in check_sharing(run, framed)),
    ]
