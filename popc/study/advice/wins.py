"""For programs that fit: what would make them faster, or smaller at little cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from popc.study.advice.change import Change
from popc.study.advice.search import Ladder, OnFinding, ignore
from popc.study.advice.situation import Fix, Situation
from popc.study.advice.trial import Outcome, Trial, Workshop
from popc.study.advice.workers import Pool
from popc_runtime.ground.frozen import frozen

__all__ = ["WINS", "Win", "find_wins"]

# What counts as faster, as smaller, and as little cost, as parts of what it was.  Costs are some
# per cent off those of real chips (docs/costs.md), but much the same before and after a change, so
# that one per cent of time means something.  Saving less than a twentieth of memory is no news.
_FASTER: Final = 0.99
_SMALLER: Final = 0.95
_LITTLE: Final = 1.01


@frozen
class Win:
    """A change that saves time or memory.

    Attributes:
        name: Of what is changed.
        trial: The change, and what came of it; the program still fits.
        base: The program as it is.
        faster: Whether it saves time; otherwise it saves memory.
        note: What a user should know.
    """

    name: str
    trial: Trial
    base: Outcome
    faster: bool
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        change, outcome = self.trial.change, self.trial.outcome
        return {
            "name": self.name,
            "saves": "time" if self.faster else "memory",
            "note": self.note,
            "change": change.to_dict(),
            "arguments": list(change.arguments()),
            **outcome.to_dict(),
            "cycles_change": outcome.cycles - self.base.cycles,
            "peak_bytes_change": outcome.peak_bytes - self.base.peak_bytes,
        }


def find_wins(
    pool: Pool,
    base: Outcome,
    ladders: Sequence[Ladder],
    limit: int,
    on_finding: OnFinding = ignore,
) -> tuple[Win, ...]:
    """Find changes that pay, the fastest first, then the smallest, in ``limit`` plans at most."""
    chosen: list[Ladder] = []
    for ladder in ladders:
        limit -= len(ladder.steps)
        if limit >= 0:
            chosen.append(ladder)
    done = 0

    def tell(_: int, __: list[Trial]) -> None:
        nonlocal done
        done += 1
        on_finding(done, len(chosen))

    results = pool.map(_try_all, chosen, tell)
    wins = [
        win
        for ladder, trials in zip(chosen, results, strict=True)
        for win in _wins_of(ladder, trials, base)
    ]
    return tuple(sorted(wins, key=_rank))


def _try_all(workshop: Workshop, ladder: Ladder) -> list[Trial]:
    return [workshop.try_(step) for step in ladder.steps]


def _wins_of(ladder: Ladder, trials: Sequence[Trial], base: Outcome) -> Iterator[Win]:
    """The fastest step, and the one that saves most memory at little cost."""
    fitting = [trial for trial in trials if trial.outcome.fits]
    if not fitting:
        return
    before = base.seconds_per_sample
    fastest = min(
        fitting, key=lambda point: (point.outcome.seconds_per_sample, point.outcome.peak_bytes)
    )
    if fastest.outcome.seconds_per_sample < _FASTER * before:
        yield Win(ladder.name, fastest, base, faster=True, note=ladder.note)
    cheap = [point for point in fitting if point.outcome.seconds_per_sample <= _LITTLE * before]
    smallest = min(cheap, key=lambda trial: trial.outcome.peak_bytes, default=None)
    if smallest is not None and smallest.outcome.peak_bytes < _SMALLER * base.peak_bytes:
        yield Win(ladder.name, smallest, base, faster=False, note=ladder.note)


def _rank(win: Win) -> tuple[bool, float, int]:
    outcome = win.trial.outcome
    if win.faster:
        return (False, outcome.seconds_per_sample, outcome.peak_bytes)
    return (True, 0.0, outcome.peak_bytes)


def _proportions(situation: Situation) -> Iterator[Change]:
    current = situation.value("available_memory_proportion")
    for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        if value != current:
            yield Change({"available_memory_proportion": value})


def _outlined(situation: Situation) -> Iterator[Change]:
    if not situation.value("enable_outlining"):
        yield Change({"enable_outlining": True})


def _without_recomputation(situation: Situation) -> Iterator[Change]:
    if situation.value("auto_recomputation") != "none" or situation.value("recompute"):
        yield Change({"auto_recomputation": None, "recompute": None})


def _larger_batches(situation: Situation) -> Iterator[Change]:
    found = situation.batch()
    if found is not None:
        size, change = found
        yield from (change(size * factor) for factor in (2, 4, 8))


def _merged_updates(situation: Situation) -> Iterator[Change]:
    if situation.trains:
        for value in ("auto_tight", "auto_loose", "all"):
            if situation.value("merge_var_update") != value:
                yield Change({"merge_var_update": value})


WINS: Final = (
    Fix("temporary memory for products", _proportions),
    Fix("code of repeated parts shared", _outlined),
    Fix("no recomputation", _without_recomputation),
    Fix("merged updates of weights", _merged_updates),
    Fix("a larger batch", _larger_batches, note="a run processes more samples"),
)
