"""The comparison of a program's costs with what its user allows, and the largest costs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from popc.archive import Archive
from popc.compiler import Compiled
from popc.reporting.estimation import costs_of
from popc_runtime.errors import BudgetError, UsageError
from popc_runtime.format import Region, instructions_of
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.cost import CostReport, OpCost
    from popc.reporting import Profile

__all__ = ["check_budget"]

_SHOWN: Final = 5  # names that an error lists, the largest first


def check_budget(
    compiled: Compiled,
    archive: Archive,
    against: str | os.PathLike[str] | None = None,
) -> None:
    """Refuse a program that costs more than the option ``budget`` allows.

    ``against`` is an archive of which the error says what has grown since.

    Raises:
        BudgetError: lists every limit that is exceeded, by how much, and what costs most.
        UsageError: there is something to compare with, but no budget.
        ArchiveError: what to compare with is no archive.
    """
    budget = compiled.planned.options.budget
    if against is not None and not budget:
        raise UsageError(
            "an archive to compare with is given, but no budget",
            hint="set budget.max_cycles, or another budget; `popc diff` compares programs",
        )
    if not budget:
        return
    program = _Program(compiled, archive, against)
    exceeded = [
        _Excess(name, _MEASURES[name].value(program), limit) for name, limit in budget.items()
    ]
    exceeded = [measure for measure in exceeded if measure.value > measure.limit]
    if exceeded:
        raise _error(program, exceeded)


@frozen
class _Excess:
    """A limit and what the program takes."""

    name: str
    value: int
    limit: int

    @property
    def over(self) -> str:
        more = self.value - self.limit
        return f"{more:,} more than the {self.limit:,} allowed ({more / self.limit:.1%})"


@dataclass
class _Program:
    """The measures of a program; what takes time is computed when it is asked for."""

    compiled: Compiled
    archive: Archive
    against: str | os.PathLike[str] | None

    @cached_property
    def costs(self) -> CostReport:
        """The costs of a run on the target."""
        return costs_of(self.compiled.planned)

    @cached_property
    def before(self) -> Profile | None:
        """The profile of the archive to compare with."""
        from popc.reporting import read_profile

        return None if self.against is None else read_profile(Path(self.against))

    @property
    def old_costs(self) -> CostReport | None:
        """The costs of the archive to compare with, if it knows."""
        return self.before.costs if self.before else None


def _error(program: _Program, exceeded: Iterable[_Excess]) -> BudgetError:
    details: list[str] = []
    report: dict[str, Any] = {}
    for budget in exceeded:
        measure = _MEASURES[budget.name]
        old = measure.before(program.before) if program.before else None
        grown = f"; {old:,} in {program.before.name}" if program.before and old is not None else ""
        details.append(f"{budget.name}: {budget.value:,} {measure.unit}, {budget.over}{grown}")
        contributors = measure.contributors(program)
        for title, rows in contributors.items():
            details += _rows(title, rows)
        limit = {"value": budget.value, "limit": budget.limit, "over": budget.value - budget.limit}
        report[budget.name] = {**limit, "before": old, "contributors": contributors}
    if program.before is not None and program.old_costs is None and _needs_costs(report):
        details.append(f"{program.before.name} has no cost report: so what has grown is unknown")
    return BudgetError(
        "the program costs more than its budget allows",
        subject="budget",
        details=tuple(details),
        hint="nothing was written; raise the limits in budget, or see what `popc report` and "
        "`popc diff` say",
        report=report,
    )


def _needs_costs(names: Iterable[str]) -> bool:
    return any(name in ("max_bytes_per_tile", "max_cycles") for name in names)


def _rows(title: str, rows: Mapping[str, int]) -> list[str]:
    if not rows:
        return []
    signed = title.startswith("grown")
    width = max(len(f"{count:+,}" if signed else f"{count:,}") for count in rows.values())
    texts = [(f"{count:+,}" if signed else f"{count:,}", name) for name, count in rows.items()]
    return [f"  {title}:", *(f"    {text:>{width}}  {name}" for text, name in texts)]


def _largest(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest positive ones."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: count for name, count in ranked[:_SHOWN] if count > 0}


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much the numbers that have grown most have grown."""
    return _largest({name: count - before.get(name, 0) for name, count in after.items()})


# -- cycles ----------------------------------------------------------------------------------------


def _layer(op: OpCost) -> str:
    """The part of the model that a node's name tells: ``/encoder/layer.3/query/MatMul``.

    Of the nodes of a chain, the first one tells.
    """
    node = op.origin.partition(", ")[0]
    for joint in ("/", "."):
        above = node.rpartition(joint)[0].strip(joint)
        if above:
            return above
    return node or op.name


def _by_layer(report: CostReport) -> Counter[str]:
    counts: Counter[str] = Counter()
    for op in report.ops:
        counts[_layer(op)] += op.cycles.total
    return counts


