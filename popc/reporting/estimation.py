"""From options and what the stages made to costs.

Nothing here runs, or imports the cost model, unless it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from popc.compiler import Planned
from popc.devices import chooses_target, settings_of, target_of
from popc.options import Options
from popc_runtime.errors import DoesNotFitError, OptionError

if TYPE_CHECKING:
    from popc.cost import CostReport, MemoryReport

__all__ = [
    "check_target",
    "chooses_target",
    "costs_of",
    "cycles_of",
    "encode_report",
    "require_fit",
    "target_of",
]


def check_target(options: Options) -> None:
    """Refuse a target that cannot be, if one was chosen.

    Raises:
        OptionError: see `target_of`; or something is kept in streaming memory that it lacks.
    """
    if not chooses_target(options):
        return
    target = target_of(options)
    kept = [what for what, location in options.locations_in_use() if location.is_off_chip]
    if kept and not target.host.streaming_memory_bytes:
        raise OptionError(
            f"{', '.join(kept)} keeps tensors off chip, but the target {target.name} has no "
            "streaming memory",
            subject="target",
            hint="keep them on the chip, or choose a target that has some, such as ipu2",
        )


def require_fit(report: CostReport, options: Options) -> tuple[str, ...]:
    """Refuse a program that does not fit the target that was chosen.

    Returns:
        Warnings, with ``allow_out_of_memory``.

    Raises:
        DoesNotFitError: it does not fit; ``report`` of the error says more.
    """
    if report.fits or not chooses_target(options):
        return ()
    if options.allow_out_of_memory:
        return tuple(
            f"the program does not fit {report.target.name}: {line}" for line in _misfits(report)
        )
    raise DoesNotFitError(
        f"the program does not fit {report.target.name}",
        subject="target",
        details=tuple(_misfits(report)),
        hint="`popc explain` says why and what would help; allow_out_of_memory compiles it anyway",
        report=report.to_dict(),
    )


def _misfits(report: CostReport) -> Iterator[str]:
    """The excess of each chip that has one."""
    for number, chip in enumerate(report.memory):
        if chip.fits:
            continue
        step = chip.steps[chip.peak_step]
        where = f"tile {step.tile}" + (f" of IPU {number}" if len(report.memory) > 1 else "")
        yield (
            f"{where} needs {chip.peak_bytes:,} bytes at {step.name}, "
            f"{chip.excess:,} more than {_space(chip)}; "
            f"{chip.tiles_over:,} of {len(chip.peak):,} tiles need too much"
        )


def _space(chip: MemoryReport) -> str:
    """The end of a sentence about what is too small: a tile, or its region for code."""
    return "it has" if chip.peak_bytes > chip.limit else "it has for code"


def costs_of(planned: Planned, on: Options | None = None) -> CostReport:
    """The costs of one run of the program on its target, or on that of the options ``on``.

    Raises:
        OptionError: see `target_of`.
    """
    if on is None and planned.costs is not None:
        return planned.costs
    from popc.cost import estimate_costs

    target, settings = target_of(on or planned.options), settings_of(planned.options)
    return estimate_costs(planned.graph, planned.schedule, planned.plan, target, settings)


def cycles_of(planned: Planned) -> bytes:
    """The costs of every op when it runs once, for counting at run time; empty if not wanted.

    Raises:
        OptionError: see `target_of`.
    """
    options = planned.options
    if not options.instrument_with_hardware_cycle_counter:
        return b""
    from popc.cost import encode_execution, estimate_execution

    target, settings = target_of(options), settings_of(options)
    execution = estimate_execution(planned.graph, planned.schedule, planned.plan, target, settings)
    return encode_execution(execution, options.hardware_instrumentations)


def encode_report(report: CostReport) -> bytes:
    """The full report as JSON."""
    text = json.dumps(report.to_dict(full=True), sort_keys=True, separators=(",", ":"))
    return text.encode()
