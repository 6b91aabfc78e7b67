"""The measures of an order: bytes live in each step, the peak, the sum."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from popc.schedule.flat import find_native, first_live, flattened
from popc.schedule.problem import Order, OrderingProblem

__all__ = ["Cost", "measure", "measure_steps", "steps_by_definition"]


class Cost(NamedTuple):
    """The cost of an order; what comes first matters most.

    Attributes:
        attraction: The sum of rank times place, over all nodes: high priorities want to be early.
        stretch: How far tied nodes are apart, added up.
        peak: The most bytes live in a step.
        total: The bytes live in each step, added up ("sum liveness").
    """

    attraction: int
    stretch: int
    peak: int
    total: int


def measure(problem: OrderingProblem, order: Order) -> Cost:
    """The cost of an order of all nodes of ``problem``."""
    members = problem.members
    steps = measure_steps(problem, order)
    counted = steps
    if () in members:  # barriers, which take no time
        counted = [step for node, step in zip(order, steps, strict=True) if members[node]]
    attraction = stretch = 0
    if problem.has_levels:
        run = [node for node in order if members[node]]
        places = {node: place for place, node in enumerate(run)}
        attraction = sum(problem.ranks[node] * place for node, place in places.items())
        stretch = sum(abs(places[second] - places[first]) for first, second in problem.ties)
    return Cost(attraction, stretch, max([problem.floor, *counted]), sum(counted))


def measure_steps(problem: OrderingProblem, order: Order) -> list[int]:
    """The bytes live in each step of an order of all nodes."""
    native = find_native()
    tables = flattened(problem, order) if native is not None else None
    if native is None or tables is None:
        return steps_by_definition(problem, order)
    steps = array("q", tables.order)
    native.measure_steps(tables.columns, tables.order, steps, first_live(problem))
    return steps.tolist()


def steps_by_definition(problem: OrderingProblem, order: Order) -> list[int]:
    """The definition of `measure_steps`, in Python."""
    left = problem.count_readers()
    weights, frees = problem.weights, problem.frees
    reads, makes, rise, takes = problem.reads, problem.makes, problem.rise, problem.takes
    live = problem.base + sum(weights[buffer] for buffer in problem.initial)
    steps: list[int] = []
    for node in order:
        step = live + rise[node]
        for nbytes, buffers in takes[node]:
            if any(left[buffer] == 1 for buffer in buffers):
                step -= nbytes
        steps.append(step)
        for buffer in makes[node]:
            live += weights[buffer]
        for buffer in reads[node]:
            left[buffer] -= 1
            if left[buffer] == 0:
                live -= frees[buffer]
    return steps
