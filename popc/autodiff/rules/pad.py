"""The gradient of Pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integers

__all__ = ["GRADIENTS"]


def _pad(b: Backward) -> Sequence[Tensor | None]:
    g, mode = b.grad(), b.attributes.get("mode", "constant")
    pads, rank = integers(b.attributes, "pads"), g.type.rank
    first = second = None
    if b.wants(0) and mode == "constant":
        first = b.pad(g, [-begin for begin in pads[:rank]], [-end for end in pads[rank:]])
    elif b.wants(0):
        first = b.emit("PadGrad", [g], {"pads": pads, "mode": str(mode)})
    if b.wants(1):
        borders = [b.sum(border, range(rank)) for border in _borders(b, g, pads)]
        second = b.reshape(b.emit("Sum", borders), b.input(1).type.shape)
    return [first, second]


def _borders(b: Backward, g: Tensor, pads: Sequence[int]) -> list[Tensor]:
    """The padding in pieces: each axis' two ends, within the interior of the axes before."""
    rank, found = g.type.rank, []
    windows = [range(dim) for dim in g.type.shape]
    for axis, dim in enumerate(g.type.shape):
        begin, end = max(pads[axis], 0), max(pads[axis + rank], 0)
        borders = [border for border in (range(begin), range(dim - end, dim)) if border]
        found += [b.slice(g, [*windows[:axis], at, *windows[axis + 1 :]]) for at in borders]
        windows[axis] = range(begin, dim - end)
    return found or [b.slice(g, [range(0)] * rank)]


GRADIENTS: Final[dict[str, GradientRule]] = {"Pad": _pad}
