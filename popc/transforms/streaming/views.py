"""Other ways to look at a tensor."""

from __future__ import annotations

from popc.ir import Op, Tensor
from popc.ops import OPS

__all__ = ["base_of", "copied_from", "is_view"]


def is_view(op: Op | None) -> bool:
    """True if the results of ``op`` are, or may be, other ways to look at its first operand."""
    spec = None if op is None else OPS.get(op.op_type)
    return spec is not None and spec.view is not None


def base_of(tensor: Tensor) -> Tensor:
    """The tensor that ``tensor`` may be a view of."""
    while tensor.producer is not None and is_view(tensor.producer):
        tensor = tensor.producer.operand(0)
    return tensor


def copied_from(tensor: Tensor) -> Tensor:
    """The tensor on another chip that ``tensor`` is a copy of."""
    while tensor.producer is not None and tensor.producer.op_type == "IpuCopy":
        tensor = tensor.producer.operand(0)
    return tensor
