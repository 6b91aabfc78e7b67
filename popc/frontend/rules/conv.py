"""Convolutions, direct, transposed and deformable."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.frontend.rules.windows import kernel_shape, split_padding, window_attribute_map
from popc.ir import AttributeMap, Shape, Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES", "conv_attributes"]


def conv_attributes(node: Node, x: Tensor, w: Tensor) -> AttributeMap:
    """The attributes of a Conv of ``x`` with ``w`` (also those of its quantised forms)."""
    if w.type.rank != x.type.rank or x.type.rank < 3:
        raise ModelError(f"X is {list(x.type.shape)}, but W is {list(w.type.shape)}")
    kernel = kernel_shape(node, w.type.shape)
    attributes = window_attribute_map(node, x.type.shape[2:], kernel)
    return {**attributes, "group": node.integer("group", 1)}


def _conv(node: Node) -> Tensor:
    x, w = node.input(0), node.input(1)
    return node.emit("Conv", [x, w, node.optional(2)], conv_attributes(node, x, w))


def _conv_transpose(node: Node) -> Tensor:
    """The padding is given, follows from ``output_shape``, or is such that sizes scale by stride."""
    x, w = node.input(0), node.input(1)
    rank = x.type.rank - 2
    if rank < 1 or w.type.rank != rank + 2:
        raise ModelError(f"X is {list(x.type.shape)}, but W is {list(w.type.shape)}")
    strides = node.integers("strides", (1,) * rank)
    attributes: AttributeMap = {
        "strides": strides,
        "dilations": node.integers("dilations", (1,) * rank),
        "output_padding": node.integers("output_padding", (0,) * rank),
        "group": node.integer("group", 1),
    }
    kernel = kernel_shape(node, w.type.shape)
    attributes["pads"] = _transposed_pads(node, x.type.shape[2:], kernel, attributes)
    return node.emit("ConvTranspose", [x, w, node.optional(2)], attributes)


def _transposed_pads(
    node: Node, sizes: Shape, kernel: Shape, attributes: AttributeMap
) -> tuple[int, ...]:
    rank = len(sizes)
    auto_pad = node.text("auto_pad", "NOTSET") or "NOTSET"
    strides = node.integers("strides", (1,) * rank)
    is_same = auto_pad in {"SAME_UPPER", "SAME_LOWER"}
    if node.has("output_shape"):
        wanted = node.integers("output_shape")[-rank:]
    elif is_same:
        wanted = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    else:
        return (0,) * (2 * rank) if auto_pad == "VALID" else node.integers("pads", (0,) * 2 * rank)
    unpadded = _unpadded(sizes, kernel, attributes)
    total = [have - want for have, want in zip(unpadded, wanted, strict=True)]
    if is_same or min(total) >= 0:
        return split_padding([max(0, item) for item in total], upper=auto_pad != "SAME_LOWER")
    raise ModelError(f"output_shape {list(wanted)} is larger than the {list(unpadded)} computed")


def _unpadded(sizes: Shape, kernel: Shape, attributes: AttributeMap) -> Shape:
    """Spatial shape of the transposed convolution without padding."""
    raise NotImplementedError


def _deform_conv(node: Node) -> Tensor:
    """The last two operands are optional: bias and mask."""
    operands = [node.input(0), node.input(1), node.input(2), node.optional(3), node.optional(4)]
    attributes = conv_attributes(node, node.input(0), node.input(1))
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


RULES: Final = default_domain({
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
})
