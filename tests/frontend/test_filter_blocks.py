"""Models that onnxruntime has optimised for one kind of processor: channels in blocks."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc.caching import quick
from popc.frontend import filter_blocks
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import Array
from tests.support.oracles import run_model

_NCHWC: Final = "com.microsoft.nchwc"

# Networks of x [2, 24, 9, 7], for whose channels blocks of 8 and of 16 differ: 24 = 3 * 8.
_NETWORKS: Final = {
    "convolutions": "a = Conv<pads = [1, 1, 1, 1]>(x, wide, bias) b = Relu(a) out = Conv(b, point)",
    "few channels": "a = Conv(few, first) b = Relu(a) out = Conv<group = 24>(b, each)",
    "depthwise": "a = Conv(x, wide) b = Conv<group = 24, strides = [2, 2]>(a, each) out = Tanh(b)",
    "a sum": "a = Conv(x, wide) b = Conv(x, wide, bias) c = Add(a, b) out = LeakyRelu(c)",
    "hard swish": "a = Conv(x, wide) b = HardSwish(a) out = Conv(b, point)",
    "a gate": "a = Conv(x, wide) b = GlobalAveragePool(a) c = Conv(b, point) d = Sigmoid(c) "
    "out = Mul(a, d)",
    "pools": "a = Conv(x, wide) b = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(a) "
    "out = AveragePool<kernel_shape = [2, 2], pads = [1, 0, 0, 1]>(b)",
    "a concatenation": "a = Conv(x, wide) b = Conv(a, point) c = Conv(a, point) "
    "d = Concat<axis = 1>(b, c) e = Relu(d) out = Conv(e, joined)",
    "a larger picture": 'a = Conv(x, wide) b = Resize<mode = "nearest", nearest_mode = "floor", '
    'coordinate_transformation_mode = "asymmetric">(a, , scales) out = Conv(b, point)',
    "a smooth picture": 'a = Conv(x, wide) b = Resize<mode = "linear">(a, , scales) '
    "out = Conv(b, point)",
    "channels last": "a = Conv(x, wide) b = Relu(a) out = Transpose<perm = [0, 2, 3, 1]>(b)",
    "from channels last": "t = Transpose<perm = [0, 3, 1, 2]>(last) a = Conv(t, wide) "
    "out = Conv(a, point)",
    "normalised": "a = Conv(x, wide) b = Add(a, a) "
    "out = BatchNormalization<epsilon = 0.001>(b, bias, bias, bias, positive)",
    "scaled": "a = Conv(x, wide) b = Relu(a) out = Mul(b, gain)",
}  # fmt: skip


def _weights() -> dict[str, Array]:
    random = np.random.default_rng(0)
    shapes = {
        "wide": (24, 24, 3, 3), "bias": (24,), "point": (24, 24, 1, 1), "first": (24, 3, 3, 3),
        "each": (24, 1, 3, 3), "joined": (24, 48, 1, 1), "gain": (24, 1, 1),
    }  # fmt: skip
    found = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    positive = np.abs(found["bias"]) + 1
    return {**found, "positive": positive, "scales": np.array([1, 1, 2, 3], np.float32)}


def _network(body: str) -> onnx.ModelProto:
    head = (
        '<ir_version: 8, opset_import: ["" : 17]> network (float[2, 24, 9, 7] x, '
        "float[2, 3, 9, 7] few, float[2, 9, 7, 24] last) => (float[n, c, h, w] out) {"
    )
    model = onnx.parser.parse_model(f"{head}{body}}}")
    used = {name for node in model.graph.node for name in node.input}
    kept = [item for item in model.graph.input if item.name in used]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in _weights().items() if name in used
    )
    return model


def _inputs(model: onnx.ModelProto) -> dict[str, Array]:
    random = np.random.default_rng(1)
    shapes = {
        item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        for item in model.graph.input
    }
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _saved(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """``model`` as onnxruntime saves it for this processor."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return onnx.load(path)


