"""Gradient cases of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from popc_runtime.format import Array
from tests.autodiff.inputs import numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

_Shape = tuple[int, ...]


def _begins_and_ends(pads: _Shape) -> list[int]:
    """Padding as PyTorch's ``pad`` wants it: last axis first, both ends side by side."""
    rank = len(pads) // 2
    return [pad for axis in reversed(range(rank)) for pad in (pads[axis], pads[rank + axis])]


def _conv(attributes: dict[str, Any], rank: int) -> Callable[..., Any]:
    def function(x: Any, w: Any, b: Any = None) -> Any:
        functional = pytorch().nn.functional
        padded = functional.pad(x, _begins_and_ends(attributes.get("pads", (0,) * (2 * rank))))
        strides = attributes.get("strides", (1,) * rank)
        dilations = attributes.get("dilations", (1,) * rank)
        convolution = getattr(functional, f"conv{rank}d")
        return convolution(padded, w, b, strides, 0, dilations, attributes.get("group", 1))

    return function


def _conv_transpose(attributes: dict[str, Any], rank: int) -> Callable[..., Any]:
    def function(x: Any, w: Any, b: Any = None) -> Any:
        functional = pytorch().nn.functional
        strides = attributes.get("strides", (1,) * rank)
        dilations = attributes.get("dilations", (1,) * rank)
        extra = attributes.get("output_padding", (0,) * rank)
        convolution = getattr(functional, f"conv_transpose{rank}d")
        group = attributes.get("group", 1)
        y = convolution(x, w, b, strides, 0, extra, group, dilations)
        crops = [-pad for pad in _begins_and_ends(attributes.get("pads", (0,) * (2 * rank)))]
        return functional.pad(y, crops)

    return function


def _case(op_type: str, name: str, x: _Shape, w: _Shape, bias: int = 0, **attributes: Any) -> Case:
    inputs: list[Array | None] = [numbers(*x), numbers(*w, seed=1)]
    if bias:
        inputs.append(numbers(bias, seed=2))
    make = _conv if op_type == "Conv" else _conv_transpose
    return Case(op_type, inputs, attributes, name=name, torch=make(attributes, len(x) - 2))


def _deform(name: str, *, mask: bool, bias: bool, groups: int = 1, **attributes: Any) -> Case:
    """Two images of 4 channels and 5 x 6; offsets keep away from whole numbers."""
    regions = attributes.get("offset_group", 1)
    strides, pads = attributes.get("strides", (1, 1)), attributes.get("pads", (0,) * 4)
    height, width = (
        (size + pads[axis] + pads[axis + 2] - 2) // strides[axis] + 1
        for axis, size in enumerate((5, 6))
    )
    offset = numbers(2, regions * 8, height, width, seed=2)
    offset = offset.round() + 0.4 + 0.1 * numbers(*offset.shape, seed=3).clip(-2, 2)
    return Case(
        "DeformConv",
        [
            numbers(2, 4, 5, 6),
            numbers(6, 4 // groups, 2, 2, seed=1),
            offset,
            numbers(6, seed=4) if bias else None,
            numbers(2, regions * 4, height, width, seed=5) if mask else None,
        ],
        {"group": groups, **attributes},
        name=name,
        torch=None,
    )


_CONVOLUTIONS: Final = [
    _case("Conv", "plain", (2, 3, 6, 5), (4, 3, 3, 2), bias=4),
    _case("Conv", "one axis", (2, 3, 9), (4, 3, 3), bias=4, pads=(1, 1), strides=(2,)),
    _case("Conv", "three axes", (2, 2, 5, 4, 6), (3, 2, 3, 2, 3), pads=(1, 0, 2, 0, 1, 1)),
    _case("Conv", "strides", (2, 3, 9, 8), (4, 3, 3, 3), strides=(2, 3), pads=(1, 1, 1, 1)),
    _case("Conv", "rest", (1, 2, 8, 9), (2, 2, 3, 3), strides=(3, 4)),
    _case("Conv", "dilations", (1, 2, 9, 11), (3, 2, 3, 3), dilations=(2, 3), pads=(0, 3, 4, 1)),
    _case("Conv", "all", (2, 4, 9, 11), (6, 2, 3, 2), bias=6, group=2, strides=(2, 3),
          dilations=(3, 2), pads=(2, 0, 1, 3)),
    _case("Conv", "groups", (2, 6, 5, 5), (4, 3, 3, 3), group=2, pads=(1, 1, 1, 1)),
    _case("Conv", "depthwise", (2, 5, 7, 20), (5, 1, 3, 3), bias=5, group=5, pads=(1, 1, 1, 1)),
    _case("Conv", "depthwise strides", (2, 5, 7, 9), (10, 1, 3, 3), group=5, strides=(2, 3)),
    _case("Conv", "depthwise 1-D", (2, 4, 9), (4, 1, 3), group=4, pads=(2, 0), dilations=(2,)),
    _case("Conv", "depthwise 3-D", (1, 2, 4, 5, 4), (2, 1, 2, 3, 2), group=2, strides=(2, 1, 1)),
    _case("Conv", "pointwise", (2, 5, 4, 3), (6, 5, 1, 1), bias=6),
    _case("Conv", "pointwise strides", (2, 5, 4, 3), (6, 5, 1, 1), strides=(2, 2)),
    _case("Conv", "tall", (2, 3, 16, 15), (4, 3, 3, 1)),
    _case("Conv", "only padding", (1, 1, 2, 2), (2, 1, 2, 2), pads=(3, 3, 3, 3)),
    _case("Conv", "whole image", (3, 2, 4, 5), (4, 2, 4, 5)),
]  # fmt: skip

_TRANSPOSED: Final = [
    _case("ConvTranspose", "plain", (2, 3, 4, 5), (3, 4, 3, 2), bias=4),
    _case("ConvTranspose", "one axis", (2, 3, 5), (3, 4, 3), bias=4, strides=(2,), pads=(1, 0)),
    _case("ConvTranspose", "three axes", (1, 2, 3, 2, 3), (2, 3, 2, 3, 2), strides=(2, 1, 2)),
    _case("ConvTranspose", "all", (2, 4, 4, 3), (4, 3, 3, 2), bias=6, group=2, strides=(2, 3),
          dilations=(2, 1), pads=(1, 0, 2, 1), output_padding=(1, 2)),
    _case("ConvTranspose", "depthwise", (2, 3, 5, 4), (3, 1, 3, 3), bias=3, group=3,
          strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)),
    _case("ConvTranspose", "patches", (2, 3, 4, 3), (3, 2, 2, 2), strides=(2, 2)),
]  # fmt: skip

CASES: Final[list[Case]] = [
    *_CONVOLUTIONS,
    *_TRANSPOSED,
    Case("Conv", [numbers(2, 3, 5, 5), numbers(4, 3, 3, 3)], name="weights only", frozen=(0,)),
    Case("Conv", [numbers(2, 3, 5, 5), numbers(4, 3, 3, 3)], name="data only", frozen=(1,)),
    Case(
        "ConvTranspose",
        [numbers(1, 2, 3, 3), numbers(2, 2, 2, 2, seed=1)],
        {"output_shape": [11, 8], "strides": [2, 2]},
        name="output shape",
    ),
    _deform("plain", mask=False, bias=False),
    _deform("mask and bias", mask=True, bias=True, pads=(1, 1, 1, 1)),
    _deform("groups", mask=True, bias=False, groups=2, offset_group=2, strides=(2, 1)),
]
