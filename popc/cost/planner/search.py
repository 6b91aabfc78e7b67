"""The search for the best plan, and the plans found so far."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from popc.cost.formulas.numbers import BYTES, VECTOR
from popc.cost.planner.candidates import Candidates, candidates_for
from popc.cost.planner.evaluate import Costs, evaluate
from popc.cost.planner.methods import Method, methods_for, weights_per_unit
from popc.cost.planner.plan import Plan, PlanStep, Splits
from popc.cost.planner.problem import ConvProblem
from popc.cost.planner.steps import CandidateStep, taken
from popc.target import Target
from popc_runtime.ground.frozen import frozen

__all__ = ["Planner", "forms_of"]

# Serial splits (input channels, output channels) that are tried until a plan fits.
_SERIAL = ((1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (1, 8), (8, 1), (1, 16), (16, 1), (1, 32))


class Planner:
    """Plans for one target; what has been seen is not planned again."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._plans: dict[tuple[ConvProblem, float], Plan] = {}
        self._fronts: dict[tuple[ConvProblem, tuple[int, int]], tuple[_Front, ...]] = {}

    def plan(self, problem: ConvProblem, proportion: float) -> Plan:
        """The plan with the fewest cycles within ``proportion`` of a tile's memory.

        If there is none the bound is doubled until it is twice the memory, and then dropped; 0
        asks for the plan that needs the least memory.
        """
        key = problem, proportion
        if key not in self._plans:
            self._plans[key] = self._search(problem.nowhere_empty(), proportion).plan()
        return self._plans[key]

    def _search(self, problem: ConvProblem, proportion: float) -> _Trial:
        memory = self._target.tile.memory_bytes
        bound = proportion * memory
        found: list[_Trial] = []
        for serial in _SERIAL:
            found += [front.best(bound) for front in self._fronts_of(problem, serial)]
            if any(trial.fits for trial in found):
                break
        if proportion == 0:
            return min(found, key=lambda trial: (trial.temporary, trial.cycles))
        limit = bound
        while limit < 4 * memory:
            fitting = [trial for trial in found if trial.temporary <= limit]
            if fitting:
                return min(fitting, key=lambda trial: trial[:2])
            limit *= 2
        return min(found, key=lambda trial: trial[:2])

    def _fronts_of(self, problem: ConvProblem, serial: tuple[int, int]) -> tuple[_Front, ...]:
        key = problem, serial
        if key not in self._fronts:
            self._fronts[key] = tuple(_find_fronts(problem, serial, self._target))
        return self._fronts[key]


class _Trial(NamedTuple):
    """A candidate of a front that may be the one, and whether it keeps within the bound."""

    cycles: int
    temporary: int
    front: _Front
    number: int
    fits: bool

    def plan(self) -> Plan:
        """The candidate in full."""
        front, index = self.front, self.number
        return _plan(front.problem, front.method, front.splits, front.costs, index, fits=self.fits)


@frozen
class _Front:
    """The candidates for a form of a problem by one method that no smaller one is faster than.

    Attributes:
        problem, method, splits, costs: Of these alone, the smallest first.
        temporary: Bytes of each.
        cycles: Of each; they fall.
    """

    problem: ConvProblem
    method: Method
    splits: Candidates
    costs: Costs
    temporary: list[int]
    cycles: list[int]

    @classmethod
    def of(cls, problem: ConvProblem, method: Method, splits: Candidates, costs: Costs) -> Self:
        """The front of all candidates; of those that are equal, the first one counts."""
        cycles = np.broadcast_to(costs.cycles, np.shape(costs.temporary))
        rank = np.empty(len(cycles), np.int64)
        rank[np.argsort(cycles, kind="stable")] = np.arange(len(cycles))
        order = np.argsort(costs.temporary, kind="stable")
        front = order[rank[order] == np.minimum.accumulate(rank[order])]
        splits, costs = taken(splits, front), costs.taken(front)
        temporary: list[int] = np.asarray(costs.temporary).tolist()
        return cls(problem, method, splits, costs, temporary, cycles[front].tolist())

    def best(self, bound: float) -> _Trial:
        """The fastest candidate within ``bound``, or the smallest one."""
        place = bisect_right(self.temporary, bound) - 1
        index = max(place, 0)
        return _Trial(self.cycles[index], self.temporary[index], self, index, place >= 0)


