"""Options about transfers between host and device, and about counting the cycles of a run."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Names, Table, Truth, Whole
from popc.options.locations import TileSet
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = [
    "ExchangeStrategy",
    "Instrumentation",
    "SyntheticDataMode",
    "TransferOptions",
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


@inheritable
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
    synthetic_streams: FrozenTable[SyntheticDataMode] = option(
        Table(
            Choice(*SyntheticDataMode),
            "from names to off or zeros or random_normal or random_uniform",
        ),
        FrozenTable(),
        "synthetic_data_mode for single inputs and outputs. A table from names or patterns to a "
        "mode. Of an output, any mode but off says that it is handed over at no cost. In TOML: "
        '[synthetic_streams] image = "random_normal".',
    )
    merge_ipu_copies_bytes: int = option(
        Whole(),
        0,
        "Most bytes of copies between IPUs that wait for each other. One sync is enough for all "
        "of them then, but what waits is in memory for longer. With 0, each runs as soon as the "
        "scheduler likes.",
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

    def synthetic_data(self, stream: str) -> SyntheticDataMode:
        """The replacement of an input or output."""
        return self.synthetic_streams.matching(stream) or self.synthetic_data_mode

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
