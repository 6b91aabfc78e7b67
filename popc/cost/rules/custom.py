"""Ops that users compute: nobody knows what operators cost on an IPU; calls are transfers."""

from __future__ import annotations

from typing import Final

from popc.cost.rules.common import CostRule, custom
from popc.cost.rules.host import transfer
from popc.cost.work import Work

__all__ = ["RULES"]


def _host_call(work: Work) -> None:
    """Operands over the host's links, then results; the time that the function takes is unknown."""
    op = work.op
    for type_ in (tensor.type for tensor in (*op.inputs, *op.outputs) if tensor is not None):
        transfer(work, type_, 0)


# As much as a softmax takes for an element.
RULES: Final[dict[str, CostRule]] = {
    "Custom": custom(60),
    "CustomGrad": custom(60),
    "HostCall": _host_call,
}
