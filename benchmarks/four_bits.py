"""Weights of products in four bits: blocks of 32 along the sum, each with a factor.

A weight is (q - 8) * factor with q from 0 to 15, and factors are numbers of float16.  That is what
MatMulNBits of onnxruntime and Q4_0 of llama.cpp both store, in different orders.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from popc_runtime.format import Array

__all__ = ["BLOCK", "blocks_of", "in_four_bits"]

BLOCK = 32
_MIDDLE = 8


def blocks_of(weights: Array) -> tuple[Array, Array]:
    """The numbers q [N, K/32, 32] and the factors [N, K/32] of ``weights`` [K, N]."""
    blocks = weights.T.reshape(weights.shape[1], -1, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
    factors = (largest / -_MIDDLE).astype(np.float16).astype(np.float32)
    inverse = np.divide(1, factors, out=np.zeros_like(factors), where=factors != 0)
    numbers = np.clip(np.rint(blocks * inverse) + _MIDDLE, 0, 2 * _MIDDLE - 1)
    return numbers.astype(np.uint8), factors[..., 0]


def in_four_bits(model: onnx.ModelProto, accuracy_level: int) -> onnx.ModelProto:
    """A copy of ``model`` whose products with constants are MatMulNBits.

    ``accuracy_level`` is 0 for activations as they are, 4 for those that may be rounded to 8 bits.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    weights = {item.name: item for item in copy.graph.initializer}
    for node in copy.graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            tensor = weights[node.input[1]]
            rows, columns = tensor.dims
            numbers, factors = blocks_of(numpy_helper.to_array(tensor))
            packed = numbers[..., ::2] | numbers[..., 1::2] << 4
            tensor.CopyFrom(numpy_helper.from_array(packed, tensor.name))
            name = f"{tensor.name}.factors"
            copy.graph.initializer.append(numpy_helper.from_array(factors, name))
            node.CopyFrom(
                helper.make_node(
                    "MatMulNBits", [*node.input, name], node.output, domain="com.microsoft",
                    K=rows, N=columns, bits=4, block_size=BLOCK, accuracy_level=accuracy_level,
                )
            )  # fmt: skip
    copy.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return copy
