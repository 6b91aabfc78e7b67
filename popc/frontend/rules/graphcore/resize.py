"""Resize as PopART does it where ONNX does otherwise, or says nothing."""

from __future__ import annotations

from math import floor
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.graphcore.operators import graphcore_domain
from popc.frontend.rules.onnx.resize import emit_scaled, mode_attributes
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]

_HALF_PIXEL: Final = "half_pixel"
_PYTORCH: Final = "pytorch"
_PYTORCH_HALF_PIXEL: Final = "pytorch_half_pixel"


def _resize(node: Node) -> Tensor:
    """X [d1, ..., dn], scales [n] -> Y: Resize of ONNX, opset 11, but for two things.

    The nearest element may be found as PyTorch finds it (``nearest_mode="pytorch"``): position
    i / scale, rounded down.  And for ``pytorch_half_pixel`` a result is of length 1 only if the
    product of length and scale is, before it is rounded down.
    """
    x = node.input(0)
    scales = [float(scale) for scale in node.require_known(1, "the output shape").ravel()]
    if len(scales) != x.type.rank:
        raise ModelError(f"{len(scales)} scales for {x.type.rank} dimensions")
    transformation = node.text("coordinate_transformation_mode", _HALF_PIXEL)
    attributes = mode_attributes(node)
    if attributes.get("nearest_mode") == _PYTORCH:
        transformation, attributes = "asymmetric", {"nearest_mode": "floor"}
    common: AttributeMap = {"mode": node.text("mode", "nearest"), **attributes}
    if transformation == _PYTORCH_HALF_PIXEL:
        sizes = zip(x.type.shape, scales, strict=True)
        rounded = [size * scale != 1 and floor(size * scale) == 1 for size, scale in sizes]
        first = [
            scale if is_first else 1.0 for scale, is_first in zip(scales, rounded, strict=True)
        ]
        x = emit_scaled(node, x, first, {"coordinate_transformation_mode": _HALF_PIXEL, **common})
        scales = [
            1.0 if is_first else scale for scale, is_first in zip(scales, rounded, strict=True)
        ]
    return emit_scaled(
        node, x, scales, {"coordinate_transformation_mode": transformation, **common}
    )


RULES: Final = graphcore_domain({"Resize": _resize})
