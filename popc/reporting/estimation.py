"""From options and what the stages made to costs.

Nothing here runs, or imports the cost model, unless it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from popc.compiler import Planned
from popc.options import Options
from popc_runtime.errors import DoesNotFitError, OptionError
from popc_runtime.format import Origin

if TYPE_CHECKING:
    from popc.cost import CostReport, CostSettings
    from popc.target import Target

__all__ = [
    "check_target",
    "chooses_target",
    "costs_of",
    "cycles_of",
    "encode_report",
    "require_fit",
    "target_of",
]

_ABOUT_TARGETS = ("target", "num_ipus", "tiles_per_ipu", "num_io_tiles", "ipu_selection_order")


def target_of(options: Options) -> Target:
    """The target, as far as the program uses it.

    Raises:
        OptionError: there is no such target, it is described wrongly, or it is too small.
    """
    from popc.target import configure_target, find_target

    return configure_target(
        find_target(options.target),
        num_ipus=options.num_ipus,
        tiles_per_ipu=options.tiles_per_ipu,
        num_io_tiles=options.num_io_tiles,
        selection_order=options.ipu_selection_order,
    )


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


def chooses_target(options: Options) -> bool:
    """True if somebody has said on what the program is to run."""
    return any(options.origin(name) is not Origin.DEFAULT for name in _ABOUT_TARGETS)


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
            f"{chip.peak_bytes - chip.limit:,} more than it has; "
            f"{chip.tiles_over:,} of {len(chip.peak):,} tiles need too much"
        )


def costs_of(planned: Planned) -> CostReport:
    """The costs of one run of the program on its target.

    Raises:
        OptionError: see `target_of`.
    """
    from popc.cost import estimate_costs

    target, settings = target_of(planned.options), _settings(planned.options)
    return estimate_costs(planned.graph, planned.schedule, planned.plan, target, settings)


def cycles_of(planned: Planned) -> bytes:
    """The costs of every op when it runs once, for counting at run time; empty if not wanted.

    Raises:
        OptionError: see `target_of`.
    """
    from popc.cost import encode_execution, estimate_execution

    options = planned.options
    if not options.instrument_with_hardware_cycle_counter:
        return b""
    target, settings = target_of(options), _settings(options)
    execution = estimate_execution(planned.graph, planned.schedule, planned.plan, target, settings)
    return encode_execution(execution, options.hardware_instrumentations)


def _settings(options: Options) -> CostSettings:
    from popc.cost import CostSettings

    return CostSettings(
        options.available_memory_proportion,
        tuple(options.available_memory_proportions.items()),
        tuple(options.available_memory_by_op_type.items()),
        options.available_memory_per_ipu,
        options.partials_type_matmuls,
        prefetch=options.enable_prefetch_datastreams,
        merge_exchange=options.enable_merge_exchange,
        merge_exchange_bytes=options.merge_exchange_bytes,
        copying_strategy=options.subgraph_copying_strategy,
    )


def encode_report(report: CostReport) -> bytes:
    """The full report as JSON."""
    text = json.dumps(report.to_dict(full=True), sort_keys=True, separators=(",", ":"))
    return text.encode()
