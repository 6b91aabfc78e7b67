"""Models for reports: with hostile names, and with many ops."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

__all__ = ["HOSTILE", "chain", "hostile_model"]

HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'


def hostile_model() -> onnx.ModelProto:
    """Every name is an attempt to get code into a page."""
    return chain(6, HOSTILE)


def chain(length: int, prefix: str = "block") -> onnx.ModelProto:
    """``length`` elementwise ops in a row, over a tensor of 4,096 elements."""
    names = ["x", *(f"{prefix}.{index}" for index in range(length - 1)), "y"]
    kinds = ("Relu", "Tanh", "Sigmoid", "Exp")
    nodes = [
        helper.make_node(
            kinds[index % len(kinds)], [names[index]], [names[index + 1]], name=names[index + 1]
        )
        for index in range(length)
    ]
    graph = helper.make_graph(
        nodes,
        prefix,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])],
        doc_string=prefix,
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
        producer_name=prefix,
    )
