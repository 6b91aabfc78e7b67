"""Training through quantising and dequantising, as PyTorch trains with fake quantisation."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc.autodiff import differentiate
from popc.ir import Graph, TensorType
from popc.ops.build import build
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from tests.support.oracles import run_graph
from tests.support.recorded import Answers, Pytorch

_RNG: Final = np.random.default_rng(9)
_X: Final = _RNG.normal(size=(4, 6)).astype(np.float32) * 2
_WEIGHTS: Final = _RNG.normal(size=(4, 6)).astype(np.float32)


def _pair(
    x: Array, scale: Array, zero: Array, attributes: dict[str, Attribute]
) -> tuple[Array, Array, Array]:
    """The result of quantising and dequantising, and the gradients of operand and scale."""
    graph = Graph("pair")
    operand = graph.add_input("x", TensorType(DType.of(x.dtype), x.shape))
    factor = graph.add_input("s", TensorType(DType.FLOAT32, scale.shape))
    offset = graph.add_constant("z", TensorType(DType.of(zero.dtype), zero.shape), zero)
    to = {**attributes, "dtype": DType.of(zero.dtype).value}
    integers = build(graph, "QuantizeLinear", [operand, factor, offset], to).output
    to = {**attributes, "dtype": operand.type.dtype.value}
    result = build(graph, "DequantizeLinear", [integers, factor, offset], to).output
    weights = _WEIGHTS.reshape(x.shape).astype(x.dtype)
    seed = graph.add_constant("g", result.type, weights)
    found = differentiate(graph, {result: seed}, [operand, factor])
    graph.outputs = [result, found[operand], found[factor]]
    y, of_x, of_scale = run_graph(graph, {"x": x, "s": scale})
    return y, of_x, of_scale


def _learnable(x: Array, scale: Array, zero: Array, axis: int | None) -> Answers:
    import torch

    operand, factor = (torch.from_numpy(a.copy()).requires_grad_() for a in (x, scale))
    offset = torch.from_numpy(zero.astype(np.float32))
    limits = np.iinfo(zero.dtype)
    ends: Any = (int(limits.min), int(limits.max), 1.0)
    if axis is None:
        fake: Any = torch._fake_quantize_learnable_per_tensor_affine
        y = fake(operand, factor, offset, *ends)
    else:
        fake = torch._fake_quantize_learnable_per_channel_affine
        y = fake(operand, factor, offset, axis, *ends)
    (y * torch.from_numpy(_WEIGHTS)).sum().backward()
    assert operand.grad is not None
    assert factor.grad is not None
    return {"y": y.detach().numpy(), "x": operand.grad.numpy(), "scale": factor.grad.numpy()}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_one_scale(dtype: Any, pytorch: Pytorch) -> None:
    scale, zero = np.array([0.02], np.float32), np.array([3], dtype)
    actual = _pair(_X, scale, zero, {"axis": 0, "block_size": 0})
    expected = pytorch(lambda: _learnable(_X, scale, zero, None))
    for mine, theirs in zip(actual, expected.values(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_of_an_axis(axis: int, pytorch: Pytorch) -> None:
    count = _X.shape[axis]
    scale = np.linspace(0.01, 0.05, count, dtype=np.float32)
    zero = np.arange(count, dtype=np.int8)
    actual = _pair(_X, scale, zero, {"axis": axis, "block_size": 0})
    expected = pytorch(lambda: _learnable(_X, scale, zero, axis))
    for mine, theirs in zip(actual, expected.values(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_scales_of_blocks() -> None:
    """Blocks of whole length are the rows of another shape."""
    scale = np.linspace(0.01, 0.05, 8, dtype=np.float32)
    zero = np.arange(8, dtype=np.int8)
    rows = _pair(_X.reshape(8, 3), scale, zero, {"axis": 0, "block_size": 0})
    blocks = _pair(_X, scale.reshape(4, 2), zero.reshape(4, 2), {"axis": 1, "block_size": 3})
    for one, other in zip(rows, blocks, strict=True):
        np.testing.assert_allclose(one.reshape(-1), other.reshape(-1), rtol=1e-5)


def test_a_shorter_last_block() -> None:
    scale = np.linspace(0.01, 0.05, 8, dtype=np.float32).reshape(4, 2)
    zero = np.zeros((4, 2), np.int8)
    longer = np.repeat(scale, 4, axis=1)[:, :6]
    blocks = _pair(_X, scale, zero, {"axis": 1, "block_size": 4})
    singles = _pair(_X, longer, np.zeros((4, 6), np.int8), {"axis": 1, "block_size": 1})
    np.testing.assert_allclose(blocks[1], singles[1])
    sums = np.stack([singles[2][:, :4].sum(1), singles[2][:, 4:].sum(1)], axis=1)
    np.testing.assert_allclose(blocks[2], sums, rtol=1e-5, atol=1e-4)


def test_half_precision() -> None:
    scale, zero = np.array(0.02, np.float32), np.array(0, np.int8)
    wide = _pair(_X, scale, zero, {"axis": 0, "block_size": 0})
    narrow = _pair(_X.astype(np.float16), scale, zero, {"axis": 0, "block_size": 0})
    assert narrow[1].dtype == np.float16
    np.testing.assert_allclose(narrow[1], wide[1], rtol=1e-2)


def test_a_scale_found_at_run_time_is_refused() -> None:
    graph = Graph("dynamic")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (3,)))
    y, scale, zero = build(graph, "DynamicQuantizeLinear", [x]).outputs
    result = build(graph, "DequantizeLinear", [y, scale, zero], {"dtype": "float32"}).output
    seed = graph.add_constant("g", result.type, np.ones(3, np.float32))
    with pytest.raises(ModelError, match=r"DynamicQuantizeLinear \(rounds to integers\)"):
        differentiate(graph, {result: seed}, [x])


def test_integers_that_others_read_stop_the_gradient() -> None:
    graph = Graph("moved")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (3,)))
    scale = graph.add_constant("s", TensorType(DType.FLOAT32, ()), np.array(0.1, np.float32))
    y = build(graph, "QuantizeLinear", [x, scale], {"dtype": "int8", "axis": 0}).output
    moved = build(graph, "Reshape", [y], {"shape": (3, 1)}).output
    attributes: dict[str, Attribute] = {"dtype": "float32", "axis": 0}
    result = build(graph, "DequantizeLinear", [moved, scale], attributes).output
    seed = graph.add_constant("g", result.type, np.ones((3, 1), np.float32))
    assert differentiate(graph, {result: seed}, [x]) == {}


def test_rounding_to_bytes_passes_gradients() -> None:
    """The gradients of a product of bytes are those of the product of floats."""
    packed = _RNG.integers(0, 256, (5, 2, 8), dtype=np.uint8)
    scales = _RNG.uniform(0.1, 0.2, (5, 2)).astype(np.float32)
    found = []
    for rounded in (0, 1):
        graph = Graph("product")
        a, scale = (
            graph.add_input(name, TensorType(DType.FLOAT32, shape))
            for name, shape in (("a", (4, 32)), ("s", scales.shape))
        )
        numbers = graph.add_constant("w", TensorType(DType.UINT8, packed.shape), packed)
        attributes: dict[str, Attribute] = {"K": 32, "bits": 4, "block_size": 16}
        attributes["rounded"] = rounded
        result = build(graph, "MatMulNBits", [a, numbers, scale], attributes).output
        seed = graph.add_constant("g", result.type, np.ones(result.type.shape, np.float32))
        gradients = differentiate(graph, {result: seed}, [a, scale])
        graph.outputs = [gradients[a], gradients[scale]]
        inputs = {"a": np.tile(_X, (1, 6))[:, :32].copy(), "s": scales}
        found.append(run_graph(graph, inputs))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
