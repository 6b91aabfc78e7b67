"""Convolutions, direct, transposed and deformable."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.frontend.rules.float8 import has_float8, scaled_product
from popc.frontend.rules.onnx.windows import kernel_shape, split_padding, window_attribute_map
from popc.ir import AttributeMap, Shape, Tensor
from popc.ops.windows import window_attributes
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _conv_attributes(node: Node, x: Tensor, w: Tensor) -> AttributeMap:
    """The attributes of a convolution of ``x`` with ``w``."""
    if w.type.rank != x.type.rank or x.type.rank < 3:
        raise ModelError(f"X is {list(x.type.shape)}, but W is {list(w.type.shape)}")
    kernel = kernel_shape(node, w.type.shape)
    attributes = window_attribute_map(node, x.type.shape[2:], kernel)
    return {**attributes, "group": node.integer("group", 1)}


def _conv(node: Node) -> Tensor:
    x, w = node.input(0), node.input(1)
    if has_float8(node):
        return scaled_product(node, "Conv", _conv_attributes(node, x, w))
    return node.emit("Conv", [x, w, node.optional(2)], _conv_attributes(node, x, w))


def _conv_transpose(node: Node) -> Tensor:
    x, w = node.input(0), node.input(1)
    rank = x.type.rank - 2
    if rank < 1 or w.type.rank != rank + 2:
        raise ModelError(f"X is {list(x.type.shape)}, but W is {list(w.type.shape)}")
    kernel = kernel_shape(node, w.type.shape)
    attributes: AttributeMap = {
        "strides": node.integers("strides", (1,) * rank),
        "dilations": node.integers("dilations", (1,) * rank),
        "group": node.integer("group", 1),
    }
    padding = _transposed_padding(node, x.type.shape[2:], kernel, attributes)
    return node.emit("ConvTranspose", [x, w, node.optional(2)], {**attributes, **padding})


def _transposed_padding(
    node: Node, sizes: Shape, kernel: Shape, attributes: AttributeMap
) -> AttributeMap:
    """``pads`` and ``output_padding``, which are stated or follow from the wanted output shape."""
    rank = len(sizes)
    extra = node.integers("output_padding", (0,) * rank)
    auto_pad = node.text("auto_pad", "NOTSET") or "NOTSET"
    if auto_pad not in {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}:
        raise ModelError(f"attribute 'auto_pad' has the unknown value {auto_pad!r}")
    if node.has("output_shape"):
        wanted = node.integers("output_shape")[-rank:]
    elif auto_pad.startswith("SAME"):
        strides = node.integers("strides", (1,) * rank)
        wanted = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    else:
        none = (0,) * (2 * rank)
        pads = none if auto_pad == "VALID" else node.integers("pads", none)
        return {"pads": pads, "output_padding": extra}
    full = window_attributes(attributes, rank).transposed(sizes, kernel, extra)
    surplus = [have - want for have, want in zip(full, wanted, strict=True)]
    pads = split_padding([max(0, item) for item in surplus], upper=auto_pad == "SAME_UPPER")
    if node.has("output_shape"):  # what the windows do not reach is added at the end
        extra = tuple(more + max(0, -item) for more, item in zip(extra, surplus, strict=True))
    return {"pads": pads, "output_padding": extra}


def _deform_conv(node: Node) -> Tensor:
    """The last two operands are optional: bias and mask."""
    operands = [node.input(0), node.input(1), node.input(2), node.optional(3), node.optional(4)]
    attributes = _conv_attributes(node, node.input(0), node.input(1))
    attributes["offset_group"] = node.integer("offset_group", 1)
    return node.emit("DeformConv", operands, attributes)


def _col2im(node: Node) -> Tensor:
    x = node.input(0)
    image = _shape_operand(node, 1, "the image shape")
    block = _shape_operand(node, 2, "the block shape")
    attributes = window_attribute_map(node, image, block)
    return node.emit("Col2Im", [x], {**attributes, "image_shape": image, "block_shape": block})


def _shape_operand(node: Node, index: int, what: str) -> Shape:
    return tuple(int(dim) for dim in node.require_known(index, what).reshape(-1))


RULES: Final = default_domain(
    {
        "Col2Im": _col2im,
        "Conv": _conv,
        "ConvTranspose": _conv_transpose,
        "DeformConv": _deform_conv,
    }
)