def _by_op(report: CostReport) -> Counter[str]:
    counts: Counter[str] = Counter()
    for op in report.ops:
        counts[f"{op.name} ({op.op_type})"] += op.cycles.total
    return counts


def _cycles(program: _Program) -> int:
    return program.costs.cycles.total


def _who_takes_cycles(program: _Program) -> dict[str, dict[str, int]]:
    costs, old = program.costs, program.old_costs
    found = {
        "most by layer": _largest(_by_layer(costs)),
        "most by op": _largest(_by_op(costs)),
    }
    if old is not None:
        found["grown by layer"] = _grown(_by_layer(old), _by_layer(costs))
        found["grown by op"] = _grown(_by_op(old), _by_op(costs))
    return found


# -- bytes -----------------------------------------------------------------------------------------


def _tile(program: _Program) -> int:
    return max((chip.peak_bytes for chip in program.costs.memory), default=0)


def _who_fills_the_tile(program: _Program) -> dict[str, dict[str, int]]:
    costs, old = program.costs, program.old_costs
    chip = max(costs.memory, key=lambda chip: chip.peak_bytes)
    step = chip.steps[chip.peak_step].name if chip.steps else "no step"
    live = {
        f"{tensor.name}: {tensor.type}, {tensor.kind}": tensor.on_busiest for tensor in chip.tensors
    }
    categories = _categories(chip.busiest.to_dict())
    found = {
        f"by category on the busiest tile, at {step}": _largest(categories),
        "biggest tensors there": _largest(live),
    }
    if old is not None:
        worst = max(old.memory, key=lambda chip: chip.peak_bytes)
        found["grown by category"] = _grown(_categories(worst.busiest.to_dict()), categories)
    return found


def _categories(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name.replace("_", " "): bytes_ for name, bytes_ in sizes.items()}


def _archive(program: _Program) -> int:
    return program.archive.size()


def _constant(program: _Program) -> int:
    return program.archive.manifest.memory["constant_bytes"]


def _arena(program: _Program) -> int:
    return program.archive.manifest.memory["arena_bytes"]


def _biggest_weights(program: _Program) -> dict[str, dict[str, int]]:
    sizes: dict[str, int] = {}
    for graph in program.compiled.planned.graph.walk():
        for op in graph.ops:
            for tensor in op.present_inputs:
                if tensor.is_constant:
                    sizes[f"{tensor.name}: {tensor.type}"] = tensor.type.nbytes
    for variable in program.compiled.planned.graph.variables:
        sizes[f"{variable.name}: {variable.type}"] = variable.type.nbytes
    return {"biggest weights, before compression": _largest(sizes)}


def _biggest_in_arena(program: _Program) -> dict[str, dict[str, int]]:
    sizes = {
        f"{tensor.name}: {tensor.type}": tensor.type.nbytes
        for tensor, placement in program.compiled.planned.plan.placements.items()
        if placement.region is Region.ARENA
    }
    return {"biggest tensors of a run": _largest(sizes)}


def _instructions(program: _Program) -> int:
    return sum(_opcodes(program).values())


def _opcodes(program: _Program) -> Counter[str]:
    blocks = program.compiled.image.programs.values()
    return Counter(instruction.opcode for block in blocks for instruction in instructions_of(block))


def _most_opcodes(program: _Program) -> dict[str, dict[str, int]]:
    counts = _opcodes(program)
    found = {"most by opcode": _largest(counts)}
    if program.before is not None:
        found["grown by opcode"] = _grown(program.before.instructions, counts)
    return found


def _old_memory(name: str) -> Callable[[Profile], int | None]:
    return lambda profile: profile.manifest.memory.get(name)


def _old_cycles(profile: Profile) -> int | None:
    return profile.costs.cycles.total if profile.costs else None


def _old_tile(profile: Profile) -> int | None:
    chips = profile.costs.memory if profile.costs else ()
    return max((chip.peak_bytes for chip in chips), default=None)


@frozen
class _Measure:
    """Something that a budget may limit; ``before`` is what another archive takes."""

    unit: str
    value: Callable[[_Program], int]
    contributors: Callable[[_Program], dict[str, dict[str, int]]]
    before: Callable[[Profile], int | None]


_MEASURES: Final = {
    "max_archive_bytes": _Measure(
        "bytes", _archive, _biggest_weights, lambda profile: profile.bytes
    ),
    "max_arena_bytes": _Measure("bytes", _arena, _biggest_in_arena, _old_memory("arena_bytes")),
    "max_bytes_per_tile": _Measure("bytes", _tile, _who_fills_the_tile, _old_tile),
    "max_constant_bytes": _Measure(
        "bytes", _constant, _biggest_weights, _old_memory("constant_bytes")
    ),
    "max_cycles": _Measure("cycles", _cycles, _who_takes_cycles, _old_cycles),
    "max_instructions": _Measure(
        "instructions",
        _instructions,
        _most_opcodes,
        lambda profile: sum(profile.instructions.values()),
    ),
}
