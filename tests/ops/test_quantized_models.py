"""Whole models as quantisers and optimisers write them, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from popc_runtime.format import Array
from tests.support.models import executable
from tests.support.oracles import run_model, run_onnxruntime

quantization = pytest.importorskip("onnxruntime.quantization")


def _floats(shape: tuple[int, ...], seed: int, spread: float = 1.0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(np.float32)


def _model(
    nodes: list[onnx.NodeProto], x_shape: tuple[int, ...], weights: dict[str, Array]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x_shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _perceptron() -> onnx.ModelProto:
    """Three layers, as MatMul and as Gemm."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["a"], name="first"),
        node("Add", ["a", "b0"], ["b"], name="bias"),
        node("Relu", ["b"], ["c"], name="relu"),
        node("Gemm", ["c", "w1", "b1"], ["d"], name="second", transB=1),
        node("Tanh", ["d"], ["e"], name="tanh"),
        node("MatMul", ["e", "w2"], ["y"], name="third"),
    ]
    weights = {
        "w0": _floats((20, 64), 1, 0.2),
        "b0": _floats((64,), 2, 0.2),
        "w1": _floats((32, 64), 3, 0.1),
        "b1": _floats((32,), 4, 0.2),
        "w2": _floats((32, 10), 5, 0.3),
    }
    return _model(nodes, (4, 20), weights)


def _convolutional() -> onnx.ModelProto:
    """Plain, depthwise and pointwise convolutions, a sum, pooling."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], name="stem", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"], name="relu0"),
        node("Conv", ["b", "w1", "b1"], ["c"], name="depthwise", group=8, pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["d"], name="relu1"),
        node("Conv", ["d", "w2"], ["e"], name="pointwise"),
        node("Add", ["b", "e"], ["f"], name="sum"),
        node("MaxPool", ["f"], ["g"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["g"], ["h"], name="mean"),
        node("Flatten", ["h"], ["i"], name="flat"),
        node("Gemm", ["i", "w3", "b3"], ["y"], name="head", transB=1),
    ]
    weights = {
        "w0": _floats((8, 3, 3, 3), 1, 0.3),
        "b0": _floats((8,), 2, 0.2),
        "w1": _floats((8, 1, 3, 3), 3, 0.4),
        "b1": _floats((8,), 4, 0.2),
        "w2": _floats((8, 8, 1, 1), 5, 0.4),
        "w3": _floats((10, 8), 6, 0.5),
        "b3": _floats((10,), 7, 0.2),
    }
    return _model(nodes, (2, 3, 16, 16), weights)


class _Reader:
    """Eight random batches, in the protocol of CalibrationDataReader."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._batches: Iterator[dict[str, Array]] = iter(
            [{"x": _floats(shape, seed)} for seed in range(20, 28)]
        )

    def get_next(self) -> dict[str, Array] | None:
        """The next batch; ``None`` after the last."""
        return next(self._batches, None)


def _statically(form: str, **options: Any) -> Callable[[Path, Path, tuple[int, ...]], None]:
    def quantize(source: Path, target: Path, shape: tuple[int, ...]) -> None:
        quantization.quantize_static(
            source,
            target,
            _Reader(shape),
            quant_format=quantization.QuantFormat[form],
            **options,
        )

    return quantize


def _dynamically(source: Path, target: Path, shape: tuple[int, ...]) -> None:
    del shape
    quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType.QUInt8)


_QUANTIZERS = {
    "qdq": _statically("QDQ"),
    "qdq-per-channel": _statically(
        "QDQ", per_channel=True, activation_type=quantization.QuantType.QInt8
    ),
    "qoperator": _statically("QOperator", reduce_range=True),
    "qoperator-per-channel": _statically("QOperator", per_channel=True, reduce_range=True),
    "dynamic": _dynamically,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("build", [_perceptron, _convolutional], ids=["mlp", "cnn"])
@pytest.mark.parametrize("quantizer", _QUANTIZERS)
def test_quantized(build: Callable[[], onnx.ModelProto], quantizer: str, tmp_path: Path) -> None:
    model = build()
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    onnx.save(model, tmp_path / "float.onnx")
    _QUANTIZERS[quantizer](tmp_path / "float.onnx", tmp_path / "quantized.onnx", shape)
    quantized = onnx.load(tmp_path / "quantized.onnx")
    feeds = {"x": _floats(shape, 50)}
    (expected,) = run_onnxruntime(quantized, feeds)
    (actual,) = run_model(quantized, feeds)
    step = np.ptp(expected) / 255  # a tie that rounds the other way moves a result by one step
    np.testing.assert_allclose(actual, expected, atol=2.1 * step)
    assert np.mean(np.abs(actual - expected)) < 0.1 * step
    (floating,) = run_model(model, feeds)
    np.testing.assert_allclose(actual, floating, atol=40 * step)
    with executable(quantized, tmp_path) as program:
        compiled = program.run(feeds)["y"]
    np.testing.assert_allclose(compiled, actual, atol=2.1 * step)


def _transformer_block() -> onnx.ModelProto:
    """A BERT layer as the fusions of onnxruntime leave it."""
    width, heads = 16, 2
    node = helper.make_node
    contrib = {"domain": "com.microsoft"}
    nodes = [
        node("EmbedLayerNormalization",
             ["ids", "", "words", "places", "", "gamma0", "beta0", "mask"],
             ["embedded", "lengths"], mask_index_type=1, **contrib),
        node("Attention", ["embedded", "w_qkv", "b_qkv", "lengths"], ["attended"],
             num_heads=heads, **contrib),
        node("MatMul", ["attended", "w_out"], ["projected"]),
        node("SkipLayerNormalization", ["projected", "embedded", "gamma1", "beta1", "b_out"],
             ["middle", "", "", "sum"], **contrib),
        node("FusedMatMul", ["middle", "w_up"], ["up"], alpha=0.5, **contrib),
        node("BiasGelu", ["up", "b_up"], ["active"], **contrib),
        node("MatMul", ["active", "w_down"], ["down"]),
        node("SkipLayerNormalization", ["down", "middle", "gamma2", "beta2"], ["y"], **contrib),
        node("FastGelu", ["sum", "b_out"], ["z"], **contrib),
    ]  # fmt: skip
    shapes = {
        "words": (30, width), "places": (12, width), "w_qkv": (width, 3 * width),
        "b_qkv": (3 * width,), "w_out": (width, width), "b_out": (width,),
        "w_up": (width, 4 * width), "b_up": (4 * width,), "w_down": (4 * width, width),
        **{f"{name}{k}": (width,) for name in ("gamma", "beta") for k in range(3)},
    }  # fmt: skip
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, (3, 7)) for n in ("ids", "mask")]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yz"]
    weights = [
        numpy_helper.from_array(_floats(shape, seed, 0.5), name)
        for seed, (name, shape) in enumerate(shapes.items())
    ]
    graph = helper.make_graph(nodes, "block", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_optimised_transformer_block() -> None:
    model = _transformer_block()
    lengths = np.array([[7], [4], [1]])
    feeds = {
        "ids": np.random.default_rng(0).integers(0, 30, (3, 7), np.int32),
        "mask": (np.arange(7) < lengths).astype(np.int32),
    }
    for actual, expected in zip(
        run_model(model, feeds), run_onnxruntime(model, feeds), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
