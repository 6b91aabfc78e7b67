"""The pass that keeps quantised models in floating point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popc.ir import Tensor, TensorType
from popc.ops.build import build
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.fuse_quantization import FuseQuantization
from popc_runtime.format import Array, DType
from tests.support.oracles import run_graph
from tests.transforms.building import Builder

_X = TensorType(DType.FLOAT32, (2, 3, 40))


class _Builder(Builder):
    """A graph with one input ``x``."""

    def __init__(self) -> None:
        super().__init__(_X)

    def round_trip(self, x: Tensor, scale: Any, zero: Any, restored: Any = None) -> Tensor:
        """Quantise and dequantise; ``restored`` is the scale of the latter."""
        parameters = [self.constant(scale), self.constant(zero, DType.UINT8)]
        q = self.emit("QuantizeLinear", [x, *parameters], axis=1, dtype="uint8")
        other = [self.constant(scale if restored is None else restored), parameters[1]]
        return self.emit("DequantizeLinear", [q, *other], axis=1, dtype="float32")


def _single(b: _Builder) -> Tensor:
    return b.round_trip(b.x, 0.03, 77)


def _moved(b: _Builder) -> Tensor:
    first = b.round_trip(b.x, 0.03, 77)
    turned = b.emit("Transpose", [first], perm=(0, 2, 1))
    flat = b.emit("Reshape", [turned], shape=(2, 120))
    return b.round_trip(flat, 0.03, 77)


def _rescaled(b: _Builder) -> Tensor:
    return b.round_trip(b.round_trip(b.x, 0.03, 77), 0.05, 77)


def _other_scale(b: _Builder) -> Tensor:
    return b.round_trip(b.x, 0.03, 77, restored=0.04)


def _per_axis(b: _Builder) -> Tensor:
    return b.round_trip(b.x, [0.03, 0.02, 0.01], [3, 2, 1])


def _integers_are_read(b: _Builder) -> Tensor:
    y = b.round_trip(b.x, 0.03, 77)
    assert y.producer is not None
    b.graph.add_output("q", y.producer.operand(0))
    return y


def _integer_product(b: _Builder) -> Tensor:
    q, scale, zero = build(b.graph, "DynamicQuantizeLinear", [b.x]).outputs
    weights = b.constant(np.arange(-100, 100).reshape(40, 5), DType.INT8)
    product = b.emit("MatMulInteger", [q, weights, zero, None], dtype="int32")
    return b.emit("Mul", [b.emit("Cast", [product], to="float32"), scale])


@pytest.mark.parametrize(
    ("make", "op_types"),
    [
        (_single, ["FakeQuantize"]),
        (_moved, ["FakeQuantize", "Transpose", "Reshape"]),
        (_rescaled, ["FakeQuantize", "FakeQuantize"]),
        (_other_scale, ["QuantizeLinear", "DequantizeLinear"]),
        (_per_axis, ["QuantizeLinear", "DequantizeLinear"]),
        (_integers_are_read, ["QuantizeLinear", "FakeQuantize"]),
        (_integer_product, ["DynamicQuantizeLinear", "MatMulInteger", "Mul"]),
    ],
)
def test_same_result_with_fewer_ops(
    make: Callable[[_Builder], Tensor], op_types: list[str]
) -> None:
    builder = _Builder()
    builder.graph.add_output("y", make(builder))
    x: Array = (np.random.default_rng(0).normal(size=_X.shape) * 3).astype(np.float32)
    before = run_graph(builder.graph, {"x": x})
    run_to_fixed_point([FuseQuantization(), DeadCode()], builder.graph, check=True)
    assert [op.op_type for op in builder.graph.topological()] == op_types
    for result, expected in zip(run_graph(builder.graph, {"x": x}), before, strict=True):
        np.testing.assert_array_equal(result, expected)
