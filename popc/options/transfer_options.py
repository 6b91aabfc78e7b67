"""Options about transfers between host and device, and about counting the cycles of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from popc.options.pattern_options import PatternOptions
from popc.options.schema import described
from popc.options.table import FrozenTable

__all__ = ["TransferOptions"]

_NO_DEPTHS: Final[FrozenTable[int]] = FrozenTable()
_NO_WORDS: Final[FrozenTable[str]] = FrozenTable()


@dataclass(frozen=True, slots=True)
class TransferOptions(PatternOptions):
    """How transfers overlap with computing, and what is told about a run."""

    buffering_depth_map: FrozenTable[int] = field(
        default=_NO_DEPTHS,
        metadata=described(
            "ints",
            "default_buffering_depth for single inputs. A table from names or patterns of inputs "
            "to numbers of samples. In TOML: [buffering_depth_map] image = 4; with --set: "
            "buffering_depth_map.image=4.",
            high=1 << 20,
            popart="bufferingDepthMap",
        ),
    )
    default_buffering_depth: int = field(
        default=0,
        metadata=described(
            "int",
            "How many samples ahead of the program a session reads an input. A thread for each "
            "iterable or callable does it, so that the program does not wait for it; with 0 each "
            "sample is read when the program asks for it. For sources that do not depend on "
            "results. session.connect(depth=N) has precedence; arrays, files and queues are there "
            "already.",
            high=1 << 20,
            popart="defaultBufferingDepth",
        ),
    )
    enable_prefetch_datastreams: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Whether the host may have samples ready before the program asks for them. If not, "
            "every load waits until the host has noticed the request, and nothing is read ahead.",
            popart="enablePrefetchDatastreams",
        ),
    )
    exchange_strategies: FrozenTable[str] = field(
        default=_NO_WORDS,
        metadata=described(
            "choices",
            "When inputs and outputs are transferred. A table from names or patterns of inputs and "
            "outputs to just_in_time (the default: where the program needs them), "
            "overlap_inner_loop (while an iteration of the innermost main loop computes, the next "
            "samples are loaded and the results before are stored) or overlap_loops (across the "
            "iterations of the outer main loop too). To overlap needs num_io_tiles, and "
            "batches_per_step or accumulation_factor. In TOML: [exchange_strategies] "
            '"*" = "overlap_loops".',
            choices=("just_in_time", "overlap_inner_loop", "overlap_loops"),
        ),
    )
    group_host_sync: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Load all inputs before anything is computed, and store all outputs behind it. "
            "Transfers then follow each other and share syncs; inputs and outputs live longer.",
            popart="groupHostSync",
        ),
    )
    hardware_instrumentations: tuple[str, ...] = field(
        default=("outer",),
        metadata=described(
            "names",
            "What instrument_with_hardware_cycle_counter counts. Outer is the whole program, inner "
            "the innermost main loop, by IPU.",
            choices=("inner", "outer"),
            popart="hardwareInstrumentations",
        ),
    )
    instrument_with_hardware_cycle_counter: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Let the archive know what its ops cost on the target, so that cycles can be asked for "
            "after a run. They are scaled by what has run: iterations, and branches taken. See "
            "get_cycle_count and execution_report of an executable, and popc run --report.",
            popart="instrumentWithHardwareCycleCounter",
        ),
    )
    synthetic_data_mode: str = field(
        default="off",
        metadata=described(
            "choice",
            "Compute on made-up inputs, without transfers between host and device. Inputs need not "
            "be given, and are ignored if they are. The seed of the run decides about random "
            "numbers; integers and truth values are zeros, so that indices stay valid. Outputs are "
            "handed over nevertheless, at no cost.",
            choices=("off", "zeros", "random_normal", "random_uniform"),
            popart="syntheticDataMode",
        ),
    )
    tile_sets: FrozenTable[str] = field(
        default=_NO_WORDS,
        metadata=described(
            "choices",
            "Which tiles an input arrives at, or an output leaves from. A table from names or "
            "patterns to io (the tiles that num_io_tiles sets aside) or compute. The default is "
            "io for what exchange_strategies overlaps, else compute.",
            choices=("io", "compute"),
        ),
    )

    def exchange_strategy(self, stream: str) -> str:
        """When an input or output is transferred: see ``exchange_strategies``."""
        return self.exchange_strategies.matching(stream) or "just_in_time"

    def tile_set(self, stream: str) -> str:
        """Which tiles transfer an input or output: "io" or "compute"."""
        default = "compute" if self.exchange_strategy(stream) == "just_in_time" else "io"
        return self.tile_sets.matching(stream) or default

    def buffering_depth(self, stream: str) -> int:
        """How many samples of an input are read ahead."""
        if not self.enable_prefetch_datastreams:
            return 0
        own = self.buffering_depth_map.matching(stream)
        return self.default_buffering_depth if own is None else own
