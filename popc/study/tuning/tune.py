"""Tune the options of a model by its costs on a target."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from popc.compiler import plan_program
from popc.options import SCHEMA
from popc.progress import OnProgress, Watch
from popc.reporting.estimation import costs_of, target_of
from popc.request import CompileRequest
from popc.study.advice import (
    Change,
    OnFinding,
    Outcome,
    Pool,
    Situation,
    Trial,
    Workshop,
    ignore,
    open_pool,
)
from popc.study.tuning.journal import Journal, identity_of
from popc.study.tuning.measure import measure
from popc.study.tuning.search import OBJECTIVES, Evaluator, Findings, Point, key_of, search
from popc.study.tuning.tunables import dimensions_of
from popc.target import Target
from popc_runtime.ground.frozen import frozen

__all__ = ["DEFAULT_BUDGET", "Tuning", "tune_request"]

DEFAULT_BUDGET: Final = 200  # programs: a minute for a network that is planned in 0.3 s

_DEFAULTS: Final[Mapping[str, Any]] = {spec.name: spec.default for spec in SCHEMA}


@frozen
class Tuning:
    """The result of a search.

    Attributes:
        request: What was tuned.
        objective: By what.
        found: What came of it.
    """

    request: CompileRequest
    objective: str
    found: Findings

    @property
    def target(self) -> Target:
        """The target, as far as the program uses it."""
        return target_of(self.request.options)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        found = self.found
        chosen = found.best or found.nearest
        return {
            "objective": self.objective,
            "fits": found.best is not None,
            "planned": found.planned,
            "before": _measured(found.base),
            "chosen": _trial_dict(chosen) if chosen is not None else None,
            "without": {name: _measured(effect) for name, effect in found.effects.items()},
            "pareto_front": [_trial_dict(trial) for trial in found.front],
            "did_not_matter": list(found.idle),
            "not_possible": dict(found.refused),
            "not_explored": list(found.unexplored),
        }


def _measured(outcome: Outcome) -> dict[str, Any]:
    return {**outcome.to_dict(), "archive_bytes": outcome.archive_bytes}


def _trial_dict(trial: Trial) -> dict[str, Any]:
    arguments = list(trial.change.arguments())
    options = dict(trial.change.options)
    return {"options": options, "arguments": arguments, **_measured(trial.outcome)}


def tune_request(
    request: CompileRequest,
    *,
    objective: str = "cycles",
    budget: int = DEFAULT_BUDGET,
    jobs: int = 1,
    seed: int = 0,
    allow_inexact: bool = False,
    journal: str | os.PathLike[str] | None = None,
    on_progress: OnProgress | None = None,
    on_planned: OnFinding = ignore,
) -> Tuning:
    """Search for the options with which a program costs least.

    Args:
        request: What is compiled; options that it sets stay as they are.
        objective: One of `OBJECTIVES`.
        budget: How many programs are planned, about.
        jobs: In how many processes; the result does not depend on it.
        seed: Of the search.
        allow_inexact: Whether options are tried that change results in the last bits.
        journal: A file for what has been tried; the search continues from it if it exists.
        on_progress: Told of the stages of the first compilation.
        on_planned: Told how many of how many programs have been planned.

    Raises:
        ModelError, OptionError, UsageError: the program cannot be compiled as it is.
        UsageError: the journal is of another search.
    """
    watch = Watch(on_progress)
    loaded = request.load(watch)
    report = costs_of(plan_program(request, loaded, watch))
    situation = Situation(request, loaded, report)
    dimensions = dimensions_of(situation, allow_inexact=allow_inexact)
    path = Path(journal) if journal is not None else None
    book = Journal(path, identity_of(request, loaded))
    try:
        with open_pool(Workshop(request, loaded), jobs) as pool:
            planner = _Planner(pool, book, budget, on_planned)
            found = search(Evaluator(planner, budget), dimensions, OBJECTIVES[objective], seed)
        if found.planned < budget:  # there was nothing more to try
            on_planned(found.planned, found.planned)
    finally:
        book.close()
    return Tuning(request, objective, found)


class _Planner:
    """Plans points in a pool; what the journal knows is not planned again."""

    def __init__(self, pool: Pool, journal: Journal, budget: int, on_planned: OnFinding) -> None:
        self._pool = pool
        self._journal = journal
        self._budget = budget
        self._on_planned = on_planned
        self._done = 0

    def __call__(self, points: Sequence[Point]) -> list[Outcome]:
        """Their outcomes, in order."""
        known = self._journal.known
        new = [point for point in points if key_of(point) not in known]
        self._count(len(points) - len(new))

        def keep(index: int, outcome: Outcome) -> None:
            self._journal.add(key_of(new[index]), outcome)
            self._count(1)

        self._pool.map(measure, [Change(point) for point in new], keep)
        return [known[key_of(point)] for point in points]

    def _count(self, number: int) -> None:
        self._done += number
        if number:
            self._on_planned(self._done, max(self._budget, self._done))
