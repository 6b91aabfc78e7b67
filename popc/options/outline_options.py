"""Options about outlining: code that is shared by parts of a program."""

from __future__ import annotations

from dataclasses import dataclass, field

from popc.options.batch_options import BatchOptions
from popc.options.schema import described

__all__ = ["OutlineOptions"]


@dataclass(frozen=True, slots=True)
class OutlineOptions(BatchOptions):
    """Which repeated parts of a program become one subgraph."""

    enable_outlining: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Whether parts of a program that occur several times become one graph that is called, "
            "so that its code is there once. Results are the same; with stochastic rounding, other "
            "random numbers may meet them. Off, other than in PopART: results of what is called "
            "cannot lie where an operand was, so that more memory may be needed.",
            popart="enableOutlining",
        ),
    )
    enable_outlining_copy_cost_pruning: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Whether a part is only outlined, and only as much of it, as what it computes is worth "
            "the copies of its operands and results.",
            popart="enableOutliningCopyCostPruning",
        ),
    )
    outline_sequence_break_cost: float = field(
        default=10_000.0,
        metadata=described(
            "float",
            "What it costs if a part that is outlined holds some of what may overlap with an "
            "exchange between chips or replicas, but not all, and what it is worth if it holds "
            "all. The occurrences of the part share it.",
            popart="outlineSequenceBreakCost",
        ),
    )
    outline_threshold: float = field(
        default=1.0,
        metadata=described(
            "float",
            "What a part must be worth to be outlined: 1000 for each convolution, product, "
            "normalisation or exchange in it, 0.1 for each other op, without what is in parts of "
            "it that are outlined already.",
            low=-(1 << 48),
            popart="outlineThreshold",
        ),
    )
    subgraph_copying_strategy: str = field(
        default="on_enter_and_exit",
        metadata=described(
            "choice",
            "When operands and results of a graph that is called are copied on an IPU: all of them "
            "when it begins and ends, or each just in time, where it is first read or has been "
            "computed. What runs here copies nothing; the estimate of costs counts the copies.",
            choices=("on_enter_and_exit", "just_in_time"),
            popart="subgraphCopyingStrategy",
        ),
    )
