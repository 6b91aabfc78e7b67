"""The chip that each op runs on."""

from __future__ import annotations

from popc.ir import Op

__all__ = ["chip_of"]


def chip_of(op: Op, chips: int) -> int:
    """The virtual graph that the op was placed on, if there is such a chip; else the first one."""
    number = op.settings.virtual_graph
    return number if number is not None and 0 <= number < chips else 0
