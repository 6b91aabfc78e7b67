"""Attributes of ONNX operators with windows: defaults filled in and padding made explicit."""

from __future__ import annotations

from collections.abc import Sequence

from popc.frontend.node import Node
from popc.ir import AttributeMap, Shape
from popc.ops.windows import window_attributes
from popc_runtime.errors import ModelError

__all__ = ["kernel_shape", "same_padding", "split_padding", "window_attribute_map"]


def kernel_shape(node: Node, weights: Shape) -> Shape:
    """The spatial shape of ``weights`` [M, C, *kernel]; attribute ``kernel_shape`` repeats it."""
    kernel = weights[2:]
    stated = node.integers("kernel_shape", kernel)
    if stated != kernel:
        raise ModelError(f"kernel_shape is {list(stated)}, but the weights are {list(weights)}")
    return kernel


def window_attribute_map(node: Node, sizes: Shape, kernel: Shape) -> AttributeMap:
    """``strides``, ``dilations`` and explicit ``pads``, whichever way the model states the padding.

    Args:
        node: The operator.
        sizes: Spatial shape of its input.
        kernel: Spatial shape of the window.
    """
    rank = len(sizes)
    strides = node.integers("strides", (1,) * rank)
    dilations = node.integers("dilations", (1,) * rank)
    auto_pad = node.text("auto_pad", "NOTSET") or "NOTSET"
    pads = (0,) * (2 * rank)
    if auto_pad == "NOTSET":
        pads = node.integers("pads", pads)
    elif auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
        pads = _same(sizes, kernel, strides, dilations, upper=auto_pad == "SAME_UPPER")
    elif auto_pad != "VALID":
        raise ModelError(f"attribute 'auto_pad' has the unknown value {auto_pad!r}")
    attributes: AttributeMap = {"strides": strides, "dilations": dilations, "pads": pads}
    window_attributes(attributes, rank)
    return attributes


def _same(
    sizes: Shape, kernel: Shape, strides: Shape, dilations: Shape, *, upper: bool
) -> tuple[int, ...]:
    if not len(sizes) == len(kernel) == len(strides) == len(dilations):
        raise ModelError(f"kernel, strides and dilations need {len(sizes)} entries each")
    if min((*strides, *dilations), default=1) < 1:
        raise ModelError("strides and dilations must be positive")
    return split_padding(same_padding(sizes, kernel, strides, dilations), upper=upper)


def same_padding(sizes: Shape, kernel: Shape, strides: Shape, dilations: Shape) -> Shape:
    """Total padding per axis that gives ceil(size / stride) windows (auto_pad SAME_*)."""
    fields = zip(sizes, kernel, strides, dilations, strict=True)
    return tuple(
        max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
        for size, taps, stride, dilation in fields
    )


def split_padding(total: Sequence[int], *, upper: bool) -> tuple[int, ...]:
    """ONNX ``pads`` with the odd element at the end (SAME_UPPER) or at the beginning."""
    smaller = tuple(amount // 2 for amount in total)
    larger = tuple(amount - amount // 2 for amount in total)
    return smaller + larger if upper else larger + smaller
