"""The chip that each op runs on."""

from __future__ import annotations

from popc.ir import Op

__all__ = ["chip_of", "takes_part"]


def chip_of(op: Op, chips: int) -> int:
    """The virtual graph that the op was placed on, if there is such a chip; else the first one."""
    number = op.settings.virtual_graph
    return number if number is not None and 0 <= number < chips else 0


def takes_part(op: Op, chip: int, chips: int) -> bool:
    """True if ``chip`` needs code for ``op``: it runs it, or another one sends it something."""
    if op.op_type == "IpuCopy":
        return chip in (op.attributes["source"], op.attributes["destination"])
    return chip_of(op, chips) == chip
