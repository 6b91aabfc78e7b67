"""The reasons why a program does not fit and the remedies; or, if it fits, what it is like."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final, Unpack

from popc.compiler import plan_program
from popc.frontend import ModelSource
from popc.progress import OnProgress, Watch
from popc.reporting.estimation import check_target, costs_of
from popc.request import CompileKeywords, CompileRequest
from popc.study.advice.change import Change
from popc.study.advice.diagnosis import Diagnosis, diagnose
from popc.study.advice.fixes import FIXES
from popc.study.advice.search import Advice, Finding, OnFinding, find_fixes, ignore
from popc.study.advice.situation import Situation, ladders_for
from popc.study.advice.toml import format_toml
from popc.study.advice.trial import Outcome, Workshop, outcome_of
from popc.study.advice.wins import WINS, Win, find_wins
from popc.study.advice.workers import available_cores, open_pool
from popc_runtime.ground.frozen import frozen

__all__ = ["DEFAULT_BUDGET", "Explanation", "explain_model", "explain_request"]

DEFAULT_BUDGET: Final = 150  # programs that are planned
# Below so many seconds of planning, other processes are not worth starting.
_WORTH_PROCESSES: Final = 6.0


@frozen
class Explanation:
    """The reasons why a program does or does not fit, and the changes that would help.

    Attributes:
        diagnosis: The program as it is.
        advice: What makes it fit; ``None`` if it fits.
        wins: If it fits, what makes it faster or smaller.
        request: What was compiled.
    """

    diagnosis: Diagnosis
    advice: Advice | None = None
    wins: tuple[Win, ...] = ()
    request: CompileRequest | None = None

    @property
    def fits(self) -> bool:
        """True if the target holds the program."""
        return self.diagnosis.fits

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        data: dict[str, Any] = self.diagnosis.to_dict()
        if self.advice is not None:
            base = self.advice.base
            data["planned"] = self.advice.planned
            data["fixes"] = [finding_dict(fix, base) for fix in self.advice.fixes]
            data["insufficient"] = [
                finding_dict(finding, base) for finding in self.advice.insufficient
            ]
            data["not_tried"] = list(self.advice.left)
        else:
            data["wins"] = [win.to_dict() for win in self.wins]
        return data


def explain_model(
    model: ModelSource,
    *,
    budget: int = DEFAULT_BUDGET,
    jobs: int = 1,
    on_progress: OnProgress | None = None,
    on_finding: OnFinding = ignore,
    **keywords: Unpack[CompileKeywords],
) -> Explanation:
    """Explain why a model does or does not fit its target.  Exported as ``popc.explain``.

    Arguments are those of `popc.compile`, and

    Args:
        budget: How many programs are planned, about, to find out what helps; 0 for none.
        jobs: In how many processes; 0 for as many as there are cores, if that is worth it.  With
            more than 1, a script must protect its main part by ``if __name__ == "__main__"``.
        on_finding: Told how many of how many kinds of changes have been tried.

    Raises:
        ModelError, OptionError, UsageError: as `popc.compile`.
    """
    request = CompileRequest.of(model, **keywords)
    return explain_request(
        request, budget=budget, jobs=jobs, on_progress=on_progress, on_finding=on_finding
    )


def explain_request(
    request: CompileRequest,
    *,
    budget: int = DEFAULT_BUDGET,
    jobs: int = 1,
    on_progress: OnProgress | None = None,
    on_finding: OnFinding = ignore,
) -> Explanation:
    """`explain_model` for arguments that have been read."""
    check_target(request.options)
    watch = Watch(on_progress)
    loaded = request.load(watch)
    start = perf_counter()
    report = costs_of(plan_program(request, loaded, watch))
    seconds = perf_counter() - start
    diagnosis = diagnose(report)
    if budget <= 0:
        return Explanation(diagnosis, request=request)
    situation = Situation(request, loaded, report)
    ladders = ladders_for(situation, WINS if diagnosis.fits else FIXES)
    workers = jobs or _worthwhile(
        seconds * min(budget, sum(len(ladder.steps) for ladder in ladders))
    )
    base = outcome_of(report)
    with open_pool(Workshop(request, loaded), workers) as pool:
        if diagnosis.fits:
            wins = find_wins(pool, base, ladders, budget, on_finding)
            return Explanation(diagnosis, wins=wins, request=request)
        advice = find_fixes(pool, base, ladders, budget, on_finding)
        return Explanation(diagnosis, advice, request=request)


def _worthwhile(seconds: float) -> int:
    """The number of processes for so much work."""
    return available_cores() if seconds > _WORTH_PROCESSES else 1


def finding_dict(finding: Finding, base: Outcome) -> dict[str, Any]:
    """A finding as plain data."""
    data: dict[str, Any] = {"names": list(finding.names), "notes": list(finding.notes)}
    if finding.trial is None:
        return {**data, "refused": finding.refused}
    outcome = finding.trial.outcome
    cycles = {
        "cycles_change": outcome.cycles - base.cycles,
        "time_per_sample_ratio": ratio(outcome, base),
    }
    return {**data, **change_dict(finding.trial.change), **outcome.to_dict(), **cycles}


def change_dict(change: Change) -> dict[str, Any]:
    """A change as plain data, and as the arguments that make it."""
    toml = format_toml(
        {name: setting for name, setting in change.options.items() if setting is not None}
    )
    return {"change": change.to_dict(), "arguments": list(change.arguments()), "toml": toml}


def ratio(outcome: Outcome, base: Outcome) -> float:
    """The ratio of the times for a sample."""
    before = base.seconds_per_sample
    return outcome.seconds_per_sample / before if before else 1.0
