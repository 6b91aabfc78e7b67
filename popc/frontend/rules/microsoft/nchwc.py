"""Operators of com.microsoft.nchwc, whose tensors onnxruntime keeps in blocks of channels.

In popc they are as their shapes say, [N, C, H, W]: `popc.frontend.filter_blocks` has put filters
in order.  C may be more than the model had channels: a last block is filled up with zeros.
"""

from __future__ import annotations

from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import standard_op
from popc.frontend.rules.microsoft.operators import (
    WINDOW_ATTRIBUTES,
    as_standard,
    channels_first,
    channels_last,
    fused_conv,
)
from popc.ir import Tensor
from popc_runtime.format import DType

__all__ = ["RULES"]

_DOMAIN: Final = "com.microsoft.nchwc"


def _reorder_input(node: Node) -> Tensor:
    """With zeros that fill the last block."""
    x = node.input(0)
    x = channels_first(node, x) if node.integer("channels_last", 0) else x
    missing = -x.type.shape[1] % node.integer("block_size", 1)
    if not missing:
        return x
    pads = node.constant([0, 0, 0, 0, 0, missing, 0, 0], DType.INT64)
    return standard_op(node, "Pad", [x, pads])


def _reorder_output(node: Node) -> Tensor:
    """Without the channels that fill the last block."""
    x = node.input(0)
    channels = node.integer("channels", x.type.shape[1])
    if channels < x.type.shape[1]:
        bounds = (node.constant([number], DType.INT64) for number in (0, channels, 1))
        x = standard_op(node, "Slice", [x, *bounds])
    return channels_last(node, x) if node.integer("channels_last", 0) else x


def _upsample(node: Node) -> Tensor:
    """Resize by whole factors; for the nearest of two elements the lower one."""
    scales = node.constant(node.integers("scales"), DType.FLOAT32)
    attributes = {
        "mode": node.text("mode", "nearest"),
        "coordinate_transformation_mode": node.text("coordinate_transformation_mode", "asymmetric"),
        "nearest_mode": "floor",
    }
    return standard_op(node, "Resize", [node.input(0), None, scales], attributes)


_BY_OPERATOR: Final[dict[str, ImportRule]] = {
    "AveragePool": as_standard(*WINDOW_ATTRIBUTES),
    "Conv": fused_conv,
    "GlobalAveragePool": as_standard(),
    "GlobalMaxPool": as_standard(),
    "MaxPool": as_standard("storage_order", *WINDOW_ATTRIBUTES),
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _upsample,
}

RULES: Final = {(_DOMAIN, op_type): rule for op_type, rule in _BY_OPERATOR.items()}
