"""A report for people, in the words of Poplar's profile summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from popc.cost.pipeline import PipelineCost
from popc.cost.report import Categories, CostReport, MemoryReport
from popc.printable import format_table

__all__ = ["format_costs"]


def format_costs(report: CostReport, *, rows: int = 12) -> str:
    """Target, cycles, memory and the ``rows`` most expensive ops."""
    parts = [_summary(report), _cycles(report)]
    if report.pipeline is not None:
        parts.append(_pipeline(report.pipeline))
    for number, chip in enumerate(report.memory):
        title = f"IPU {number}\n" if len(report.memory) > 1 else ""
        parts.append(title + _memory(chip))
    parts.append(_ops(report, rows))
    return "\n\n".join(parts) + "\n"


def _summary(report: CostReport) -> str:
    target = report.target
    tiles = f"{target.tiles_per_ipu:,} tiles of {target.tile.memory_bytes:,} bytes"
    lines = [
        f"Target: {target.name}, {target.num_ipus} x {tiles}, {target.tile.clock_hz / 1e9:.2f} GHz",
        f"Time for a run: {report.seconds * 1e3:,.3f} ms, {report.throughput:,.1f} samples/s",
        f"Memory: {'fits' if report.fits else 'DOES NOT FIT'}",
    ]
    lines += [f"One iteration assumed of the loop {name}" for name in report.assumed]
    return "\n".join(lines)


def _cycles(report: CostReport) -> str:
    cycles = report.cycles
    rows = [
        ("Total cycles", cycles.total),
        ("  compute", cycles.compute),
        ("  vertex launch", cycles.launch),
        ("  exchange", cycles.exchange),
        ("  sync", cycles.sync),
        ("  host exchange", cycles.host),
    ]
    if report.hidden:
        rows.append(("Hidden host exchange", report.hidden))
    if report.beside.total:
        rows.append(("Beside slower IPUs", report.beside.total))
    return _table([(name, f"{count:,}", _share(count, cycles.total)) for name, count in rows])


def _pipeline(pipeline: PipelineCost) -> str:
    """The distribution of time while chips work at the same time."""
    turns = f"{pipeline.turns:,} turns of {pipeline.cycle:,}"
    slowest = pipeline.slowest
    rows = [
        ("Pipeline", f"{pipeline.total:,}", "cycles in all"),
        ("  fill", f"{pipeline.fill:,}", ""),
        ("  all stages", f"{pipeline.turns * pipeline.cycle:,}", turns),
        ("  flush", f"{pipeline.flush:,}", ""),
        ("In each turn", "", ""),
        ("  copies between IPUs", f"{pipeline.copies:,}", ""),
    ]
    for chip in pipeline.busy:
        stages = ", ".join(map(str, chip.stages))
        mark = ": the slowest" if chip is slowest else ""
        rows.append((f"  IPU {chip.ipu}", f"{chip.cycles:,}", f"stages {stages}{mark}"))
    rows.append(("  IPUs are busy", f"{pipeline.utilisation:.1%}", "of the time"))
    return _table(rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _memory(chip: MemoryReport) -> str:
    step = chip.steps[chip.peak_step].name if chip.steps else "-"
    head = [
        ("Bytes per tile", "busiest", "average"),
        ("limit", f"{chip.limit:,}", ""),
        ("at the peak", f"{chip.peak_bytes:,}", f"{sum(chip.peak) // max(len(chip.peak), 1):,}"),
        *_categories(chip.busiest, chip.average),
    ]
    always = f"Always live: {max(chip.always_live, default=0):,} bytes on the busiest tile"
    return f"{_table(head)}\n{always}\nPeak at: {step}"


def _categories(busiest: Categories, average: Categories) -> list[tuple[str, str, str]]:
    means = average.to_dict()
    return [
        (f"  {name.replace('_', ' ')}", f"{count:,}", f"{means[name]:,}")
        for name, count in busiest.to_dict().items()
    ]


def _ops(report: CostReport, rows: int) -> str:
    """The most expensive ops, and the rest by type."""
    total = report.cycles.total
    ranked = sorted(report.ops, key=lambda op: (-op.cycles.total, op.name))
    shown = ranked[:rows]
    table = [("cycles", "", "op", "name", "plan")]
    table += [
        (
            f"{op.cycles.total:,}",
            _share(op.cycles.total, total),
            op.op_type,
            op.name,
            op.plans[0] if op.plans else "",
        )
        for op in shown
    ]
    by_type: Counter[str] = Counter()
    for op in report.ops:
        by_type[op.op_type] += op.cycles.total
    rest = [
        (f"{count:,}", _share(count, total), name, "", "")
        for name, count in by_type.most_common(rows)
        if count
    ]
    left = len(ranked) - len(shown)
    note = f"\n... {left} more (--all)" if left > 0 else ""
    return f"{_table(table)}{note}\n\nBy type:\n{_table(rest)}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    return format_table(rows, numbers=True)
