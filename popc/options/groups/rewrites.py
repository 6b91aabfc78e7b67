"""Options about local rewrites."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Names, Truth
from popc.options.schema import option
from popc.options.switches import Switches
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = ["PatternLevel", "RewriteOptions"]


class PatternLevel(StrEnum):
    """The level of local rewrites; each makes those of the level before."""

    NO_PATTERNS = "no_patterns"
    MINIMAL = "minimal"
    DEFAULT = "default"
    ALL = "all"


@inheritable
class RewriteOptions:
    """The choice of local rewrites."""

    combine_convolutions: bool = option(
        Truth(),
        False,
        "Make one convolution of several that read the same operand through the same window. "
        "Their results are parts of one tensor then, and all live at the same time.",
    )
    combine_embedding_lookups: bool = option(
        Truth(),
        False,
        "Make one Gather of several from the same table. In training the table then has one "
        "gradient, but the rows of all lookups live at the same time.",
    )
    combine_matmuls: bool = option(
        Truth(),
        False,
        "Make one product of several that have an operand in common. Such are the projections "
        "of attention. Small ones of equal shape become one too. There are fewer ops then, and "
        "larger ones, but results are parts of a larger tensor, and all of them live at the "
        "same time. Sums may be rounded differently.",
    )
    disabled_passes: tuple[str, ...] = option(
        Names(),
        (),
        "Passes to leave out. The results stay the same; the program gets larger or slower.",
    )
    enable_fast_math: bool = option(
        Truth(),
        False,
        "Rewrite arithmetic in ways that round differently, and as if there were neither NaNs "
        "nor infinities. Divisors become factors, constants are joined, common factors taken "
        "out. docs/patterns.md lists these rules, at the level fast_math; pattern_switches "
        "switches single ones.",
    )
    pattern_switches: FrozenTable[bool] = option(
        Switches(),
        FrozenTable(),
        "Switches single passes and rules on or off, whatever the level of patterns says. A "
        "table from names to on or off; PopART's names of patterns are understood, and "
        "docs/patterns.md lists them all. disabled_passes is a short way to say off. In TOML: "
        "[pattern_switches] split_gathers = true, ExpandCast = false; with --set: "
        "pattern_switches.split_gathers=on.",
    )
    patterns: PatternLevel = option(
        Choice(*PatternLevel),
        PatternLevel.DEFAULT,
        "Local rewrites to make. With no_patterns none: the program is what the model "
        "says, op by op. minimal removes ops that do nothing, default makes the rewrites that "
        "pay, and all also those that rarely do. Clean-up, loops, collectives and the use of "
        "memory (see enable_inplace) do not depend on it.",
    )
