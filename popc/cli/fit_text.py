"""Explanations of what fits and what does not, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from popc.cli.report import format_bytes, format_table

if TYPE_CHECKING:
    from popc.study.advice import (
        Advice,
        Change,
        ChipState,
        Diagnosis,
        Explanation,
        Finding,
        Holder,
        Outcome,
        Share,
        Win,
    )

__all__ = ["explanation_lines", "headline"]

# How a change is made on the command line.
LineOf: TypeAlias = "Callable[[Change], str]"

_SHOWN: Final = 8  # proposals; --format json has all
_CHIPS: Final = 4  # chips of which the memory is listed
_WIDE: Final = 72  # columns of a change on the command line before it is shortened


def headline(diagnosis: Diagnosis) -> str:
    """A sentence that says if the program fits."""
    worst = diagnosis.chips[0]
    where = f"tile {worst.tile}" + (f" of IPU {worst.ipu}" if len(diagnosis.chips) > 1 else "")
    need = f"{where} needs {worst.peak:,} bytes of {worst.limit:,}"
    if diagnosis.fits:
        left = -worst.excess / worst.limit
        return f"the program fits {diagnosis.target}: {need} ({left:.0%} left)"
    over = f"{worst.excess / worst.limit:.0%} too many"
    if worst.peak <= worst.limit:
        over = f"{worst.excess:,} more for code than its region for that has"
    return f"the program does not fit {diagnosis.target}: {need} ({over})"


def explanation_lines(explanation: Explanation, line_of: LineOf) -> list[str]:
    """Everything but the headline."""
    diagnosis = explanation.diagnosis
    lines = list(_time(diagnosis)) if explanation.fits else []
    shown = [chip for chip in diagnosis.chips if explanation.fits or chip.excess > 0]
    for chip in shown[:_CHIPS]:
        lines += ["", *_chip(chip, several=len(diagnosis.chips) > 1)]
    if len(shown) > _CHIPS:
        others = ", ".join(f"IPU {chip.ipu} ({chip.peak:,})" for chip in shown[_CHIPS:])
        lines += ["", f"Others: {others}"]
    if explanation.advice is not None:
        lines += ["", *_advice(explanation.advice, line_of)]
    elif explanation.fits and explanation.request is not None:
        lines += ["", *_wins(explanation.wins, line_of)]
    return lines if lines[:1] != [""] else lines[1:]


def _chip(chip: ChipState, *, several: bool) -> Iterator[str]:
    """When, and what is on the busiest tile then."""
    where = f"IPU {chip.ipu}, tile {chip.tile}" if several else f"Tile {chip.tile}"
    over = (
        f"{chip.tiles_over:,} of {chip.tiles:,} tiles are over"
        if chip.excess > 0
        else "the fullest of all"
    )
    yield f"{where}: {chip.peak:,} of {chip.limit:,} bytes; {over}"
    if chip.op:
        yield f"  at step {chip.step + 1:,} of {chip.steps:,}: {_op(chip)}{_also(chip)}"
    if chip.plan:
        yield f"  planned as {chip.plan}"
    yield ""
    rows = [
        [f"  {name.replace('_', ' ')}", f"{bytes_:,}", f"{bytes_ / chip.peak:.0%}"]
        for name, bytes_ in sorted(chip.categories.items(), key=lambda item: -item[1])
        if bytes_
    ]
    yield from format_table([["What is there", "bytes", ""], *rows], right=(1, 2)).split("\n")
    if chip.temporary:
        yield ""
        yield from _temporary(chip)
    if chip.holders:
        yield ""
        yield from _holders(chip)


def _also(chip: ChipState) -> str:
    more = chip.steps_over - 1
    if more < 1:
        return ""
    return f"; {more:,} more {'step is' if more == 1 else 'steps are'} over"


def _op(chip: ChipState) -> str:
    node = f", of node {chip.node}" if chip.node and chip.node != chip.op else ""
    return f"{chip.op_type} {chip.op}{node}".strip()


def _temporary(chip: ChipState) -> Iterator[str]:
    names = [part.name.replace("operand", "receive operand") for part in chip.temporary]
    rows = [
        [f"  {name}", f"{share.amount:,}"]
        for name, share in zip(names, chip.temporary, strict=True)
    ]
    head = [f"Temporary memory of {chip.op_type}, one after the other", "bytes"]
    yield from format_table([head, *rows], right=(1,)).split("\n")


def _holders(chip: ChipState) -> Iterator[str]:
    rows = [_holder(holder) for holder in chip.holders[:_SHOWN]]
    rest = chip.others + sum(holder.on_tile for holder in chip.holders[_SHOWN:])
    if rest:
        rows.append(["  others", "", f"{rest:,}", "", ""])
    head = ["The largest tensors there", "", "bytes", "in all", ""]
    yield from format_table([head, *rows], right=(2, 3)).split("\n")


def _holder(holder: Holder) -> list[str]:
    made = "read by" if holder.kind in ("constant", "variable") else "of"
    node = f"{made} {holder.node}" if holder.node and holder.node != holder.name else ""
    until = f"until {holder.until}" if holder.until else holder.kind
    notes = ", ".join(part for part in (node, until) if part)
    return [
        f"  {holder.name}",
        holder.type,
        f"{holder.on_tile:,}",
        format_bytes(holder.bytes),
        notes,
    ]


def _time(diagnosis: Diagnosis) -> Iterator[str]:
    """The ops that take the most time."""
    total = diagnosis.total_cycles
    seconds = total / diagnosis.clock_hz
    rate = f", {diagnosis.samples / seconds:,.1f} samples/s" if seconds else ""
    yield f"A run takes {total:,} cycles ({seconds * 1e3:,.3f} ms{rate}):"
    yield "  " + ", ".join(
        f"{name} {count / total:.0%}"
        for name, count in sorted(diagnosis.cycles.items(), key=lambda item: -item[1])
        if count
    )
    yield ""
    rows = [_slow(share, total) for share in diagnosis.slowest]
    head = ["The slowest ops", "", "cycles", "", ""]
    yield from format_table([head, *rows], right=(2, 3)).split("\n")


def _slow(share: Share, total: int) -> list[str]:
    of = f"of {share.node}" if share.node and share.node != share.name else ""
    if share.count > 1:
        of = f"{of} and {share.count - 1} like it".strip()
    return [
        f"  {share.name}",
        share.op_type,
        f"{share.amount:,}",
        f"{share.amount / total:.0%}",
        of,
    ]


def _advice(advice: Advice, line_of: LineOf) -> Iterator[str]:
    """Changes that make it fit, then those that do not."""
    plans = f"{advice.planned:,} other programs were planned"
    if advice.fixes:
        yield f"What makes it fit ({plans}; time is that of a sample):"
        for number, fix in enumerate(advice.fixes[:_SHOWN], start=1):
            yield from _fix(number, fix, advice.base)
        assert advice.fixes[0].trial is not None
        yield ""
        yield "The first one as a whole:"
        yield f"  {line_of(advice.fixes[0].trial.change)}"
    else:
        yield f"Nothing that was tried makes it fit ({plans})."
    rest = [finding for finding in advice.insufficient if finding.trial is not None]
    if rest:
        yield ""
        yield "Not enough:"
        rows = [_insufficient(finding, advice.base) for finding in rest[:_SHOWN]]
        yield from format_table(rows).split("\n")
    yield from _refused(advice)


def _fix(number: int, finding: Finding, base: Outcome) -> Iterator[str]:
    assert finding.trial is not None
    outcome = finding.trial.outcome
    left = f"{-outcome.excess:,} bytes left"
    yield f"  {number}. {_slower(outcome, base)}  {' and '.join(finding.names)}; {left}"
    yield f"     {_arguments(finding.trial.change)}"
    yield from (f"     but {note}" for note in finding.notes)


def _slower(outcome: Outcome, base: Outcome) -> str:
    before = base.seconds_per_sample
    change = outcome.seconds_per_sample / before - 1 if before else 0.0
    return f"{100 * change:+.1f} % time"


def _arguments(change: Change) -> str:
    parts = list(change.arguments())
    pairs = [f"{parts[index]} {parts[index + 1]}" for index in range(0, len(parts), 2)]
    left_out = [f"without {name}" for name, value in change.options.items() if value is None]
    return "  ".join([*pairs, *left_out])


def _insufficient(finding: Finding, base: Outcome) -> list[str]:
    assert finding.trial is not None
    outcome = finding.trial.outcome
    saved = base.excess - outcome.excess
    name = f"  {' and '.join(finding.names)}"
    if saved <= 0:
        return [name, "saves nothing", ""]
    effect = f"saves {saved:,}, {outcome.excess:,} bytes too many"
    return [name, effect, _shortened(_arguments(finding.trial.change))]


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDE else text[: _WIDE - 3] + "..."


def _refused(advice: Advice) -> Iterator[str]:
    refused = [finding for finding in advice.insufficient if finding.trial is None]
    if refused:
        yield ""
        yield "Not possible here:"
    for finding in refused:
        yield f"  {' and '.join(finding.names)}: {_shortened(finding.refused)}"
    if advice.left:
        yield ""
        yield f"Not tried (--budget): {', '.join(advice.left)}"


def _wins(wins: Sequence[Win], line_of: LineOf) -> Iterator[str]:
    """Changes that pay."""
    if not wins:
        yield "Nothing that was tried is faster, or smaller at little cost."
        return
    yield "What would help (each was planned again, and fits):"
    for win in wins[:_SHOWN]:
        outcome = win.trial.outcome
        bytes_ = outcome.peak_bytes - win.base.peak_bytes
        yield f"  {_slower(outcome, win.base)}, {bytes_:+,} bytes  {win.name}"
        yield f"     {_arguments(win.trial.change)}"
        if win.note:
            yield f"     but {win.note}"
    yield ""
    yield "The first one as a whole:"
    yield f"  {line_of(wins[0].trial.change)}"
