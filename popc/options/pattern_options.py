"""Options about patterns, work in place and products of matrices."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from popc.options.outline_options import OutlineOptions
from popc.options.schema import described
from popc.options.table import FrozenTable

__all__ = ["PatternOptions"]

_NO_SWITCHES: Final[FrozenTable[bool]] = FrozenTable()


@dataclass(frozen=True, slots=True)
class PatternOptions(OutlineOptions):
    """Which local rewrites are made."""

    combine_convolutions: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Make one convolution of several that read the same operand through the same window. "
            "Their results are parts of one tensor then, and all live at the same time.",
        ),
    )
    combine_embedding_lookups: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Make one Gather of several from the same table. In training the table then has one "
            "gradient, but the rows of all lookups live at the same time.",
        ),
    )
    combine_matmuls: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Make one product of several that have an operand in common. Such are the projections "
            "of attention. Small ones of equal shape become one too. There are fewer ops then, and "
            "larger ones, but results are parts of a larger tensor, and all of them live at the "
            "same time. Sums may be rounded differently.",
        ),
    )
    delay_var_updates: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Update weights when nothing else is left to do. Otherwise an update runs when that "
            "needs the least memory, which mostly is as soon as the gradient is known. PopART "
            "delays them unless loops and recomputation are explicit, as they are here. Training "
            "only.",
            popart="delayVarUpdates",
        ),
    )
    enable_inplace_ambiguity_checking: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Refuse programs in which several ops could overwrite an operand. That is if neither "
            "data flow nor inplace_op_priorities of a node says which one does. Without, the one "
            "that runs last does, and the scheduler decides. Results are the same either way.",
            popart="enableInplaceAmbiguityChecking",
        ),
    )
    enable_serialized_matmuls: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Whether products of matrices are cut as annotations say. Without, "
            "serialize_matmul_mode and serialize_matmul_factor have no effect.",
            popart="enableSerializedMatmuls",
        ),
    )
    pattern_switches: FrozenTable[bool] = field(
        default=_NO_SWITCHES,
        metadata=described(
            "switches",
            "Switches single passes and rules on or off, whatever the level of patterns says. A "
            "table from names to on or off; PopART's names of patterns are understood, and "
            "docs/patterns.md lists them all. disabled_passes is a short way to say off. In TOML: "
            "[pattern_switches] split_gathers = true, ExpandCast = false; with --set: "
            "pattern_switches.split_gathers=on.",
        ),
    )
    patterns: str = field(
        default="default",
        metadata=described(
            "choice",
            "Which local rewrites are made. With no_patterns none: the program is what the model "
            "says, op by op. minimal removes ops that do nothing, default makes the rewrites that "
            "pay, and all also those that rarely do. Clean-up, loops, collectives and the use of "
            "memory (see enable_inplace) do not depend on it.",
            choices=("no_patterns", "minimal", "default", "all"),
        ),
    )

    schedule_non_weight_update_gradient_consumers_early: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Add a gradient to those of earlier micro-batches as soon as it is known. That may "
            "take more memory. With accumulation_factor. Training only.",
            popart="scheduleNonWeightUpdateGradientConsumersEarly",
        ),
    )

    def pattern_conflicts(self, disabled: Collection[str]) -> Iterator[str]:
        """Options that contradict each other."""
        for name, wanted in self.pattern_switches.items():
            if wanted and name in disabled:
                yield (
                    f"pattern_switches switches {name} on, but disabled_passes names it: leave "
                    "one of them out"
                )
