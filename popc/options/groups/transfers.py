"""Options about transfers between host and device, and about counting the cycles of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from popc.options.kinds import Choice, Names, Table, Truth, Whole
from popc.options.locations import TileSet
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.format import Origin

if TYPE_CHECKING:
    from popc.options.options import Options

__all__ = [
    "ExchangeStrategy",
    "Instrumentation",
    "SyntheticDataMode",
    "TransferOptions",
    "conflicts",
]


class ExchangeStrategy(StrEnum):
    """The time when an input or output is transferred."""

    JUST_IN_TIME = "just_in_time"
    OVERLAP_INNER_LOOP = "overlap_inner_loop"
    OVERLAP_LOOPS = "overlap_loops"


class Instrumentation(StrEnum):
    """The part whose cycles are counted: the innermost main loop, the whole program."""

    INNER = "inner"
    OUTER = "outer"


class SyntheticDataMode(StrEnum):
    """The replacement of inputs, if anything takes their place."""

    OFF = "off"
    ZEROS = "zeros"
    RANDOM_NORMAL = "random_normal"
    RANDOM_UNIFORM = "random_uniform"


@dataclass(frozen=True)
class TransferOptions:
    """The overlap of transfers with computing, and the reports about a run."""

    buffering_depth_map: FrozenTable[int] = option(
        Table(Whole(high=1 << 20), "from names to whole numbers", example="a=1,b=2"),
        FrozenTable(),
        "default_buffering_depth for single inputs. A table from names or patterns of inputs "
        "to numbers of samples. In TOML: [buffering_depth_map] image = 4; with --set: "
        "buffering_depth_map.image=4.",
        popart="bufferingDepthMap",
    )
    default_buffering_depth: int = option(
        Whole(high=1 << 20),
        0,
        "Number of samples that a session reads ahead from an input. A thread for each "
        "iterable or callable does it, so that the program does not wait for it; with 0 each "
        "sample is read when the program asks for it. For sources that do not depend on "
        "results. session.connect(depth=N) has precedence; arrays, files and queues are there "
        "already.",
        popart="defaultBufferingDepth",
    )
    enable_prefetch_datastreams: bool = option(
        Truth(),
        True,
        "Let the host prepare samples before the program asks for them. If not, "
        "every load waits until the host has noticed the request, and nothing is read ahead.",
        popart="enablePrefetchDatastreams",
    )
    exchange_strategies: FrozenTable[ExchangeStrategy] = option(
        Table(
            Choice(*ExchangeStrategy),
            "from names to just_in_time or overlap_inner_loop or overlap_loops",
        ),
        FrozenTable(),
        "Time at which inputs and outputs are transferred. A table from names or patterns of "
        "inputs and outputs to just_in_time (the default: where the program needs them), "
        "overlap_inner_loop (while an iteration of the innermost main loop computes, the next "
        "samples are loaded and the results before are stored) or overlap_loops (across the "
        "iterations of the outer main loop too). To overlap needs num_io_tiles, and "
        "batches_per_step or accumulation_factor. In TOML: [exchange_strategies] "
        '"*" = "overlap_loops".',
    )
    group_host_sync: bool = option(
        Truth(),
        False,
        "Load all inputs before anything is computed, and store all outputs behind it. "
        "Transfers then follow each other and share syncs; inputs and outputs live longer.",
        popart="groupHostSync",
    )
    hardware_instrumentations: tuple[Instrumentation, ...] = option(
        Names(tuple(Instrumentation)),
        (Instrumentation.OUTER,),
        "Part of the program that instrument_with_hardware_cycle_counter counts. Outer is the "
        "whole program, inner the innermost main loop, by IPU.",
        popart="hardwareInstrumentations",
    )
    instrument_with_hardware_cycle_counter: bool = option(
        Truth(),
        False,
        "Let the archive know what its ops cost on the target, so that cycles can be asked for "
        "after a run. They are scaled by what has run: iterations, and branches taken. See "
        "get_cycle_count and execution_report of an executable, and popc run --report.",
        popart="instrumentWithHardwareCycleCounter",
    )
    synthetic_data_mode: SyntheticDataMode = option(
        Choice(*SyntheticDataMode),
        SyntheticDataMode.OFF,
        "Compute on made-up inputs, without transfers between host and device. Inputs need not "
        "be given, and are ignored if they are. The seed of the run decides about random "
        "numbers; integers and truth values are zeros, so that indices stay valid. Outputs are "
        "handed over nevertheless, at no cost.",
        popart="syntheticDataMode",
    )
    tile_sets: FrozenTable[TileSet] = option(
        Table(Choice(TileSet.IO, TileSet.COMPUTE), "from names to io or compute"),
        FrozenTable(),
        "Tiles at which an input arrives, or from which an output leaves. A table from names or "
        "patterns to io (the tiles that num_io_tiles sets aside) or compute. The default is "
        "io for what exchange_strategies overlaps, else compute.",
    )

    def exchange_strategy(self, stream: str) -> ExchangeStrategy:
        """The time when an input or output is transferred."""
        return self.exchange_strategies.matching(stream) or ExchangeStrategy.JUST_IN_TIME

    def tile_set(self, stream: str) -> TileSet:
        """The tiles that transfer an input or output."""
        in_time = self.exchange_strategy(stream) is ExchangeStrategy.JUST_IN_TIME
        return self.tile_sets.matching(stream) or (TileSet.COMPUTE if in_time else TileSet.IO)

    def buffering_depth(self, stream: str) -> int:
        """The number of samples of an input that are read ahead."""
        if not self.enable_prefetch_datastreams:
            return 0
        own = self.buffering_depth_map.matching(stream)
        return self.default_buffering_depth if own is None else own


def conflicts(options: Options) -> Iterator[str]:
    """The conflicts, each with the options involved and what to do."""
    yield from _overlap_conflicts(options)
    yield from _depth_conflicts(options)
    instrumented = options.instrument_with_hardware_cycle_counter
    if "hardware_instrumentations" in options.origins and not instrumented:
        yield (
            "hardware_instrumentations says what instrument_with_hardware_cycle_counter counts, "
            "which is false"
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
    overlapped = [
        f"exchange_strategies of {name!r} is {strategy}"
        for name, strategy in options.exchange_strategies.items()
        if strategy is not ExchangeStrategy.JUST_IN_TIME
    ]
    on_io = [
        f"tile_sets of {name!r} is io"
        for name, tiles in options.tile_sets.items()
        if tiles is TileSet.IO
    ]
    mode = options.synthetic_data_mode
    loops = options.batches_per_step * options.accumulation_factor
    for what in (*overlapped, *on_io):
        if options.num_io_tiles == 0:
            yield f"{what}, but num_io_tiles is 0: set aside 32 tiles or more, an even number"
        if mode is not SyntheticDataMode.OFF:
            yield f"{what}, but with synthetic_data_mode = {mode} nothing is transferred"
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
