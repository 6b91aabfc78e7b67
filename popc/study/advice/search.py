"""Find changes with which a program fits: every one that is returned was planned and does.

A `Ladder` is what may help, as a list of changes from the mildest to the strongest.  Ladders are
searched one by one.  If no ladder leads to a program that fits, pairs of them are tried, and then
more of them together; other hardware does not count.  What limits the search is the number of
programs planned, not time, so that advice is repeatable; and what is tried does not depend on the
number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from itertools import combinations
from typing import Final, TypeAlias

from popc.study.advice.change import Change
from popc.study.advice.trial import Outcome, Trial, Workshop
from popc.study.advice.workers import Pool
from popc_runtime.ground.frozen import frozen

__all__ = ["Advice", "Finding", "Ladder", "OnFinding", "find_fixes", "ignore"]

# Of a long ladder of which the end does not help, some more steps are tried.
_SAMPLES: Final = (0.25, 0.5, 0.75)
_MAX_PAIRS: Final = 15  # of changes, those first whose programs are nearest to fitting
_MAX_TOGETHER: Final = 8  # changes that are added up at once


@frozen
class Ladder:
    """Changes of one kind, the mildest one first.

    Attributes:
        name: Of what is changed.
        steps: What to try.
        monotonous: Whether, if a step suffices, all stronger ones do too; then the mildest one
            that does is searched by bisection.  Otherwise all are tried, and the fastest counts.
        note: What a user should know beside cycles; "" if results stay the same.
        elsewhere: Whether it needs other hardware: then it is no reason not to look further.
    """

    name: str
    steps: tuple[Change, ...]
    monotonous: bool = False
    note: str = ""
    elsewhere: bool = False


@frozen
class Finding:
    """The findings on a ladder, or on several together.

    Attributes:
        names: Of the ladders.
        trial: The fastest program that fits, or else the one that lacks least; ``None`` if none
            could be compiled.
        planned: How many programs were planned.
        notes: What a user should know.
        refused: Why programs could not be compiled, if none could.
    """

    names: tuple[str, ...]
    trial: Trial | None
    planned: int
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def fits(self) -> bool:
        """True if it leads to a program that fits."""
        return self.trial is not None and self.trial.outcome.fits


@frozen
class Advice:
    """The changes that were tried.

    Attributes:
        base: The program as it is.
        fixes: What makes it fit: first what has no notes, the fastest first.
        insufficient: What does not, the most effective first.
        planned: How many programs were planned.
        left: Names of ladders that were not searched, because of the limit.
    """

    base: Outcome
    fixes: tuple[Finding, ...]
    insufficient: tuple[Finding, ...]
    planned: int
    left: tuple[str, ...] = field(default=())


# Told how many of how many ladders are done.
OnFinding: TypeAlias = Callable[[int, int], None]


def ignore(done: int, total: int) -> None:
    """A listener that ignores what is found."""
    del done, total


def find_fixes(
    pool: Pool,
    base: Outcome,
    ladders: Sequence[Ladder],
    limit: int,
    on_finding: OnFinding = ignore,
) -> Advice:
    """Find changes that make a program fit; about ``limit`` programs are planned at most."""
    searched = _affordable(ladders, limit)
    findings = _search_all(pool, [_Task((), ladder) for ladder in searched], on_finding)
    planned = sum(finding.planned for finding in findings)
    here = [pair for pair in zip(searched, findings, strict=True) if not pair[0].elsewhere]
    if not any(finding.fits for _, finding in here):
        together = _search_together(pool, base, here, limit - planned, on_finding)
        planned += sum(member.planned for member in together)
        findings += [member for member in together if _adds_up(member, findings)]
    fixes = [finding for finding in findings if finding.fits]
    insufficient = sorted((finding for finding in findings if not finding.fits), key=_remaining)
    left = tuple(ladder.name for ladder in ladders[len(searched) :])
    return Advice(base, tuple(sorted(fixes, key=_speed)), tuple(insufficient), planned, left)


def _adds_up(finding: Finding, alone: Sequence[Finding]) -> bool:
    """True if changes together do more than each of them by itself."""
    if finding.trial is None:
        return False
    parts = [
        single.trial.outcome.excess
        for single in alone
        if single.trial and single.names[0] in finding.names
    ]
    return finding.fits or finding.trial.outcome.excess < min(parts)


def _affordable(ladders: Sequence[Ladder], limit: int) -> list[Ladder]:
    """The first ones that ``limit`` is enough for."""
    chosen: list[Ladder] = []
    for ladder in ladders:
        limit -= _most_plans(ladder)
        if limit < 0:
            break
        chosen.append(ladder)
    return chosen


def _most_plans(ladder: Ladder) -> int:
    count = len(ladder.steps)
    if not ladder.monotonous:
        return count
    return min(count, 1 + max(count.bit_length(), len(_SAMPLES)))


def _remaining(finding: Finding) -> tuple[int, str]:
    outcome = finding.trial.outcome if finding.trial is not None else None
    return (outcome.excess if outcome is not None else 1 << 62, "+".join(finding.names))


def _speed(finding: Finding) -> tuple[bool, float, int, str]:
    """The rank by speed: changes of nothing but time come first."""
    assert finding.trial is not None
    seconds = finding.trial.outcome.seconds_per_sample
    return (bool(finding.notes), seconds, len(finding.names), "+".join(finding.names))


@frozen
class _Task:
    """A ladder to search on top of steps of others."""

    given: tuple[tuple[Ladder, Change], ...]
    ladder: Ladder

    @property
    def names(self) -> tuple[str, ...]:
        return (*(ladder.name for ladder, _ in self.given), self.ladder.name)

    @property
    def notes(self) -> tuple[str, ...]:
        ladders = (*(ladder for ladder, _ in self.given), self.ladder)
        return tuple(dict.fromkeys(ladder.note for ladder in ladders if ladder.note))


def _search_all(pool: Pool, tasks: Sequence[_Task], on_finding: OnFinding) -> list[Finding]:
    done = 0

    def tell(_: int, __: Finding) -> None:
        nonlocal done
        done += 1
        on_finding(done, len(tasks))

    return pool.map(_search, tasks, tell)


def _search(workshop: Workshop, task: _Task) -> Finding:
    """The best step of a ladder."""
    base = Change()
    for _, change in task.given:
        base = base + change
    steps = [base + step for step in task.ladder.steps]
    find = _bisect if task.ladder.monotonous else _try_all
    trials = find(workshop, steps)
    possible = [trial for trial in trials if not trial.outcome.refused]
    fitting = [trial for trial in possible if trial.outcome.fits]
    nearest = min(possible, key=lambda trial: trial.outcome.excess, default=None)
    best = min(fitting, key=lambda trial: trial.outcome.seconds_per_sample, default=nearest)
    refused = "" if possible else next((trial.outcome.refused for trial in trials), "")
    return Finding(task.names, best, len(trials), task.notes, refused)


def _try_all(workshop: Workshop, steps: Sequence[Change]) -> list[Trial]:
    return [workshop.try_(step) for step in steps]


def _bisect(workshop: Workshop, steps: Sequence[Change]) -> list[Trial]:
    """The mildest step that suffices, and what was tried on the way."""
    trials = [workshop.try_(steps[-1])]
    too_mild, enough = -1, len(steps) - 1
    if not trials[0].outcome.fits:
        indices = sorted({int(share * len(steps)) for share in _SAMPLES} - {enough})
        samples = {index: workshop.try_(steps[index]) for index in indices}
        trials += samples.values()
        fitting = [index for index, trial in samples.items() if trial.outcome.fits]
        if not fitting:
            return trials
        enough = fitting[0]
    while enough - too_mild > 1:
        middle = (too_mild + enough) // 2
        trials.append(workshop.try_(steps[middle]))
        if trials[-1].outcome.fits:
            enough = middle
        else:
            too_mild = middle
    return trials


def _search_together(
    pool: Pool,
    base: Outcome,
    alone: Sequence[tuple[Ladder, Finding]],
    limit: int,
    on_finding: OnFinding,
) -> list[Finding]:
    """Pairs of which one helps a little; more together if no pair is enough."""
    possible = [(ladder, finding.trial) for ladder, finding in alone if finding.trial is not None]
    possible.sort(key=lambda pair: (pair[1].outcome.excess, pair[0].name))
    pairs = [
        pair
        for pair in combinations(possible, 2)
        if pair[0][1].outcome.excess < base.excess and _may_combine(*pair)
    ]
    pairs.sort(key=lambda pair: sum(trial.outcome.excess for _, trial in pair))
    tasks: list[_Task] = []
    for (first, first_trial), (second, second_trial) in pairs[:_MAX_PAIRS]:
        # The strongest step of one, and of the other as little as is needed.
        given, open_ = ((first, first_trial.change), second)
        if first.monotonous and not second.monotonous:
            given, open_ = ((second, second_trial.change), first)
        limit -= _most_plans(open_)
        if limit < 0:
            break
        tasks.append(_Task((given,), open_))
    found = _search_all(pool, tasks, on_finding)
    if any(finding.fits for finding in found) or len(possible) < 3 or limit <= 0:
        return found
    together = pool.map(_accumulate, [tuple(possible[:_MAX_TOGETHER])], _ignore_finding)
    return [*found, *(member for member in together if len(member.names) > 2)]


def _ignore_finding(index: int, finding: Finding) -> None:
    del index, finding


def _may_combine(first: tuple[Ladder, Trial], second: tuple[Ladder, Trial]) -> bool:
    """True if they do not decide the same."""
    return not _decided(first[1].change) & _decided(second[1].change)


def _decided(change: Change) -> set[str]:
    return {*change.options, *change.dims, *change.shapes}


def _accumulate(workshop: Workshop, helpful: Sequence[tuple[Ladder, Trial]]) -> Finding:
    """One after another, the most effective first; what turns out to be superfluous is dropped."""
    chosen: list[tuple[Ladder, Change]] = []
    best: Trial | None = None
    planned = 0
    for ladder, trial in helpful:
        if any(_decided(change) & _decided(trial.change) for _, change in chosen):
            continue
        attempt = workshop.try_(_sum([*(change for _, change in chosen), trial.change]))
        planned += 1
        outcome = attempt.outcome
        if outcome.refused or (best is not None and outcome.excess >= best.outcome.excess):
            continue
        best, chosen = attempt, [*chosen, (ladder, trial.change)]
        if outcome.fits:
            break
    finding = Finding(
        tuple(ladder.name for ladder, _ in chosen),
        best,
        planned,
        tuple(dict.fromkeys(ladder.note for ladder, _ in chosen if ladder.note)),
    )
    return _without_superfluous(workshop, finding, chosen) if finding.fits else finding


def _without_superfluous(
    workshop: Workshop, finding: Finding, chosen: list[tuple[Ladder, Change]]
) -> Finding:
    for pair in list(chosen):
        rest = [other for other in chosen if other is not pair]
        trial = workshop.try_(_sum([change for _, change in rest]))
        finding = replace(finding, planned=finding.planned + 1)
        if trial.outcome.fits:
            chosen = rest
            names = tuple(ladder.name for ladder, _ in chosen)
            notes = tuple(dict.fromkeys(ladder.note for ladder, _ in chosen if ladder.note))
            finding = replace(finding, names=names, trial=trial, notes=notes)
    return finding


def _sum(changes: Sequence[Change]) -> Change:
    total = Change()
    for change in changes:
        total = total + change
    return total
