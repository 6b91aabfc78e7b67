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
            "Make one product of several that have an operand in common, such as the projections "
            "of attention, and of small ones of equal shape. Fewer ops and larger ones, but "
            "results are parts of a larger tensor, and those of all live at the same time. Sums "
            "may be rounded differently.",
        ),
    )
    enable_inplace_ambiguity_checking: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Refuse programs in which several ops could overwrite the same operand, and neither "
            "data flow nor inplace_op_priorities of a node says which one. Without, the one that "
            "runs last does, and the scheduler decides. Results are the same either way.",
            popart="enableInplaceAmbiguityChecking",
        ),
    )
    enable_serialized_matmuls: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Whether products of matrices are cut as the annotations serialize_matmul_mode and "
            "serialize_matmul_factor say. Without, these have no effect.",
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
            "Which local rewrites are made. no_patterns and minimal make none: programs are what "
            "the model says, op by op. default makes those that pay, and all makes also those "
            "that rarely do. Clean-up, loops and collectives do not depend on it, "
            "and memory is planned as ever (see enable_inplace).",
            choices=("no_patterns", "minimal", "default", "all"),
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
