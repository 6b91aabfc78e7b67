"""Convolutions, by the planner."""

from __future__ import annotations

from math import gcd, prod
from typing import Final

from popc.cost.mapping import Layout, device_bytes
from popc.cost.planner import ROWS, ConvProblem, OperandLayout
from popc.cost.rules.common import CostRule, epilogue
from popc.cost.work import Work
from popc.ir import Shape

__all__ = ["RULES"]

# What lies as a convolution of single channels wants it has so many side by side, or more.
_LANES: Final = 4
# Channels that most convolutions take side by side.
_BLOCK: Final = 16


def _two(sizes: Shape) -> tuple[int, int]:
    """Rows and columns: all axes before the last together, and the last."""
    return prod(sizes[:-1]), sizes[-1]


def _steps_of(values: Shape) -> tuple[int, int]:
    """Strides, or dilations, of the last two axes."""
    return (values[-2] if len(values) > 1 else 1), values[-1]


def _conv(work: Work) -> None:
    """Conv: [N, C, ...] by [M, C / group, ...], and what comes after it."""
    x, w, y = work.input(0), work.input(1), work.result()
    rank, group = x.rank - 2, work.integer("group", 1)
    problem = ConvProblem(
        *work.types(y.dtype),
        group,
        x.shape[0],
        _two(y.shape[2:]),
        x.shape[1] // group,
        y.shape[1] // group,
        _two(w.shape[2:]),
        _steps_of(work.integers("strides", (1,) * rank)),
        _steps_of(work.integers("dilations", (1,) * rank)),
        _two(x.shape[2:]),
        inputs_lie=_channels(work, group),
        weights_lie=_kernel(work),
    )
    _planned(work, problem)
    epilogue(work, 2, y.shape[1])


def _channels(work: Work, group: int) -> OperandLayout:
    """The order of the input: in blocks of channels, as another convolution has left it, or not."""
    x = work.op.operand(0)
    layout = work.layout_of(x)
    if x.is_constant or layout.placed:
        return work.lying(x, last=True)
    own = x.type.shape[1] // group
    groups = layout.block // own if group > 1 and own else 0
    return OperandLayout(own, groups) if groups > 1 else OperandLayout(layout.block)


def _kernel(work: Work) -> OperandLayout:
    """The order of the weights: as the convolution wants them that reads them first.

    A gradient by the input wants outputs and inputs in each other's place, and the kernel turned.
    """
    w = work.op.operand(1)
    first = next(iter(w.uses), None)
    own = first is None or first.op_type == work.op.op_type
    return work.lying(w, last=True) if own else ROWS


def _planned(work: Work, problem: ConvProblem) -> None:
    plan = work.convolve(problem)
    tiles = -(-work.result().size // max(plan.outputs_per_tile, 1))
    tiles = min(max(tiles, 1), work.machine.target.compute_tiles)
    work.layout = Layout(f"{plan}", tiles, plan.block, image=True)


def _transposed(work: Work) -> None:
    """A convolution whose input has zeros between its elements, as many as the strides say.

    Along an axis with a single kernel position zeros come afterwards.
    """
    x, w, y = work.input(0), work.input(1), work.result()
    rank, group = x.rank - 2, work.integer("group", 1)
    strides, taps = work.integers("strides", (1,) * rank), w.shape[2:]
    axes = list(zip(x.shape[2:], strides, taps, strict=True))
    spread = tuple(step if count > 1 else 1 for _, step, count in axes)
    problem = ConvProblem(
        *work.types(y.dtype),
        group,
        x.shape[0],
        _two(tuple(size * step for size, step in zip(x.shape[2:], spread, strict=True))),
        x.shape[1] // group,
        y.shape[1] // group,
        _two(taps),
        inputs=_two(x.shape[2:]),
        spread=_two(spread),
        inputs_lie=_channels(work, group),
        weights_lie=_kernel(work),
    )
    _planned(work, problem)
    epilogue(work, 2, y.shape[1])


def _weights_grad(work: Work) -> None:
    """A convolution of the input by the gradient, in which the batch is the input channel.

    Groups of one channel lie side by side as the channels do.
    """
    dy, x, w = work.input(0), work.input(1), work.result()
    rank, group = x.rank - 2, work.integer("group", 1)
    problem = ConvProblem(
        *work.types(w.dtype),
        group,
        x.shape[1] // group,
        _two(w.shape[2:]),
        x.shape[0],
        dy.shape[1] // group,
        _two(dy.shape[2:]),
        _steps_of(work.integers("dilations", (1,) * rank)),
        _steps_of(work.integers("strides", (1,) * rank)),
        _two(x.shape[2:]),
        inputs_lie=_samples(work, 1, group),
        weights_lie=_samples(work, 0, group),
    )
    _planned(work, problem)


def _samples(work: Work, operand: int, group: int) -> OperandLayout:
    """The order of an operand whose samples are the channels: its own channels lie side by side.

    Where each of them is a conv group, groups do.
    """
    tensor = work.op.operand(operand)
    layout, channels = work.layout_of(tensor), tensor.type.shape[1]
    if channels == group and group > 1:
        return OperandLayout(groups=_LANES if layout.placed else max(layout.block, 1))
    block = _BLOCK if layout.placed else layout.block * layout.image
    return OperandLayout(across=gcd(block, channels // group))


def _deformed(work: Work, results: int) -> None:
    """Bilinear samples, four reads each, and the product over them."""
    x, w = work.input(results), work.input(results + 1)
    y = work.input(0) if results else work.result()
    field = y.shape[0] * prod(y.shape[2:])
    samples = field * x.shape[1] * prod(w.shape[2:])
    work.held = work.machine.share(samples, x.dtype) * device_bytes(x.dtype)
    for _ in range(results + 1):
        work.gather(4 * field * prod(w.shape[2:]), x.shape[1], prod(x.shape[2:]), x.dtype)
        work.binary(*["add"] * 7, size=samples, dtype=x.dtype)
        work.matmul(
            1,
            field,
            samples // max(field, 1),
            w.shape[0],
            x.dtype,
            lie=(ROWS, ROWS),
        )


def _deform_conv(work: Work) -> None:
    _deformed(work, 0)


def _deform_conv_grad(work: Work) -> None:
    _deformed(work, 1)


def _col2im(work: Work) -> None:
    work.rearrange(work.input())
    outputs = work.result().size
    dims = (work.input().size // outputs, True), (outputs, False)
    work.reduce(dims, work.result().dtype)


RULES: Final[dict[str, CostRule]] = {
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _transposed,
    "ConvWeightsGrad": _weights_grad,
    "DeformConv": _deform_conv,
    "DeformConvGrad": _deform_conv_grad,
}
