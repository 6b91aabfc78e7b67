"""Options about outlining: code that is shared by parts of a program."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Number, Patterns, Truth
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["CopyingStrategy", "OutlineOptions"]


class CopyingStrategy(StrEnum):
    """The time when operands and results of calls are copied on an IPU."""

    ON_ENTER_AND_EXIT = "on_enter_and_exit"
    JUST_IN_TIME = "just_in_time"


@inheritable
class OutlineOptions:
    """The repeated parts of a program that become one subgraph."""

    enable_outlining: bool = option(
        Truth(),
        False,
        "Turn repeated parts of a program into one graph that is called. Its code is then "
        "there once. Results are the same; with stochastic rounding, other "
        "random numbers may meet them. Off, other than in PopART: results of what is called "
        "cannot lie where an operand was, so that more memory may be needed.",
        popart="enableOutlining",
    )
    enable_outlining_copy_cost_pruning: bool = option(
        Truth(),
        True,
        "Outline only parts that are worth the copies of their operands and results. "
        "Less of it may be outlined then, or nothing.",
        popart="enableOutliningCopyCostPruning",
    )
    outline_sequence_break_cost: float = option(
        Number(),
        10_000.0,
        "Cost of parting an exchange from ops that may overlap with it. It counts if a "
        "part that is outlined holds some of these, but not all; if it holds all, it is worth "
        "as much. The occurrences of the part share it.",
        popart="outlineSequenceBreakCost",
    )
    outline_threshold: float = option(
        Number(low=-(1 << 48)),
        1.0,
        "Least worth of a part to be outlined. Each convolution, product, normalisation or "
        "exchange in it counts 1000, each other op 0.1; what is outlined already counts "
        "nothing.",
        popart="outlineThreshold",
    )
    outlined_functions: tuple[str, ...] = option(
        Patterns(),
        (),
        "Functions of the model whose calls stay calls of one graph. Names or patterns of ONNX "
        "model-local functions, with their domain or without. Of other functions, as of the rest "
        "of the model, enable_outlining finds out by itself what is repeated.",
    )
    subgraph_copying_strategy: CopyingStrategy = option(
        Choice(*CopyingStrategy),
        CopyingStrategy.ON_ENTER_AND_EXIT,
        "Time at which operands and results of calls are copied on an IPU. All of them when the "
        "call begins and ends, or each just in time, where it is first read or has been "
        "computed. Calls on this machine copy nothing; the estimate of costs counts the copies.",
        popart="subgraphCopyingStrategy",
    )
