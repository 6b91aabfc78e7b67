"""Options about execution phases and places of tensors that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from popc.options.groups.batch_serialization import PartsMethod
from popc.options.groups.placement import VirtualGraphMode
from popc.options.locations import TensorLocation, TileSet
from popc.options.options import Options

__all__ = ["conflicts"]


# Kinds of tensors that ops of the model do not read.
_UPDATED_ONLY: Final = ("accumulator", "optimizer_state")

_NEED_PHASES: Final = (
    "execution_phase_schedule",
    "execution_phase_stages",
    "accumulator_io_schedule",
    "activation_io_schedule",
    "optimizer_state_io_schedule",
    "weight_io_schedule",
)


def conflicts(options: Options) -> Iterator[str]:
    """Locations that cannot be, a sentence each."""
    yield from _about_phases(options)
    replicas = options.replicated_graph_count
    if options.tensor_location("activation").replicated_tensor_sharding:
        yield (
            "activation_tensor_location divides tensors among replicas "
            "(replicated_tensor_sharding), but each replica has activations of its own: leave it "
            "out"
        )
    for what, location in options.locations_in_use():
        yield from _about_sharding(what, location, replicas)
        yield from _about_tiles(what, location, options.num_io_tiles)
        divided = location.replicated_tensor_sharding and not what.startswith(_UPDATED_ONLY)
        if divided and _loops_over_parts(options):
            yield (
                f"{what} divides weights among replicas (replicated_tensor_sharding), but the "
                "loops of batch_serialization_method read them as a whole: choose unroll_static "
                "or unroll_dynamic, or leave replicated_tensor_sharding out"
            )


def _loops_over_parts(options: Options) -> bool:
    return options.cuts_batch and options.method_for_parts is PartsMethod.LOOP


def _about_tiles(what: str, location: TensorLocation, io_tiles: int) -> Iterator[str]:
    if TileSet.IO not in (location.load_tile_set, location.storage_tile_set):
        return
    if not io_tiles:
        yield (
            f"{what} names the io tiles, but num_io_tiles is 0: set it, or choose the tile set "
            "compute"
        )
    elif not (location.is_off_chip or location.is_open) and what.endswith("_location"):
        yield (
            f"{what} says which tiles move tensors, but storage is on_chip, so that they do not "
            "move: set storage to off_chip, or leave the tile sets out"
        )


def _about_sharding(what: str, location: TensorLocation, replicas: int) -> Iterator[str]:
    domain = location.sharding_domain
    if not location.replicated_tensor_sharding:
        if domain != TensorLocation().sharding_domain:
            yield (
                f"{what}: sharding_domain has no effect without replicated_tensor_sharding: set "
                "it, or leave sharding_domain out"
            )
        return
    if replicas == 1:
        yield (
            f"{what} divides tensors among replicas (replicated_tensor_sharding), but "
            "replicated_graph_count is 1: set it, or leave replicated_tensor_sharding out"
        )
        return
    problem = domain.problem(replicas)
    if problem:
        yield f"{what}: sharding_domain: {problem}, of replicated_graph_count"
    elif domain.members(replicas) == 1:
        yield (
            f"{what}: sharding_domain is {domain}, so that each replica would hold a whole: leave "
            "replicated_tensor_sharding out, or let groups have more replicas"
        )


def _about_phases(options: Options) -> Iterator[str]:
    mode = options.virtual_graph_mode
    if options.has_phases and mode is not VirtualGraphMode.EXECUTION_PHASES:
        yield (
            f"execution_phases is {options.execution_phases}, but virtual_graph_mode is {mode}: "
            "set virtual_graph_mode=execution_phases, or leave execution_phases out"
        )
    if mode is VirtualGraphMode.EXECUTION_PHASES and not options.has_phases:
        yield (
            f"virtual_graph_mode is execution_phases, but execution_phases is "
            f"{options.execution_phases}: set it to 2 or more"
        )
    if options.has_phases and options.num_ipus < options.execution_phase_stages:
        yield (
            f"execution_phase_stages is {options.execution_phase_stages}, but num_ipus is "
            f"{options.num_ipus}: set num_ipus={options.execution_phase_stages}, or "
            "execution_phase_stages=1"
        )
    for name in _NEED_PHASES:
        if name in options.origins and not options.has_phases:
            yield f"{name} is about execution phases, but execution_phases is 0: set it too"
