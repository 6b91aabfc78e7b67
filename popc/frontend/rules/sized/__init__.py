"""Rules for nodes of which data decides a size, by operator.

They are asked where an operand is a `SizedValue`, and where the rule for tensors of known size
finds that data decides the size of its result.
"""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.sized import (
    attention,
    einsum,
    indexing,
    microsoft,
    microsoft_attention,
    moves,
    pads,
    reduce,
    resize,
    rnn,
    shapes,
    spread,
    windows,
)
from popc.frontend.rules.sized.node import SizedNode, SizedRule

__all__ = ["MAKES_SIZES", "SIZED_RULES", "TAKES_ANY", "SizedNode", "SizedRule"]

# Operators whose results may have a size that data decides although no operand has one.
MAKES_SIZES: Final = frozenset(
    ("", op_type)
    for op_type in (
        *("Compress", "ConcatFromSequence", "ConstantOfShape", "Expand", "NonMaxSuppression"),
        *("NonZero", "OneHot", "Pad", "Range", "Reshape", "Resize", "Slice", "Split", "Tile"),
        *("TopK", "Unique"),
    )
)

# Operators whose rules take operands of any kind as they are.
TAKES_ANY: Final = frozenset(
    ("", op_type)
    for op_type in (
        *("Identity", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement"),
        *("SequenceAt", "SequenceConstruct", "SequenceErase", "SequenceInsert", "SequenceLength"),
    )
)

SIZED_RULES: Final[dict[tuple[str, str], SizedRule]] = {
    (domain, op_type): rule
    for domain, rules in (
        ("com.microsoft", microsoft.RULES),
        ("com.microsoft", microsoft_attention.RULES),
        *(
            ("", family.RULES)
            for family in (
                *(attention, einsum, indexing, moves, pads, reduce, resize, rnn, shapes, spread),
                windows,
            )
        ),
    )
    for op_type, rule in rules.items()
}
