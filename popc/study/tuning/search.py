"""Search the space of options for programs that are fast, small, or both.

Three phases share the budget, which counts programs.  Sweeps change one option at a time, which
also tells the options that do not matter.  Descent goes from the best program so far to its best
neighbour, as long as that is better.  Evolution mixes and mutates programs of the Pareto front.

What is planned next depends on results only, never on which came first: each phase decides on a
batch, plans all of it, and goes on.  So the same seed gives the same result whatever the number of
processes, and a search that is resumed continues as if it had not been interrupted.  That, and
that a few dozen deterministic measurements are all there is to learn from, is why no library of
optimizers is used: those that run in parallel depend on the order in which trials end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import zip_longest
from math import log
from random import Random
from typing import Any, Final, TypeAlias

from popc.study.advice import Change, Outcome, Trial
from popc.study.tuning.tunables import Dimension
from popc_runtime.ground.frozen import frozen

__all__ = ["OBJECTIVES", "Evaluator", "Findings", "Objective", "Point", "pareto_front", "search"]

# Changed options by name; empty for the program as it is.
Point: TypeAlias = "Mapping[str, Any]"

_GENERATION: Final = 8  # points that are planned together
_PATIENCE: Final = 40  # attempts to breed a point that was not planned yet
_STEPS: Final = 1000  # a thousandth of a natural logarithm, about 0.1 %, counts as one
_NOTHING: Final = 1 << 20  # below the logarithm of every measure, in steps
# Of the budget, at most so much goes to descent.
_DESCENT_SHARE: Final = 0.6

Key: TypeAlias = "tuple[int, ...]"
Objective: TypeAlias = "Callable[[Outcome], Key]"


def _exact(outcome: Outcome) -> tuple[float, float, float]:
    """Time, memory and archive as logarithms, a thousandth being one."""
    measures = (outcome.seconds_per_sample, outcome.peak_bytes, outcome.archive_bytes)
    time, memory, archive = (
        _STEPS * log(measure) if measure > 0 else -_NOTHING for measure in measures
    )
    return time, memory, archive


def _measures(outcome: Outcome) -> tuple[int, int, int]:
    """Time, memory and archive in steps of a thousandth."""
    time, memory, archive = map(round, _exact(outcome))
    return time, memory, archive


def _alike(outcome: Outcome, other: Outcome) -> bool:
    """True if less than a thousandth lies between them in everything, on either side of a step."""
    pairs = zip(_exact(outcome), _exact(other), strict=True)
    return outcome.fits == other.fits and all(abs(one - two) < 1 for one, two in pairs)


def _by_cycles(outcome: Outcome) -> Key:
    return _measures(outcome)


def _by_bytes(outcome: Outcome) -> Key:
    time, memory, archive = _measures(outcome)
    return memory, time, archive


def _by_archive(outcome: Outcome) -> Key:
    time, memory, archive = _measures(outcome)
    return archive, time, memory


def _balanced(outcome: Outcome) -> Key:
    """The product of time, memory and archive: the measures are logarithms."""
    measures = _measures(outcome)
    return (sum(measures), *measures)


OBJECTIVES: Final[Mapping[str, Objective]] = {
    "cycles": _by_cycles,
    "bytes": _by_bytes,
    "archive": _by_archive,
    "balanced": _balanced,
}


class Evaluator:
    """Plans points, nothing twice, and no more of them than the budget allows.

    Args:
        plan: Plans several points, in any order, and gives their outcomes in order.
        budget: How many points may be planned; those known from before count too.
    """

    def __init__(self, plan: Callable[[Sequence[Point]], Sequence[Outcome]], budget: int) -> None:
        self._plan = plan
        self.left = budget
        self.outcomes: dict[str, tuple[Point, Outcome]] = {}

    def __call__(self, points: Sequence[Point], *, beyond: bool = False) -> list[Outcome | None]:
        """Outcomes of points; ``None`` for those that the budget is too small for."""
        new = {key_of(point): point for point in points if key_of(point) not in self.outcomes}
        affordable = list(new.items()) if beyond else list(new.items())[: self.left]
        self.left = max(self.left - len(affordable), 0)
        results = self._plan([point for _, point in affordable])
        for (key, point), outcome in zip(affordable, results, strict=True):
            self.outcomes[key] = (point, outcome)
        found = (self.outcomes.get(key_of(point)) for point in points)
        return [pair[1] if pair is not None else None for pair in found]


def key_of(point: Point) -> str:
    """A point as text: equal for equal points."""
    return json.dumps(dict(point), sort_keys=True)


@frozen
class Findings:
    """The findings of a search.

    Attributes:
        base: The program as it is.
        best: The best point that fits; ``None`` if none does.
        effects: What leaving out each option of the best point would do to it.
        front: Points that fit and that no other one beats in everything.
        idle: Options that changed nothing.
        refused: Options none of whose values gave a program, and why.
        planned: How many points were planned.
        nearest: The point that lacks least memory, if none fits.
    """

    base: Outcome
    best: Trial | None
    effects: Mapping[str, Outcome]
    front: tuple[Trial, ...]
    idle: tuple[str, ...]
    refused: Mapping[str, str]
    planned: int
    nearest: Trial | None = None
    unexplored: tuple[str, ...] = field(default=())


def search(
    evaluator: Evaluator, dimensions: Sequence[Dimension], objective: Objective, seed: int
) -> Findings:
    """Search ``dimensions`` for the best point; the same arguments give the same result."""
    base = evaluator([{}], beyond=True)[0]
    assert base is not None, "the base is always planned"
    sweeps = _sweep(evaluator, dimensions)
    active = [
        dimension for dimension in dimensions if _matters(sweeps.get(dimension.option, []), base)
    ]
    ranking = _Ranking(evaluator, base, objective)
    _descend(evaluator, active, ranking)
    _evolve(evaluator, active, ranking, Random(seed))  # noqa: S311 - a search, not a secret
    best, effects = _pruned(evaluator, ranking)
    fitting = ranking.fitting()
    refused = {
        dimension.option: sweeps[dimension.option][0].refused
        for dimension in dimensions
        if sweeps.get(dimension.option)
        and all(outcome.refused for outcome in sweeps[dimension.option])
    }
    explored = [dimension.option for dimension in dimensions if sweeps.get(dimension.option)]
    idle = [trial for trial in explored if trial not in refused and trial not in _names(active)]
    return Findings(
        base=base,
        best=best,
        effects=effects,
        front=pareto_front(fitting),
        idle=tuple(idle),
        refused=refused,
        planned=len(evaluator.outcomes),
        nearest=None if best is not None else ranking.nearest(),
        unexplored=tuple(
            dimension.option for dimension in dimensions if dimension.option not in explored
        ),
    )


def _names(dimensions: Sequence[Dimension]) -> set[str]:
    return {dimension.option for dimension in dimensions}


class _Ranking:
    """Points that have been planned, by the objective."""

    def __init__(self, evaluator: Evaluator, base: Outcome, objective: Objective) -> None:
        self._evaluator = evaluator
        self._base = base
        self._objective = objective

    def rank(self, point: Point, outcome: Outcome) -> tuple[bool, Key, int, str]:
        """Lower is better: what fits comes first, then the objective, then fewer options."""
        if not outcome.fits:
            return (True, (outcome.excess,), len(point), key_of(point))
        return (False, self._objective(outcome), len(point), key_of(point))

    def best(self) -> tuple[Point, Outcome]:
        """The best point so far; one that does not fit if none does."""
        possible = [
            outcome for outcome in self._evaluator.outcomes.values() if not outcome[1].refused
        ]
        return min(possible, key=lambda point: self.rank(*point), default=({}, self._base))

    def fitting(self) -> list[Trial]:
        """All points that fit, in an order of their own."""
        points = sorted(self._evaluator.outcomes.items())
        return [Trial(Change(point), outcome) for _, (point, outcome) in points if outcome.fits]

    def nearest(self) -> Trial:
        """The point that lacks least."""
        point, outcome = self.best()
        return Trial(Change(point), outcome)

    def is_worse(self, outcome: Outcome, other: Outcome) -> bool:
        """True if ``outcome`` is worse than ``other``, whatever the points."""
        if outcome.fits and _alike(outcome, other):
            return False
        return self.rank({}, outcome)[:2] > self.rank({}, other)[:2]


def _sweep(evaluator: Evaluator, dimensions: Sequence[Dimension]) -> dict[str, list[Outcome]]:
    """Every value alone, first values first: a small budget is shared by all options."""
    rounds = zip_longest(
        *([(dimension.option, value) for value in dimension.values] for dimension in dimensions)
    )
    points = [{pair[0]: pair[1]} for row in rounds for pair in row if pair is not None]
    found: dict[str, list[Outcome]] = {}
    for point, outcome in zip(points, evaluator(points), strict=True):
        if outcome is not None:
            found.setdefault(next(iter(point)), []).append(outcome)
    return found


def _matters(outcomes: Sequence[Outcome], base: Outcome) -> bool:
    possible = [outcome for outcome in outcomes if not outcome.refused]
    return any(not _alike(outcome, base) for outcome in possible)


def _neighbours(point: Point, dimensions: Sequence[Dimension]) -> Iterator[Point]:
    """Points that differ in one option."""
    for dimension in dimensions:
        if dimension.option in point:
            yield {name: value for name, value in point.items() if name != dimension.option}
        for value in dimension.values:
            if point.get(dimension.option) != value:
                yield {**point, dimension.option: value}


def _descend(evaluator: Evaluator, active: Sequence[Dimension], ranking: _Ranking) -> None:
    """From the best point to its best neighbour, until there is none."""
    reserve = int(evaluator.left * (1 - _DESCENT_SHARE))
    while evaluator.left > reserve:
        point, outcome = ranking.best()
        evaluator(list(_neighbours(point, active)))
        if ranking.rank(*ranking.best()) >= ranking.rank(point, outcome):
            return


def _evolve(
    evaluator: Evaluator, active: Sequence[Dimension], ranking: _Ranking, random: Random
) -> None:
    """Children of the Pareto front, a generation at a time."""
    while active and evaluator.left > 0:
        parents = [dict(trial.change.options) for trial in pareto_front(ranking.fitting())]
        parents = parents or [dict(ranking.best()[0])]
        children: dict[str, Point] = {}
        for _ in range(_PATIENCE):
            child = _child(parents, active, random)
            if key_of(child) not in evaluator.outcomes:
                children[key_of(child)] = child
            if len(children) == min(_GENERATION, evaluator.left):
                break
        if not children:
            return
        evaluator(list(children.values()))


def _child(parents: Sequence[dict[str, Any]], active: Sequence[Dimension], random: Random) -> Point:
    """Options of two parents, of which one or two mutate."""
    first, second = random.choice(parents), random.choice(parents)
    child: dict[str, Any] = {}
    for dimension in active:
        giver = first if random.random() < 0.5 else second
        if dimension.option in giver:
            child[dimension.option] = giver[dimension.option]
    for dimension in random.sample(list(active), min(random.choice((1, 1, 2)), len(active))):
        choice = random.randrange(len(dimension.values) + 1)
        child.pop(dimension.option, None)
        if choice < len(dimension.values):
            child[dimension.option] = dimension.values[choice]
    return child


def _pruned(evaluator: Evaluator, ranking: _Ranking) -> tuple[Trial | None, dict[str, Outcome]]:
    """The best point without options that do nothing for it; what leaving out the others does."""
    point, outcome = ranking.best()
    if not outcome.fits:
        return None, {}
    while True:
        without = {name: {k: v for k, v in point.items() if k != name} for name in point}
        outcomes = evaluator(list(without.values()), beyond=True)
        effects = {
            name: outcome
            for name, outcome in zip(without, outcomes, strict=True)
            if outcome is not None
        }
        idle = [name for name, effect in effects.items() if not ranking.is_worse(effect, outcome)]
        if not idle:
            return Trial(Change(point), outcome), effects
        point, outcome = without[idle[0]], effects[idle[0]]


def pareto_front(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """The trials that no other beats in everything, the fastest first; of equal ones, one."""
    distinct: dict[tuple[int, int, int], Trial] = {}
    for trial in sorted(
        trials, key=lambda point: (len(point.change.options), key_of(point.change.options))
    ):
        distinct.setdefault(_measures(trial.outcome), trial)
    front = [
        measures
        for measures in distinct
        if not any(
            other != measures and all(a <= b for a, b in zip(other, measures, strict=True))
            for other in distinct
        )
    ]
    return tuple(distinct[measures] for measures in sorted(front))
