"""The search for the best plan, and the plans found so far."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from popc.cost.planner.candidates import Candidates, candidates_for
from popc.cost.planner.evaluate import Costs, evaluate
from popc.cost.planner.methods import Method, methods_for
from popc.cost.planner.plan import Plan, PlanStep, Splits
from popc.cost.planner.problem import ConvProblem
from popc.cost.planner.steps import CandidateStep
from popc.target import Target

__all__ = ["Planner"]

# Serial splits (input channels, output channels) that are tried until a plan fits.
_SERIAL = ((1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (1, 8), (8, 1), (1, 16), (16, 1), (1, 32))
_FEW_CHANNELS = 16


class Planner:
    """Plans for one target; a problem that has been seen is not planned again."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._plans: dict[tuple[ConvProblem, float], Plan] = {}

    def plan(self, problem: ConvProblem, proportion: float) -> Plan:
        """The plan with the fewest cycles within ``proportion`` of a tile's memory.

        If there is none the bound is doubled until it is twice the memory, and then dropped; 0
        asks for the plan that needs the least memory.
        """
        key = problem, proportion
        if key not in self._plans:
            self._plans[key] = _search(problem.nowhere_empty(), proportion, self._target)
        return self._plans[key]

    @property
    def count(self) -> int:
        """Different problems planned so far."""
        return len({problem for problem, _ in self._plans})


def _search(problem: ConvProblem, proportion: float, target: Target) -> Plan:
    memory = target.tile.memory_bytes
    bound = proportion * memory
    found: list[tuple[int, int, Plan]] = []
    for serial in _SERIAL:
        found += _best_of_each(problem, serial, bound, target)
        if any(plan.fits for _, _, plan in found):
            break
    if proportion == 0:
        return min(found, key=lambda candidate: (candidate[1], candidate[0]))[2]
    limit = bound
    while limit < 4 * memory:
        fitting = [candidate for candidate in found if candidate[1] <= limit]
        if fitting:
            return min(fitting, key=lambda trial: trial[:2])[2]
        limit *= 2
    return min(found, key=lambda candidate: candidate[:2])[2]


def _best_of_each(
    problem: ConvProblem, serial: tuple[int, int], bound: float, target: Target
) -> list[tuple[int, int, Plan]]:
    """(cycles, bytes, plan) for each form of the problem and each method that does it."""
    found: list[tuple[int, int, Plan]] = []
    for form in _forms(problem):
        for method in methods_for(form, target.conv):
            if serial[0] > -(-form.in_channels // method.in_group):
                continue
            if serial[1] > -(-form.out_channels // method.out_group):
                continue
            splits = candidates_for(form, method, target.compute_tiles, serial)
            costs = evaluate(form, method, splits, target)
            found.append(_pick(form, method, splits, costs, bound))
    return found


def _forms(problem: ConvProblem) -> Iterator[ConvProblem]:
    """The problem, and others with the same result."""
    flat = problem.flattened()
    yield flat
    if flat.positions == 1:
        yield flat.with_operands_swapped()
    elif flat.in_channels < _FEW_CHANNELS or _is_weight_update(flat):
        yield flat.with_kernel_in_channels(rows=False)
        if flat.kernel[0] > 1:
            product = flat.with_kernel_in_channels(rows=True)
            yield product
            yield product.with_operands_swapped()


def _is_weight_update(problem: ConvProblem) -> bool:
    """True if the kernel is larger than what it makes, as where a gradient is the kernel."""
    return problem.positions > problem.field[0] * problem.field[1]


def _pick(
    problem: ConvProblem, method: Method, splits: Candidates, costs: Costs, bound: float
) -> tuple[int, int, Plan]:
    """The fastest candidate within ``bound``, or the smallest one."""
    fitting = costs.temporary <= bound
    if fitting.any():
        index = int(np.argmin(np.where(fitting, costs.cycles, np.iinfo(np.int64).max)))
    else:
        index = int(np.argmin(costs.temporary))
    parts = tuple(filter(None, (_part(step, index) for step in costs.steps)))
    chosen = Splits(
        _at(splits.groups, index),
        _at(splits.batch, index),
        _at(splits.rows, index),
        _at(splits.columns, index),
        _at(splits.in_channels, index),
        _at(splits.out_channels, index),
        _at(splits.kernel, index),
        splits.serial_in,
        splits.serial_out,
    )
    temporary = _at(costs.temporary, index)
    plan = Plan(
        method,
        chosen,
        parts,
        temporary,
        bool(fitting[index]),
        _at(costs.outputs, index) * splits.serial_out,
        _channels(problem, method, costs, index),
        problem.swapped,
        problem.expanded,
    )
    return _at(costs.cycles, index), temporary, plan


def _channels(problem: ConvProblem, method: Method, costs: Costs, index: int) -> int:
    """Output channels on a tile; after a swap they are the columns of the field."""
    shares = costs.shares
    if problem.swapped:
        return _at(shares.columns, index)
    return min(_at(shares.out_groups, index) * method.out_group, problem.out_channels)


def _part(step: CandidateStep, index: int) -> PlanStep | None:
    part = PlanStep(
        step.name,
        _at(step.exchange, index),
        _at(step.compute, index),
        _at(step.exchanges, index),
        _at(step.launches, index),
        _at(step.sources, index),
    )
    return part if part.exchange or part.compute or part.exchanges or part.launches else None


def _at(values: object, index: int) -> int:
    return int(values[index]) if isinstance(values, np.ndarray) and values.ndim else int(values)  # type: ignore[call-overload]
