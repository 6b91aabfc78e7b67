"""Pooling and unpooling.  A global pool is a reduction over the spatial axes."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.frontend.rules.onnx.windows import window_attribute_map
from popc.ir import AttributeMap, Tensor
from popc.ops.windows import window_attributes
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _window(node: Node) -> AttributeMap:
    sizes = node.input(0).type.shape[2:]
    kernel = node.integers("kernel_shape")
    if len(kernel) != len(sizes):
        raise ModelError(f"kernel_shape is {list(kernel)} for {len(sizes)} spatial axes")
    attributes = window_attribute_map(node, sizes, kernel)
    # SAME leaves no room for a partial window.  VALID does: the standard's formula for it does not
    # round up, but its shape inference and onnxruntime do.
    same = node.text("auto_pad", "NOTSET").startswith("SAME")
    partial = not same and node.integer("ceil_mode", 0)
    return {**attributes, "kernel_shape": kernel, "ceil_mode": int(partial)}


def _average_pool(node: Node) -> Tensor:
    include = {"count_include_pad": node.integer("count_include_pad", 0)}
    return node.emit("AveragePool", [node.input(0)], {**_window(node), **include})


def _lp_pool(node: Node) -> Tensor:
    p = _exponent(node)
    return node.emit("LpPool", [node.input(0)], {**_window(node), "p": p})


def _exponent(node: Node) -> int:
    """``p``, which was a float in opset 1."""
    p = node.number("p", 2.0)
    if p != int(p) or p < 1:
        raise ModelError(f"p must be a positive integer, not {p:g}")
    return int(p)


def _max_pool(node: Node) -> list[Tensor]:
    attributes = _window(node)
    if node.wants_output(1):
        attributes |= {"indices": 1, "storage_order": node.integer("storage_order", 0)}
    return node.emit_all("MaxPool", [node.input(0)], attributes)


def _max_unpool(node: Node) -> Tensor:
    """Indices count over the shape that was pooled; a larger output shape adds zeros behind."""
    x = node.input(0)
    sizes, kernel = x.type.shape[2:], node.integers("kernel_shape")
    rank = len(sizes)
    if len(kernel) != rank:
        raise ModelError(f"kernel_shape is {list(kernel)} for {rank} spatial axes")
    attributes = {"strides": node.integers("strides", (1,) * rank)}
    attributes["pads"] = node.integers("pads", (0,) * (2 * rank))
    spatial = window_attributes(attributes, rank).transposed(sizes, kernel, (0,) * rank)
    shape = (*x.type.shape[:2], *spatial)
    result = node.emit("MaxUnpool", [x, node.input(1)], {"shape": shape})
    if node.optional(2) is None:
        return result
    wanted = tuple(int(dim) for dim in node.require_known(2, "the output shape").reshape(-1))
    if len(wanted) != len(shape):
        raise ModelError(f"output_shape {list(wanted)} needs {len(shape)} entries")
    ends = tuple(want - have for want, have in zip(wanted, shape, strict=True))
    if not any(ends):
        return result
    pads = (0,) * len(shape) + ends
    return node.emit("Pad", [result], {"pads": pads, "mode": "constant", "value": 0.0})


def _global(reduction: str, node: Node) -> Tensor:
    x = node.input(0)
    axes = tuple(range(2, x.type.rank))
    return node.emit(reduction, [x], {"axes": axes, "keepdims": 1})


def _global_average_pool(node: Node) -> Tensor:
    return _global("ReduceMean", node)


def _global_max_pool(node: Node) -> Tensor:
    return _global("ReduceMax", node)


def _global_lp_pool(node: Node) -> Tensor:
    p = _exponent(node)
    if p in (1, 2):
        return _global(f"ReduceL{p}", node)
    x = node.input(0)
    axes = tuple(range(2, x.type.rank))
    powers = node.emit("Pow", [node.emit("Abs", [x]), node.constant(float(p), x.type.dtype)])
    total = node.emit("ReduceSum", [powers], {"axes": axes, "keepdims": 1})
    return node.emit("Pow", [total, node.constant(1.0 / p, x.type.dtype)])


RULES: Final = default_domain(
    {
        "AveragePool": _average_pool,
        "GlobalAveragePool": _global_average_pool,
        "GlobalLpPool": _global_lp_pool,
        "GlobalMaxPool": _global_max_pool,
        "LpPool": _lp_pool,
        "MaxPool": _max_pool,
        "MaxUnpool": _max_unpool,
    }
)