def _find_fronts(problem: ConvProblem, serial: tuple[int, int], target: Target) -> Iterator[_Front]:
    """For each form of the problem and each method that does it."""
    forms = [sums for form in forms_of(problem) for sums in _types_of_sums(form)]
    for form in forms:
        for method in methods_for(form, target.conv):
            if serial[0] > -(-form.in_channels // method.in_group):
                continue
            if serial[1] > -(-form.out_channels // method.out_group):
                continue
            splits = candidates_for(form, method, target.compute_tiles, serial)
            yield _Front.of(form, method, splits, evaluate(form, method, splits, target))


def _types_of_sums(form: ConvProblem) -> Iterator[ConvProblem]:
    """The form, and if each result is one sum of a single block of channels, one without casts.

    Poplin lets vertices leave the type of the result then, as nothing is added up afterwards.
    """
    yield form
    narrower = BYTES[form.output_type] < BYTES[form.partials_type]
    if narrower and form.positions == 1 and form.in_channels <= weights_per_unit(form.inputs_type):
        yield replace(form, partials_type=form.output_type)


def forms_of(problem: ConvProblem) -> Iterator[ConvProblem]:
    """The problem, and others with the same result."""
    flat = problem.flattened()
    yield flat
    if flat.positions == 1 and flat.strides == (1, 1):
        yield flat.with_operands_swapped()
        return
    for count in _combinations(flat):
        yield flat.with_groups_combined(count)
    if _may_expand(flat):
        if flat.positions > 1:
            yield flat.with_kernel_in_channels(rows=False)
        if flat.kernel[0] > 1 or flat.positions == 1:
            product = flat.with_kernel_in_channels(rows=True)
            yield product
            yield product.with_operands_swapped()


def _combinations(problem: ConvProblem) -> Iterator[int]:
    """Numbers of conv groups that may be one: poplin tries it for one channel, or two of halves."""
    vector, channels = VECTOR[problem.inputs_type], problem.in_channels
    most = {"half": 2, "float": 1}.get(problem.inputs_type, 0)
    if problem.groups == 1 or channels > most:
        return
    count = vector // channels
    while count * channels <= 4 * vector:
        yield count
        count *= 2


def _may_expand(problem: ConvProblem) -> bool:
    """True if the kernel may become channels: poplin tries it where the input is as large."""
    return all(kernel <= size for kernel, size in zip(problem.kernel, problem.inputs, strict=True))


def _plan(
    problem: ConvProblem,
    method: Method,
    splits: Candidates,
    costs: Costs,
    index: int,
    *,
    fits: bool,
) -> Plan:
    """One candidate as a plan."""
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
    return Plan(
        method,
        chosen,
        parts,
        _at(costs.temporary, index),
        fits,
        _at(costs.outputs, index) * splits.serial_out,
        _channels(problem, method, chosen, costs, index),
        problem.swapped,
        problem.expanded,
        problem.combined,
    )


def _channels(
    problem: ConvProblem, method: Method, splits: Splits, costs: Costs, index: int
) -> int:
    """Output channels on a tile; after a swap they are the columns of the field.

    Tiles that have added up results share them in pieces that lie in a row: blocks of channels one
    behind the other, and all of the field within each (poplin's partialGroupedReduce).  Of each
    serial step a tile keeps its part.
    """
    shares, sharing = costs.shares, splits.in_channels * splits.kernel
    blocks = _at(shares.out_groups, index)
    if problem.swapped:
        columns = _at(shares.columns, index)
        return columns if sharing <= blocks else -(-columns * blocks // sharing)
    mine = max(blocks * method.out_group // sharing, method.out_group)
    return min(mine * splits.serial_out, problem.out_channels)


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
