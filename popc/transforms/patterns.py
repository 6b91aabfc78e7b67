"""The passes and local rules that are on: the level of patterns, and the user's switches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from popc.options import Options, PatternLevel
from popc.transforms.rules import RULES, LocalRule
from popc.transforms.rules.fast_math import FAST_MATH

__all__ = ["ALWAYS", "chosen_rules", "is_on"]

ALWAYS: Final = ""  # the level of what is no pattern: switches decide alone
_LEVELS: Final = (ALWAYS, *PatternLevel)


def is_on(name: str, level: str, options: Options) -> bool:
    """True if what is called ``name``, and belongs to ``level`` and those above it, is wanted."""
    if name in options.disabled_passes:
        return False
    if level == FAST_MATH:
        at_level = options.enable_fast_math
    else:
        at_level = level == ALWAYS or _LEVELS.index(level) <= _LEVELS.index(options.patterns)
    return options.pattern_switches.get(name, at_level)


def chosen_rules(
    options: Options,
    *,
    late: bool,
    before_gradients: bool = False,
    rules: Iterable[LocalRule] = RULES,
) -> tuple[LocalRule, ...]:
    """The local rules that are on.

    Those that must wait for other passes are among them with ``late``, and those that must wait for
    the backward pass unless that is still to come.
    """
    return tuple(
        rule
        for rule in rules
        if (late or not rule.late)
        and not (before_gradients and rule.after_gradients)
        and is_on(rule.name, rule.level, options)
    )
