"""The pass that lets integer products finish their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from popc.ir import Op, OrderedPair, Recompute, Tensor, TensorType
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.fuse_byte_epilogues import FuseByteEpilogues
from popc_runtime.format import Array, DType
from tests.support.oracles import run_graph
from tests.transforms.building import Builder

_X = TensorType(DType.UINT8, (2, 6, 8))
_CHANNELS = 6


class _Builder(Builder):
    """A graph with inputs ``x``, bytes, and ``r``, floats like a product of them."""

    def __init__(self) -> None:
        super().__init__(_X)
        self.r = self.graph.add_input("r", TensorType(DType.FLOAT32, (2, 6, 6)))

    def product(self) -> Tensor:
        """[2, 6, 6]: all but the batch differ in what they stand for, not in size."""
        weights = self.constant(np.arange(-24, 24).reshape(8, 6), DType.INT8)
        zero = self.constant(100, DType.UINT8)
        return self.emit("MatMulInteger", [self.x, weights, zero, None], dtype="float32")

    def convolution(self) -> Tensor:
        """[2, 6, 6], likewise."""
        weights = self.constant(np.arange(-54, 54).reshape(6, 6, 3), DType.INT8)
        zero, bias = self.constant(100, DType.UINT8), self.constant(range(6), DType.INT32)
        attributes: dict[str, Any] = {"strides": (1,), "pads": (0, 0), "dilations": (1,)}
        inputs = [self.x, weights, zero, None, bias]
        return self.emit("ConvInteger", inputs, dtype="float32", group=1, **attributes)

    def channels(self, *shape: int) -> Tensor:
        return self.constant(np.linspace(0.01, 0.02, _CHANNELS).reshape(shape or -1))

    def quantized(self, x: Tensor, scale: Any = 0.03) -> Tensor:
        parameters = [self.constant(scale), self.constant(77, DType.UINT8)]
        return self.emit("QuantizeLinear", [x, *parameters], axis=1, dtype="uint8")


def _everything(b: _Builder) -> Tensor:
    y = b.emit("Mul", [b.product(), b.channels()])
    y = b.emit("FakeQuantize", [y], scale=0.05, low=-128.0, high=127.0)
    y = b.emit("Add", [b.channels(), y])
    y = b.emit("Add", [y, b.r])
    return b.quantized(b.emit("LeakyRelu", [y], alpha=0.5))


def _convolution(b: _Builder) -> Tensor:
    y = b.emit("Mul", [b.convolution(), b.channels(6, 1)])
    y = b.emit("Add", [y, b.channels(1, 6, 1)])
    return b.quantized(b.emit("Relu", [y]))


def _requantized(b: _Builder) -> Tensor:
    operands = [b.convolution(), b.channels(6, 1), b.constant(100, DType.UINT8)]
    return b.emit("Requantize", operands, dtype="uint8")


def _requantized_by_rows(b: _Builder) -> Tensor:
    operands = [b.product(), b.channels(6, 1), b.constant(100, DType.UINT8)]
    return b.emit("Requantize", operands, dtype="uint8")


def _moved(b: _Builder) -> Tensor:
    y = b.emit("Mul", [b.product(), b.constant([0.01])])
    y = b.emit("Transpose", [b.emit("Reshape", [y], shape=(2, 6, 2, 3))], perm=(0, 2, 1, 3))
    return b.quantized(y)


def _moved_and_multiplied(b: _Builder) -> Tensor:
    y = b.emit("Add", [b.product(), b.channels()])
    y = b.emit("Transpose", [b.emit("Reshape", [y], shape=(2, 6, 2, 3))], perm=(0, 2, 1, 3))
    return b.quantized(b.emit("Mul", [b.constant([0.125]), y]))


def _run_time_scale(b: _Builder) -> Tensor:
    scale = b.emit("ReduceMax", [b.r], axes=(0, 1, 2), keepdims=0)
    return b.emit("Mul", [b.product(), scale])


def _rounded_behind_the_bias(b: _Builder) -> Tensor:
    y = b.emit("Add", [b.product(), b.channels()])
    return b.emit("FakeQuantize", [y], scale=0.05, low=-128.0, high=127.0)


def _scale_along_the_last_axis(b: _Builder) -> Tensor:
    return b.emit("Mul", [b.convolution(), b.channels()])


def _scale_behind_the_bias(b: _Builder) -> Tensor:
    return b.emit("Mul", [b.emit("Add", [b.product(), b.channels()]), b.channels()])


def _several_scales(b: _Builder) -> Tensor:
    zeros = b.constant(range(6), DType.UINT8)
    operands = [b.product(), b.channels(), zeros]
    return b.emit("QuantizeLinear", operands, axis=2, dtype="uint8")


def _read_twice(b: _Builder) -> Tensor:
    y = b.product()
    return b.emit("Mul", [y, y])


def _read_by_two(b: _Builder) -> Tensor:
    y = b.product()
    scaled = [b.emit("Mul", [y, b.constant(value)]) for value in (0.5, 0.25)]
    return b.emit("Add", scaled)


def _output_itself(b: _Builder) -> Tensor:
    y = b.product()
    b.graph.add_output("sums", y)
    return b.emit("Mul", [y, b.constant(0.5)])


@pytest.mark.parametrize(
    ("make", "op_types"),
    [
        (_everything, ["MatMulInteger"]),
        (_convolution, ["ConvInteger"]),
        (_requantized, ["ConvInteger"]),
        (_requantized_by_rows, ["MatMulInteger", "Requantize"]),
        (_moved, ["MatMulInteger", "Reshape", "Transpose"]),
        (_moved_and_multiplied, ["MatMulInteger", "Reshape", "Transpose"]),
        (_run_time_scale, ["ReduceMax", "MatMulInteger"]),
        (_rounded_behind_the_bias, ["MatMulInteger"]),
        (_scale_along_the_last_axis, ["ConvInteger", "Mul"]),
        (_scale_behind_the_bias, ["MatMulInteger", "Mul"]),
        (_several_scales, ["MatMulInteger", "QuantizeLinear"]),
        (_read_twice, ["MatMulInteger", "Mul"]),
        (_read_by_two, ["MatMulInteger", "Mul", "Mul", "Add"]),
        (_output_itself, ["MatMulInteger", "Mul"]),
    ],
)
def test_same_result_with_fewer_ops(
    make: Callable[[_Builder], Tensor], op_types: list[str]
) -> None:
    builder = _Builder()
    builder.graph.add_output("y", make(builder))
    random = np.random.default_rng(0)
    r: Array = random.normal(size=(2, 6, 6)).astype(np.float32)
    feeds = {"x": random.integers(0, 255, _X.shape, np.uint8), "r": r}
    before = run_graph(builder.graph, feeds)
    run_to_fixed_point([FuseByteEpilogues(), DeadCode()], builder.graph, check=True)
    assert [op.op_type for op in builder.graph.topological()] == op_types
    after = run_graph(builder.graph, feeds)
    for one, other in zip(after, before, strict=True):
        np.testing.assert_array_equal(one, other)


def _placed(tensor: Tensor, **settings: Any) -> Tensor:
    op = tensor.producer
    assert op is not None
    op.settings = replace(op.settings, **settings)
    return tensor


def test_settings_are_those_of_all_ops() -> None:
    b = _Builder()
    y = _placed(b.product(), origin="product", location="sums")
    y = _placed(b.emit("Transpose", [y], perm=(0, 2, 1)), origin="move", location="moved")
    y = _placed(b.emit("Mul", [y, b.constant(0.5)]), location="multiplied")
    y = _placed(b.quantized(y), location="bytes", recompute=Recompute.RECOMPUTE)
    b.graph.add_output("y", y)
    run_to_fixed_point([FuseByteEpilogues(), DeadCode()], b.graph, check=True)
    product, move = b.graph.topological()
    assert (product.settings.origin, product.settings.location) == ("product", "multiplied")
    assert (move.settings.origin, move.settings.location) == ("move", "bytes")
    assert move.settings.recompute is Recompute.RECOMPUTE


def _ordered() -> tuple[_Builder, Tensor, Op, Op]:
    """A product that waits for one op, while another one waits for the product."""
    b = _Builder()
    first, second = (b.emit("Neg", [b.r]).producer for _ in range(2))
    product = b.product()
    assert first is not None
    assert second is not None
    assert product.producer is not None
    b.graph.ordering.add(OrderedPair(first, product.producer))
    b.graph.ordering.add(OrderedPair(product.producer, second))
    for name, op in (("first", first), ("second", second)):
        b.graph.add_output(name, op.output)
    return b, product, first, second


@pytest.mark.parametrize("moved", [False, True])
def test_order_of_products_remains(*, moved: bool) -> None:
    b, product, first, second = _ordered()
    y = b.emit("Mul", [product, b.constant(0.5)])
    if moved:
        y = b.emit("Transpose", [y], perm=(0, 2, 1))
    b.graph.add_output("y", b.quantized(y))
    run_to_fixed_point([FuseByteEpilogues(), DeadCode()], b.graph, check=True)
    (fused,) = (op for op in b.graph.topological() if op.op_type == "MatMulInteger")
    pairs = {(pair.first, pair.second) for pair in b.graph.ordering}
    assert pairs == {(first, fused), (fused, second)}


def test_a_product_that_runs_before_an_addend_stays_before_it() -> None:
    b, product, _, second = _ordered()
    b.graph.add_output("y", b.emit("Add", [product, second.output]))
    run_to_fixed_point([FuseByteEpilogues(), DeadCode()], b.graph, check=True)
    types = [op.op_type for op in b.graph.topological()]
    assert sorted(types) == ["Add", "MatMulInteger", "Neg", "Neg"]
