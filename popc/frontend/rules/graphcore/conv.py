"""ai.graphcore, several convolutions in one operator."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import standard_op
from popc.frontend.rules.graphcore.operators import graphcore_domain, takes
from popc.frontend.rules.moves import emit_reshape, emit_slice
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen

__all__ = ["RULES"]

# Attributes that hold numbers of all convolutions one after another: values per axis and default.
_PER_AXIS: Final[dict[str, tuple[int, int]]] = {
    "dilations": (1, 1),
    "inDilations": (1, 1),
    "outPads": (2, 0),
    "pads": (2, 0),
    "strides": (1, 1),
}


@frozen
class _Window:
    """The numbers of one convolution."""

    dilations: tuple[int, ...]
    inDilations: tuple[int, ...]  # noqa: N815 - the attribute's name
    outPads: tuple[int, ...]  # noqa: N815 - the attribute's name
    pads: tuple[int, ...]
    strides: tuple[int, ...]


def _multi_conv(node: Node) -> list[Tensor]:
    """Inputs are (data, weights, bias or nothing) of each convolution; one result for each."""
    count = node.integer("numConvs", max(1, -(-len(node.inputs) // 3)))
    if count < 1 or len(node.inputs) > 3 * count:
        raise ModelError(f"{len(node.inputs)} inputs are not those of {count} convolutions")
    operands = [
        (node.input(at), node.input(at + 1), node.optional(at + 2)) for at in range(0, 3 * count, 3)
    ]
    windows = _windows(node, [x.type.rank - 2 for x, _, _ in operands])
    types = node.texts("partialsTypes", ()) or ("",) * count
    if len(types) != count:
        raise ModelError(f"partialsTypes must have {count} types, not {len(types)}")
    return [
        _convolved(node, *three, window, partials)
        for three, window, partials in zip(operands, windows, types, strict=True)
    ]


def _windows(node: Node, axes: list[int]) -> list[_Window]:
    """The numbers of each convolution, given how many axes each has."""
    parts: list[dict[str, tuple[int, ...]]] = [{} for _ in axes]
    for name, (per_axis, default) in _PER_AXIS.items():
        lengths = [per_axis * count for count in axes]
        values = node.integers(name, ()) or (default,) * sum(lengths)
        if len(values) != sum(lengths):
            raise ModelError(f"{name} must have {sum(lengths)} numbers, not {len(values)}")
        start = 0
        for part, length in zip(parts, lengths, strict=True):
            part[name] = values[start : start + length]
            start += length
    return [_Window(**part) for part in parts]


def _convolved(
    node: Node, x: Tensor, weights: Tensor, bias: Tensor | None, window: _Window, partials: str
) -> Tensor:
    """A convolution of data with gaps; its result is padded before the bias is added."""
    if x.type.rank < 3 or weights.type.rank != x.type.rank:
        raise ModelError(f"{x.type} cannot be convolved with {weights.type}")
    attributes: dict[str, int | str | tuple[int, ...]] = {
        "dilations": window.dilations,
        "group": x.type.shape[1] // max(1, weights.type.shape[1]),
        "pads": window.pads,
        "strides": window.strides,
    }
    if partials:
        attributes["__partials_type"] = partials
    padded = any(window.outPads)
    operands = [_with_gaps(node, x, window.inDilations), weights, None if padded else bias]
    y = standard_op(node, "Conv", operands, attributes)
    if not padded:
        return y
    axes = len(window.strides)
    pads = (0, 0, *window.outPads[:axes], 0, 0, *window.outPads[axes:])
    y = _pad(node, y, pads)
    if bias is None:
        return y
    return node.emit("Add", [y, emit_reshape(node, bias, (bias.type.size, *(1,) * axes))])


def _with_gaps(node: Node, x: Tensor, steps: tuple[int, ...]) -> Tensor:
    """``x`` with step - 1 zeros between neighbours along each spatial axis."""
    for axis, step in enumerate(steps, start=2):
        if step == 1:
            continue
        if step < 1:
            raise ModelError(f"an input cannot be dilated by {step}")
        before, dim, after = x.type.shape[:axis], x.type.shape[axis], x.type.shape[axis + 1 :]
        single = emit_reshape(node, x, (*before, dim, 1, *after))
        rank = single.type.rank
        pads = tuple(step - 1 if place == rank + axis + 1 else 0 for place in range(2 * rank))
        wide = emit_reshape(node, _pad(node, single, pads), (*before, dim * step, *after))
        windows = [range(size) for size in wide.type.shape]
        windows[axis] = range((dim - 1) * step + 1)
        x = emit_slice(node, wide, windows)
    return x


def _pad(node: Node, x: Tensor, pads: tuple[int, ...]) -> Tensor:
    return node.emit("Pad", [x], {"pads": pads, "mode": "constant", "value": 0.0})


RULES: Final = graphcore_domain({"MultiConv": takes(2, 1 << 16, _multi_conv)})
