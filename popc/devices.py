"""The device that a program is made for, and the schedule that its tiles need the least for.

Nothing here runs, or imports the cost model, unless a target has been chosen or costs are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from popc.ir import Graph
from popc.memory import MemoryPlan
from popc.options import (
    Algorithm,
    FrozenTable,
    Options,
    ScheduleOptions,
    TieBreaker,
    VirtualGraphMode,
)
from popc.options.locations import TensorStorage
from popc.schedule import Schedule, build_schedule
from popc_runtime.format import Origin

if TYPE_CHECKING:
    from popc.cost import CostMemo, CostReport, CostSettings
    from popc.target import Target

__all__ = [
    "chooses_target",
    "costs_on_device",
    "lowest_on_device",
    "settings_of",
    "settled_storage",
    "target_of",
]

_SELDOM_FIRST = ("optimizer_state", "accumulator", "weight", "activation")
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


def chooses_target(options: Options) -> bool:
    """True if somebody has said on what the program is to run."""
    return any(options.origin(name) is not Origin.DEFAULT for name in _ABOUT_TARGETS)


def settings_of(options: Options) -> CostSettings:
    """The settings of the cost model that options ask for."""
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
        merge_copies_bytes=options.merge_ipu_copies_bytes,
        copying_strategy=options.subgraph_copying_strategy,
        outlines=options.enable_outlining,
    )


def settled_storage(options: Options, fits: Callable[[Options], bool], *, trains: bool) -> Options:
    """Options in which nothing is kept off chip when it is needed: it is, or it is not.

    What is needed least often goes first, kind by kind, until the program fits; the strongest
    choice is not tried, as there is none after it.

    Args:
        options: Those of the program.
        fits: Whether the target holds a program with other options.
        trains: Whether the program has a backward pass.

    Raises:
        OptionError: see `target_of`.
    """
    kinds = [kind for kind in _SELDOM_FIRST if options.tensor_location(kind).is_open]
    if not kinds:
        return options
    used = [kind for kind in kinds if _occurs(kind, options, trains=trains)]
    most = len(used) if target_of(options).host.streaming_memory_bytes else 0
    for count in range(most):
        found = _with_storage(options, kinds, used[:count])
        if fits(found):
            return found
    return _with_storage(options, kinds, used[:most])


def _occurs(kind: str, options: Options, *, trains: bool) -> bool:
    """True if a program may have tensors of ``kind`` that can be kept off chip."""
    match kind:
        case "accumulator":
            return trains and options.accumulation_factor > 1
        case "activation":
            return trains or options.virtual_graph_mode is VirtualGraphMode.EXECUTION_PHASES
        case "optimizer_state":
            return trains
        case _:
            return True


def _with_storage(options: Options, kinds: Sequence[str], moved: Sequence[str]) -> Options:
    """Options with the ``moved`` of ``kinds`` off chip, and the others on it."""
    locations: dict[str, Any] = {}
    for kind in kinds:
        name = f"{kind}_tensor_location"
        storage = TensorStorage.OFF_CHIP if kind in moved else TensorStorage.ON_CHIP
        locations[name] = FrozenTable({**getattr(options, name), "storage": storage})
    return replace(options, **locations)


def costs_on_device(
    graph: Graph,
    schedule: Schedule,
    plan: MemoryPlan,
    options: Options,
    known: CostMemo | None = None,
) -> CostReport:
    """The costs of a run on the target of ``options``.

    ``known`` is what has been found of the same graph under the same options.

    Raises:
        OptionError: see `target_of`.
    """
    from popc.cost import estimate_costs

    target, settings = target_of(options), settings_of(options)
    return estimate_costs(graph, schedule, plan, target, settings, known)


def lowest_on_device(
    graph: Graph, schedule: Schedule, options: Options, plan: Callable[[Schedule], MemoryPlan]
) -> tuple[Schedule, MemoryPlan, CostReport | None]:
    """The schedule under which the busiest tile needs the fewest bytes, with its plan and costs.

    Temporary data is counted.  Compared are ``schedule``, which wins among equals, and those that
    Kahn's algorithm makes, greedily and as FIFO.  Where there are no others, nothing is costed.

    Raises:
        OptionError: see `target_of`.
    """
    from popc.cost import CostMemo, Planner

    known = CostMemo(Planner(target_of(options)))  # most ops take the same under all schedules

    def costed(each: Schedule) -> tuple[Schedule, MemoryPlan, CostReport]:
        memory = plan(each)
        return each, memory, costs_on_device(graph, each, memory, options, known)

    def busiest(candidate: tuple[Schedule, MemoryPlan, CostReport]) -> int:
        return max(chip.peak_bytes for chip in candidate[2].memory)

    others = [other for other in _of_kahn(graph, options) if other.orders != schedule.orders]
    if not others:
        return schedule, plan(schedule), None
    return min(map(costed, (schedule, *others)), key=busiest)


def _of_kahn(graph: Graph, options: Options) -> Iterator[Schedule]:
    own = {field.name: getattr(options, field.name) for field in fields(ScheduleOptions)}
    for breaker in (TieBreaker.GREEDY, TieBreaker.FIFO):
        kahn = replace(
            ScheduleOptions(**own), scheduling_algorithm=Algorithm.KAHN, kahn_tie_breaker=breaker
        )
        yield build_schedule(graph, kahn, inplace=options.enable_inplace)