def _run(model: onnx.ModelProto, inputs: dict[str, Array], **options: int) -> Array:
    executable = popc_runtime.load(popc.compile(model, options=options).to_bytes())
    [result] = executable.run(inputs).values()
    return result


@pytest.mark.parametrize("name", _NETWORKS)
def test_saved_by_onnxruntime(tmp_path: Path, name: str) -> None:
    model = _network(_NETWORKS[name])
    saved = _saved(model, tmp_path / "saved.onnx")
    if not any(node.domain == _NCHWC for node in saved.graph.node):
        pytest.skip("onnxruntime has no blocks for this processor")
    inputs = _inputs(model)
    [expected] = run_model(model, inputs)
    result = _run(saved, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


# -- files written by hand, in blocks of either size -----------------------------------------------


def _in_blocks(filters: Array, size: int, *, few: bool = False) -> Array:
    """The elements of ``filters``, one after the other as onnxruntime's blocks have them."""
    count, channels, height, width = filters.shape
    step = 1 if few else size
    order = product(
        range(0, count, size), range(0, channels, step), range(height), range(width), range(step),
        range(size),
    )  # fmt: skip
    elements = [filters[m + i, c + j, y, x] for m, c, y, x, j, i in order]
    return np.array(elements, filters.dtype).reshape(filters.shape)


def _node(op_type: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    domain = _NCHWC if attributes.pop("blocked", True) else ""
    return helper.make_node(op_type, inputs.split(), [output], domain=domain, **attributes)


def _model(nodes: list[onnx.NodeProto], channels: int, **weights: Array) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 5, 4])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "blocks", [x], [out], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_NCHWC, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _filters(*shape: int) -> Array:
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def _convolved(x: Array, filters: Array) -> Array:
    model = _model([_node("Conv", "x w", "out", blocked=False)], x.shape[1], w=filters)
    return run_model(model, {"x": x})[0]


def _one_convolution(filters: Array, size: int) -> onnx.ModelProto:
    nodes = [
        _node("ReorderInput", "x", "b"),
        _node("Conv", "b w", "y"),
        _node("ReorderOutput", "y", "out", channels=filters.shape[0]),
    ]
    return _model(nodes, filters.shape[1], w=_in_blocks(filters, size))


