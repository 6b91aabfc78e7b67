"""Try a change: plan the program again, and look at what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from popc.compiler import plan_program
from popc.frontend import LoadedModel
from popc.reporting.estimation import costs_of
from popc.request import CompileRequest
from popc.study.advice.change import Change
from popc_runtime.errors import PopcError
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.cost import CostReport

__all__ = ["Outcome", "Trial", "Workshop", "outcome_of", "refusal_of"]


@frozen
class Outcome:
    """The costs of a program, in a few numbers.

    Attributes:
        refused: Why there is none; "" if there is.
        cycles, samples: Of a run.
        clock_hz: Of the target's tiles: targets are compared by time.
        peak_bytes: Of the busiest tile of all chips.
        excess: Bytes that this tile lacks; negative if it has some left.
        tiles_over: The number of tiles of all chips that lack some.
        archive_bytes: Of the archive; 0 if nobody asked.
    """

    refused: str = ""
    cycles: int = 0
    samples: int = 1
    clock_hz: int = 1
    peak_bytes: int = 0
    excess: int = 0
    tiles_over: int = 0
    archive_bytes: int = 0

    @property
    def fits(self) -> bool:
        """True if there is a program, and the target holds it."""
        return not self.refused and self.excess <= 0

    @property
    def seconds_per_sample(self) -> float:
        """The measure where programs process different numbers of samples."""
        return self.cycles / self.clock_hz / max(self.samples, 1)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data."""
        if self.refused:
            return {"refused": self.refused}
        return {
            "fits": self.fits,
            "cycles": self.cycles,
            "samples": self.samples,
            "peak_bytes": self.peak_bytes,
            "excess_bytes": max(self.excess, 0),
            "tiles_over": self.tiles_over,
        }


@frozen
class Trial:
    """A change, and what came of it."""

    change: Change
    outcome: Outcome


def outcome_of(report: CostReport, archive_bytes: int = 0) -> Outcome:
    """The numbers of a report."""
    worst = max(report.memory, key=lambda chip: chip.excess)
    return Outcome(
        cycles=report.cycles.total,
        samples=report.samples,
        clock_hz=report.target.tile.clock_hz,
        peak_bytes=max(chip.peak_bytes for chip in report.memory),
        excess=worst.excess,
        tiles_over=sum(chip.tiles_over for chip in report.memory),
        archive_bytes=archive_bytes,
    )


def refusal_of(error: Exception) -> Outcome:
    """The outcome that says why a change leads to no program.

    That may be a bug of popc, which is said; but it must not take down the search for others.
    """
    if isinstance(error, PopcError):
        return Outcome(refused="; ".join((error.message, *error.details)))
    return Outcome(refused=f"popc fails: {error!r}")


class Workshop:
    """Answers what changes of one request cost; loads the model once, tries nothing twice."""

    def __init__(self, request: CompileRequest, loaded: LoadedModel | None = None) -> None:
        self.request = request
        self._loaded = loaded
        self._known: dict[str, Outcome] = {}

    @property
    def loaded(self) -> LoadedModel:
        """The model."""
        if self._loaded is None:
            self._loaded = self.request.load()
        return self._loaded

    def try_(self, change: Change) -> Trial:
        """Plan once more with ``change``; a program that cannot be is an outcome too."""
        key = repr(change)
        if key not in self._known:
            self._known[key] = self._outcome(change)
        return Trial(change, self._known[key])

    def _outcome(self, change: Change) -> Outcome:
        try:
            request = change.applied(self.request)
            return outcome_of(costs_of(plan_program(request, self.loaded)))
        except Exception as error:  # noqa: BLE001 - see refusal_of
            return refusal_of(error)
