"""The pass that finds attention that exporters have written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from popc.ir import Graph, Tensor, TensorType
from popc.ops.build import build
from popc.transforms.recognise_attention import RecogniseAttention
from popc_runtime.format import Array, DType
from tests.support.oracles import run_graph

_SHAPES = {"q": (2, 3, 4, 5), "k": (2, 3, 6, 5), "v": (2, 3, 6, 7), "mask": (2, 1, 1, 6)}
_FEEDS = {
    name: np.random.default_rng(number).standard_normal(shape).astype(np.float32)
    for number, (name, shape) in enumerate(_SHAPES.items())
}
_SCALE = 0.37


class _Builder:
    """A graph with inputs q, k, v and mask."""

    def __init__(self, dtype: DType = DType.FLOAT32) -> None:
        self.graph = Graph("main")
        self.dtype = dtype
        self.inputs = {
            name: self.graph.add_input(name, TensorType(dtype, shape))
            for name, shape in _SHAPES.items()
        }

    def emit(self, op_type: str, *inputs: Tensor, **attributes: Any) -> Tensor:
        return build(self.graph, op_type, list(inputs), attributes).output

    def number(self, value: float) -> Tensor:
        data = np.asarray(value, self.dtype.storage)
        return self.graph.add_constant("number", TensorType(self.dtype, ()), data)

    def keys(self) -> Tensor:
        return self.emit("Transpose", self.inputs["k"], perm=(0, 1, 3, 2))

    def scores(self) -> Tensor:
        return self.emit("MatMul", self.inputs["q"], self.keys())

    def scaled(self) -> Tensor:
        return self.emit("Mul", self.scores(), self.number(_SCALE))

    def weighted(self, scores: Tensor, axis: int = 3) -> Tensor:
        return self.emit("MatMul", self.emit("Softmax", scores, axis=axis), self.inputs["v"])


def _product_scaled(b: _Builder) -> Tensor:
    return b.weighted(b.scaled())


def _product_divided(b: _Builder) -> Tensor:
    return b.weighted(b.emit("Div", b.scores(), b.number(1 / _SCALE)))


def _both_operands_scaled(b: _Builder) -> Tensor:
    root = b.number(_SCALE**0.5)
    q, k = b.emit("Mul", root, b.inputs["q"]), b.emit("Mul", b.keys(), root)
    return b.weighted(b.emit("MatMul", q, k))


def _masked(b: _Builder) -> Tensor:
    return b.weighted(b.emit("Add", b.scaled(), b.inputs["mask"]))


def _mask_first(b: _Builder) -> Tensor:
    return b.weighted(b.emit("Add", b.inputs["mask"], b.scaled()))


def _heads_last(b: _Builder) -> Tensor:
    return b.emit("Transpose", _masked(b), perm=(0, 2, 1, 3))


def _expected(feeds: Mapping[str, Array], *, masked: bool) -> Array:
    """In float64, independently of the kernels."""
    q, k, v, mask = (feeds[name].astype(np.float64) for name in _SHAPES)
    scores = _SCALE * q @ k.swapaxes(2, 3) + (mask if masked else 0)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = powers / powers.sum(-1, keepdims=True) @ v
    return result


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(DType.FLOAT32, 1e-4), (DType.FLOAT16, 5e-3)], ids=["float32", "float16"]
)
@pytest.mark.parametrize(
    "form",
    [
        _product_scaled,
        _product_divided,
        _both_operands_scaled,
        _masked,
        _mask_first,
        _heads_last,
    ],
)
def test_written_out_attention_becomes_one_op(
    form: Callable[[_Builder], Tensor], dtype: DType, rtol: float
) -> None:
    b = _Builder(dtype)
    b.graph.add_output("y", form(b))
    assert RecogniseAttention()(b.graph, check=True).changes == 1
    producer = b.graph.outputs[0].producer
    assert producer is not None
    assert producer.op_type == "Attention"
    expected = _expected(_FEEDS, masked=form in (_masked, _mask_first, _heads_last))
    if form is _heads_last:
        expected = expected.transpose(0, 2, 1, 3)
    feeds = {name: array.astype(dtype.storage) for name, array in _FEEDS.items()}
    np.testing.assert_allclose(run_graph(b.graph, feeds)[0], expected, rtol=rtol, atol=rtol / 10)


def test_a_mask_of_infinities_hides_keys() -> None:
    b = _Builder()
    b.graph.add_output("y", _masked(b))
    hidden = np.where(np.arange(6) < 4, 0, -np.inf).astype(np.float32)
    feeds = {**_FEEDS, "mask": np.broadcast_to(hidden, _SHAPES["mask"])}
    (before,) = run_graph(b.graph, feeds)
    RecogniseAttention()(b.graph, check=True)
    np.testing.assert_allclose(run_graph(b.graph, feeds)[0], before, rtol=1e-5, atol=1e-6)


def _scores_used_twice(b: _Builder) -> Tensor:
    scores = b.scaled()
    b.graph.add_output("scores", scores)
    return b.weighted(scores)


def _weights_used_twice(b: _Builder) -> Tensor:
    weights = b.emit("Softmax", b.scaled(), axis=3)
    b.graph.add_output("weights", weights)
    return b.emit("MatMul", weights, b.inputs["v"])


def _other_axis(b: _Builder) -> Tensor:
    return b.weighted(b.scaled(), axis=2)


def _no_product(b: _Builder) -> Tensor:
    return b.weighted(b.emit("Expand", b.inputs["mask"], shape=(2, 3, 4, 6)))


def _scaled_after_masking(b: _Builder) -> Tensor:
    return b.weighted(b.emit("Mul", b.emit("Add", b.scores(), b.inputs["mask"]), b.number(2)))


@pytest.mark.parametrize(
    "form",
    [_scores_used_twice, _weights_used_twice, _other_axis, _no_product, _scaled_after_masking],
)
def test_what_is_left_alone(form: Callable[[_Builder], Tensor]) -> None:
    b = _Builder()
    b.graph.add_output("y", form(b))
    assert RecogniseAttention()(b.graph, check=True).changes == 0
