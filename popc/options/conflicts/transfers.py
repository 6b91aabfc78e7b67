"""Options about transfers that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.groups.transfers import ExchangeStrategy, SyntheticDataMode
from popc.options.locations import TileSet
from popc.options.options import Options
from popc_runtime.format import Origin

__all__ = ["conflicts"]


def conflicts(options: Options) -> Iterator[str]:
    """The conflicts, each with the options involved and what to do."""
    yield from _overlap_conflicts(options)
    yield from _depth_conflicts(options)
    instrumented = options.instrument_with_hardware_cycle_counter
    if "hardware_instrumentations" in options.origins and not instrumented:
        yield (
            "hardware_instrumentations is set, but instrument_with_hardware_cycle_counter is "
            "false: set that too"
        )
    if options.group_host_sync and options.enable_pipelining:
        yield (
            "group_host_sync puts all loads first and all stores last, but with enable_pipelining "
            "they belong to stages: leave one of them out"
        )
    if options.group_host_sync and options.has_phases:
        yield (
            "group_host_sync puts all loads first and all stores last, but with execution_phases "
            "they belong to phases: leave one of them out"
        )
    mode = options.synthetic_data_mode
    if not options.enable_prefetch_datastreams and mode is not SyntheticDataMode.OFF:
        yield (
            "enable_prefetch_datastreams is false, but with synthetic_data_mode = "
            f"{mode} nothing is loaded: leave one of them out"
        )


def _overlap_conflicts(options: Options) -> Iterator[str]:
    overlapped = {
        f"exchange_strategies of {name!r} is {strategy}": name
        for name, strategy in options.exchange_strategies.items()
        if strategy is not ExchangeStrategy.JUST_IN_TIME
    }
    on_io = {
        f"tile_sets of {name!r} is io": name
        for name, tiles in options.tile_sets.items()
        if tiles is TileSet.IO
    }
    loops = options.batches_per_step * options.accumulation_factor
    for what, name in (*overlapped.items(), *on_io.items()):
        if options.num_io_tiles == 0:
            yield f"{what}, but num_io_tiles is 0: set aside 32 tiles or more, an even number"
        mode = options.synthetic_data(name)
        if mode is not SyntheticDataMode.OFF:
            own = name in options.synthetic_streams
            said = "synthetic_streams" if own else "synthetic_data_mode"
            yield f"{what}, but with {said} = {mode} nothing is transferred"
    for what in overlapped:
        if loops == 1:
            yield (
                f"{what}, but batches_per_step and accumulation_factor are 1, so that there is no "
                "loop in which transfers could overlap with computing: set one of them"
            )
        if options.enable_pipelining:
            yield (
                f"{what}, but with enable_pipelining loads and stores belong to stages, which "
                "overlap with each other: leave one of them out"
            )
    for name, strategy in options.exchange_strategies.items():
        computes = options.tile_sets.matching(name) is TileSet.COMPUTE
        if strategy is not ExchangeStrategy.JUST_IN_TIME and computes:
            yield (
                f"exchange_strategies of {name!r} is {strategy}, but tile_sets says compute: only "
                "what io tiles transfer can overlap with computing"
            )


def _depth_conflicts(options: Options) -> Iterator[str]:
    if options.enable_prefetch_datastreams:
        return
    for name in ("default_buffering_depth", "buffering_depth_map"):
        if options.origin(name) is not Origin.DEFAULT and getattr(options, name):
            yield (
                f"{name} says how far samples are read ahead, but enable_prefetch_datastreams is "
                "false: leave one of them out"
            )
