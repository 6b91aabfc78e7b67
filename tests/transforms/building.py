"""Graphs for the tests of passes, an op at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from popc.ir import Graph, Tensor, TensorType
from popc.ops.build import build
from popc_runtime.format import DType

__all__ = ["Builder"]


class Builder:
    """A graph with one input ``x``."""

    def __init__(self, x: TensorType) -> None:
        self.graph = Graph("main")
        self.x = self.graph.add_input("x", x)

    def constant(self, value: Any, dtype: DType = DType.FLOAT32) -> Tensor:
        data = np.asarray(value, dtype.storage)
        return self.graph.add_constant("c", TensorType(dtype, data.shape), data)

    def emit(self, op_type: str, inputs: Sequence[Tensor | None], **attributes: Any) -> Tensor:
        return build(self.graph, op_type, inputs, attributes).output
