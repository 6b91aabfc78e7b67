"""Cycle counters of an executable: what its last run, and all of them, would have taken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from popc_runtime.cycles.execution import CycleProfile, ExecutionReport
from popc_runtime.device.engine import Engine
from popc_runtime.errors import UsageError

__all__ = ["CycleCounters"]

_INNER: Final = re.compile("inner(?:_ipu_([0-9]{1,4}))?")


class CycleCounters:
    """Counts what runs, and says what that costs.

    With several replicas, which run side by side, figures are those of the one that takes longest.
    """

    def __init__(self, profile: CycleProfile, engines: Sequence[Engine], program: str) -> None:
        self._profile = profile
        self._program = program
        self._counts = [
            engine.program.counts for engine in engines if engine.program.counts is not None
        ]
        self._runs = 0
        self._call = -1
        self._runs_of_call = 0
        self._last = [list[tuple[int, int]]() for _ in self._counts]
        self._all = [list[tuple[int, int]]() for _ in self._counts]

    def begin(self, call: int) -> None:
        """Forget what a run that failed has left; ``call`` numbers the call that the run is of."""
        if call != self._call:
            self._call, self._runs_of_call = call, 0
            self._last = [[] for _ in self._counts]
        for counts in self._counts:
            counts.take(self._program)

    def has_run(self, call: int | None) -> bool:
        """True if the program has run, in a certain call or at all."""
        return self._runs > 0 if call is None else self._call == call and self._runs_of_call > 0

    def end(self) -> None:
        """Note what a run has done."""
        self._runs += 1
        self._runs_of_call += 1
        taken = [counts.take(self._program) for counts in self._counts]
        self._last = _added(self._last, taken)
        self._all = _added(self._all, taken)

    def cycle_count(self, name: str) -> int:
        """Cycles of the last run: see `Executable.get_cycle_count`."""
        kind = "inner" if _INNER.fullmatch(name) else "outer"
        wanted = name in ("", "outer") or kind == "inner"
        if not wanted or kind not in self._profile.instrumentations:
            there = ", ".join(self._profile.instrumentations)
            raise UsageError(
                f"there is no cycle counter {name or 'outer'!r}",
                hint=f"the archive was compiled with hardware_instrumentations = {there}; the "
                "counters are called outer, inner_ipu_0, inner_ipu_1 and so on",
            )
        report = self.report(total=False)
        if kind == "outer":
            return report.cycles
        found = _INNER.fullmatch(name)
        assert found is not None, "matched above"
        return report.inner_cycles(int(found[1] or 0))

    def report(self, *, total: bool) -> ExecutionReport:
        """The execution report of the last call, or of all."""
        if not self._runs:
            raise UsageError("nothing has run yet: run the program before asking for its cycles")
        runs, counts = (self._runs, self._all) if total else (self._runs_of_call, self._last)
        reports = [self._profile.report(taken, runs) for taken in counts]
        return max(reports, key=lambda report: report.cycles)


_Counts: TypeAlias = "list[list[tuple[int, int]]]"


def _added(sums: _Counts, new: _Counts) -> _Counts:
    """Counts by replica and block, added up; empty ones are zeros."""
    return [
        [(old[0] + more[0], old[1] + more[1]) for old, more in zip(own, added, strict=True)]
        if own
        else added
        for own, added in zip(sums, new, strict=True)
    ]
