"""Pooling."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.cost.formulas.pooling import regroup_cycles
from popc.cost.mapping import Layout, device_bytes, lanes_of
from popc.cost.planner import PoolPlan, PoolProblem, plan_pool
from popc.cost.rules.common import CostRule, dims_along
from popc.cost.work import Work
from popc.ir import Tensor

__all__ = ["RULES"]


def _pool(work: Work, *, maximum: bool, backward: bool) -> None:
    """Tiles fetch their part of the operands with its rim, then reduce windows.

    The gradient of maxima also fetches what the pool has read and found.
    """
    x, y = work.input(), work.result()
    kernel = work.integers("kernel_shape", x.shape[2:])
    axes = len(kernel)
    pads = work.integers("pads", (0,) * 2 * axes)
    if not backward and kernel == x.shape[2:] and not any(pads):
        along = range(2, x.rank)
        dims = dims_along(x.shape, along, work.layout_of(work.op.operand(0)))
        work.reduce(dims, x.dtype, maximum=maximum)
        return
    operand = work.op.operand(0)
    problem = PoolProblem(
        x.shape[0],
        x.shape[1],
        y.shape[2:],
        x.shape[2:],
        kernel,
        work.integers("strides", (1,) * axes),
        pads[:axes],
        _block(work, operand),
        "half" if lanes_of(y.dtype) == "half" else "float",
        maximum,
        backward,
    )
    plan = plan_pool(problem, work.machine.target)
    copied = _bring_to_maxima(work) if maximum and backward else None
    _fetch(work, plan, x.size, copied)
    work.compute("pool", plan.compute, "Pooling", temporary=plan.results * device_bytes(y.dtype))
    work.layout = Layout(f"pool {plan.block}", plan.tiles, plan.block, image=True)


def _bring_to_maxima(work: Work) -> int:
    """Copy a gradient to where the pool's results lie, first of all: poolInputGradientImpl.

    The channels in a group from then on.
    """
    gradient, block = work.op.operand(0), _block(work, _maxima(work))
    share = work.machine.share(gradient.type.size, gradient.type.dtype)
    bytes_ = share * device_bytes(gradient.type.dtype)
    work.receive("gradient", bytes_, sources=4)
    if _block(work, gradient) != block:
        work.compute("transform", regroup_cycles(bytes_), "Copy", 2 * bytes_)
    return block


def _maxima(work: Work) -> Tensor:
    """The operand of a gradient that the pool has made: as large as the gradient."""
    gradient, *others = work.op.present_inputs
    return next((other for other in others if other.type == gradient.type), gradient)


def _fetch(work: Work, plan: PoolPlan, windowed: int, copied: int | None) -> None:
    """Bring what a tile needs there, in the plan's groups of channels.

    Of operands as large as the first, of ``windowed`` elements, a tile needs windows; the first one
    may have been ``copied`` into groups of so many channels.
    """
    received = regrouped = 0
    for index, tensor in enumerate(work.op.present_inputs):
        size = device_bytes(tensor.type.dtype)
        bytes_ = (plan.operands if tensor.type.size == windowed else plan.results) * size
        received += bytes_
        block = _block(work, tensor) if index or copied is None else copied
        if block != plan.block:
            regrouped += bytes_
    work.receive("operands", received, sources=4 * len(work.op.present_inputs))
    if regrouped:
        work.compute("transform", regroup_cycles(regrouped), "Copy", received)


def _block(work: Work, tensor: Tensor) -> int:
    """Channels that lie side by side, in images as other ops leave them: 16 halves or 8 floats."""
    liked = 16 if lanes_of(tensor.type.dtype) == "half" else 8
    return work.layout_of(tensor).block or min(liked, tensor.type.shape[1])


def _rule(*, maximum: bool, backward: bool = False) -> CostRule:
    def rule(work: Work) -> None:
        if prod(work.result().shape) and prod(work.input().shape):
            _pool(work, maximum=maximum, backward=backward)

    return rule


RULES: Final[dict[str, CostRule]] = {
    "AveragePool": _rule(maximum=False),
    "AveragePoolGrad": _rule(maximum=False, backward=True),
    "LpPool": _rule(maximum=False),
    "MaxPool": _rule(maximum=True),
    "MaxPoolGrad": _rule(maximum=True, backward=True),
    "MaxUnpool": _rule(maximum=True, backward=True),
}