@pytest.mark.parametrize("size", [8, 16])
def test_user_says_how_large_blocks_are(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    filters, x = _filters(32, 16, 3, 2), _filters(1, 16, 5, 4)
    model = _one_convolution(filters, size)
    monkeypatch.setattr(filter_blocks, "variants", list[str])  # a processor without kernels
    with pytest.raises(OptionError, match="nothing in the file tells") as caught:
        popc.compile(model)
    assert "nchwc_block_size=16" in str(caught.value.hint)
    result = _run(model, {"x": x}, nchwc_block_size=size)
    np.testing.assert_allclose(result, _convolved(x, filters), rtol=1e-4, atol=1e-4)


_PROCESSORS: Final = {16: ["x86-64-v4", "x86-64-v3"], 8: ["x86-64-v3"]}


@pytest.mark.parametrize("size", _PROCESSORS)
def test_processor_says_how_large_blocks_are(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file leaves it open, as onnxruntime would read it here; users are told."""
    monkeypatch.setattr(filter_blocks, "variants", lambda: _PROCESSORS[size])
    filters, x = _filters(32, 16, 3, 2), _filters(1, 16, 5, 4)
    model = _one_convolution(filters, size)
    [note] = popc.compile(model).notes
    assert f"blocks of {size} channels" in note
    assert "nchwc_block_size" in note
    np.testing.assert_allclose(_run(model, {"x": x}), _convolved(x, filters), rtol=1e-4, atol=1e-4)


def test_cache_knows_whose_blocks_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that another kind of processor has compiled is another program."""
    model = _one_convolution(_filters(32, 16, 3, 2), 16).SerializeToString()
    found = []
    for size in (16, 8, 16):
        monkeypatch.setattr(filter_blocks, "variants", lambda size=size: _PROCESSORS[size])
        monkeypatch.setattr(quick, "variants", lambda size=size: _PROCESSORS[size])
        found.append(popc.compile(model, cache=tmp_path).to_bytes())
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("channels", [16, 32])
def test_open_sizes_saved_by_onnxruntime(tmp_path: Path, channels: int) -> None:
    """Every number of channels is a multiple of 16, as in ResNet-50."""
    nodes = [_node("Conv", "x w", "y", blocked=False), _node("Relu", "y", "out", blocked=False)]
    model = _model(nodes, channels, w=_filters(32, channels, 3, 2))
    saved = _saved(model, tmp_path / "saved.onnx")
    if not any(node.domain == _NCHWC for node in saved.graph.node):
        pytest.skip("onnxruntime has no blocks for this processor")
    x = {"x": _filters(1, channels, 5, 4)}
    np.testing.assert_allclose(_run(saved, x), run_model(model, x)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [8, 16])
def test_filling_tells_how_large_blocks_are(size: int) -> None:
    """Ten filters fill up two blocks of 8, or one of 16, with zeros, which lie elsewhere."""
    filters, x = _filters(10, 3, 3, 2), _filters(1, 3, 5, 4)
    filled = np.concatenate([filters, np.zeros((6, 3, 3, 2), np.float32)])
    nodes = [_node("Conv", "x w", "y"), _node("ReorderOutput", "y", "out", channels=10)]
    model = _model(nodes, 3, w=_in_blocks(filled, size, few=True))
    result = _run(model, {"x": x})
    np.testing.assert_allclose(result, _convolved(x, filters), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [8, 16])
def test_sum_of_open_sizes(size: int) -> None:
    """Sums whose sizes are open give blocks a dimension; means repeat over the picture."""
    filters, x = _filters(16, 16, 1, 1), _filters(1, 16, 5, 4)
    nodes = [
        _node("ReorderInput", "x", "b"),
        _node("Conv", "b w", "y"),
        _node("GlobalAveragePool", "y", "mean"),
        _node("Reshape", "y split", "y5", blocked=False),
        _node("Reshape", "mean split", "mean5", blocked=False),
        _node("Add", "y5 mean5", "sum5", blocked=False),
        _node("Reshape", "sum5 joined", "sum", blocked=False),
        _node("ReorderOutput", "sum", "out", channels=16),
    ]
    shapes = {"split": np.array([0, 16 // size, 0, 0, size]), "joined": np.array([0, 16, 0, 0])}
    model = _model(nodes, 16, w=_in_blocks(filters, size), **shapes)
    result = _run(model, {"x": x})
    y = _convolved(x, filters)
    np.testing.assert_allclose(result, y + y.mean((2, 3), keepdims=True), rtol=1e-4, atol=1e-4)


def test_wrong_size_is_refused() -> None:
    model = _one_convolution(_filters(24, 16, 1, 1), 8)
    with pytest.raises(OptionError, match="not stored in blocks of 16") as caught:
        popc.compile(model, options={"nchwc_block_size": 16})
    assert "blocks of 8" in str(caught.value.hint)


def test_size_without_blocks_is_refused() -> None:
    model = _network(_NETWORKS["convolutions"])
    with pytest.raises(OptionError, match=r"no operators of com\.microsoft\.nchwc"):
        popc.compile(model, options={"nchwc_block_size": 8})


def test_impossible_blocks_are_refused() -> None:
    model = _one_convolution(_filters(20, 16, 1, 1), 4)
    with pytest.raises(ModelError, match="neither of 8 nor of 16"):
        popc.compile(model)


def test_computed_filters_are_refused() -> None:
    nodes = [_node("Relu", "x", "w", blocked=False), _node("Conv", "x w", "out")]
    with pytest.raises(ModelError, match="no constant of four dimensions"):
        popc.compile(_model(nodes, 16))
