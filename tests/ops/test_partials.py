"""Sums of products that are rounded to float16 while they add up, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from tests.support.oracles import run_ir

_RNG = np.random.default_rng(0)


def _random(*shape: int, scale: float = 1) -> Array:
    """Sixteenths: a few products of them add up exactly in float32, in whichever order."""
    return (np.rint(16 * scale * _RNG.standard_normal(shape)) / 16).astype(np.float16)


def _product(a: Array, b: Array) -> Array:
    """The definition: 16 products at a time."""
    shape = np.matmul(a.astype(np.float32), b.astype(np.float32)).shape
    total = np.zeros(shape, np.float16)
    for start in range(0, a.shape[-1], 16):
        part = slice(start, start + 16)
        rows = b[part] if b.ndim == 1 else b[..., part, :]
        term = a[..., part].astype(np.float32) @ rows.astype(np.float32)
        with np.errstate(over="ignore"):
            total = (total.astype(np.float32) + term).astype(np.float16)
    return total


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 40), (40, 7)),
        ((300, 100), (100, 200)),
        ((3, 2, 5, 33), (3, 2, 33, 4)),
        ((3, 2, 5, 33), (33, 4)),
        ((2, 5, 33), (3, 1, 33, 4)),
        ((33,), (33, 4)),
        ((3, 33), (33,)),
        ((3, 0), (0, 4)),
        ((0, 3), (3, 4)),
        ((4, 70), (70, 4)),
    ],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = _random(*left, scale=30), _random(*right)
    (result,) = run_ir("MatMul", [a, b], {"partials": "half"})
    assert np.array_equal(result, _product(a, b))


def test_partial_sums_overflow() -> None:
    """The sum itself would fit."""
    a = np.concatenate([np.full(16, 250), np.full(16, 250), np.full(16, -250)]).astype(np.float16)
    b = np.full((48, 1), 10, np.float16)
    assert run_ir("MatMul", [a, b], {"partials": "float"})[0] == [40000]
    assert run_ir("MatMul", [a, b], {"partials": "half"})[0] == [np.inf]


def test_small_terms_are_lost() -> None:
    a, b = np.ones((1, 4096 + 16), np.float16), np.ones((4096 + 16, 1), np.float16)
    b[16:] = 2.0**-10  # 16 of them are a 64th, half of a unit of 32
    a[0, :16] = 4
    assert run_ir("MatMul", [a, b], {})[0] == [[68]]
    assert run_ir("MatMul", [a, b], {"partials": "half"})[0] == [[64]]


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_gemm(alpha: float) -> None:
    a, b, c = _random(40, 5), _random(7, 40), _random(7)
    given: dict[str, Attribute] = {"alpha": alpha, "beta": 2.0, "transA": 1, "transB": 1}
    (result,) = run_ir("Gemm", [a, b, c], {**given, "partials": "half"})
    expected = alpha * _product(a.T, b.T).astype(np.float32) + 2 * c
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


def _channels(x: Array, w: Array, attributes: dict[str, Attribute], op_type: str) -> Array:
    """The definition, for one group: 16 channels at a time."""
    total: Array | None = None
    for start in range(0, x.shape[1], 16):
        part = slice(start, start + 16)
        weights = w[part] if op_type == "ConvTranspose" else w[:, part]
        arrays = [array.astype(np.float32) for array in (x[:, part], weights)]
        (term,) = run_ir(op_type, arrays, {**attributes, "group": 1})
        total = term if total is None else total.astype(np.float32) + term
        total = total.astype(np.float16)
    assert total is not None
    return total


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_convolutions(op_type: str, group: int) -> None:
    shape = (40, 8 // group, 3, 3) if op_type == "ConvTranspose" else (8, 40 // group, 3, 3)
    x, w, bias = _random(2, 40, 6, 5), _random(*shape), _random(8)
    attributes: dict[str, Attribute] = {"strides": (1, 2), "pads": (1, 1, 1, 1), "group": group}
    parts = []
    for data, weights in zip(np.split(x, group, 1), np.split(w, group), strict=True):
        parts.append(_channels(data, weights, attributes, op_type))
    exact = np.concatenate(parts, axis=1).astype(np.float32) + bias.reshape(-1, 1, 1)
    expected = np.maximum(exact, 0).astype(np.float16)
    epilogue: dict[str, Attribute] = {"activation": "Relu", "partials": "half"}
    (result,) = run_ir(op_type, [x, w, bias], {**attributes, **epilogue})
    assert np.array_equal(result, expected)


def test_gradient_of_weights() -> None:
    x, dy = _random(3, 4, 6, 5), _random(3, 8, 6, 5)
    attributes: dict[str, Attribute] = {"pads": (1, 1, 1, 1), "kernel_shape": (3, 3)}
    total = np.zeros((8, 4, 3, 3), np.float16)
    for sample in range(3):
        arrays = [array[sample : sample + 1].astype(np.float32) for array in (dy, x)]
        (term,) = run_ir("ConvWeightsGrad", arrays, attributes)
        total = (total.astype(np.float32) + term).astype(np.float16)
    (result,) = run_ir("ConvWeightsGrad", [dy, x], {**attributes, "partials": "half"})
    assert np.array_equal(result, total)
    (none,) = run_ir("ConvWeightsGrad", [dy[:0], x[:0]], {**attributes, "partials": "half"})
    assert not none.any()


def test_partial_sums_are_rounded_as_results_are() -> None:
    """4096 and 2^-2 again and again: lost if rounded to nearest, counted on average at random."""
    a, b = np.ones((500, 16 * 33), np.float16), np.full((16 * 33, 2), 2.0**-4, np.float16)
    b[:16] = 256
    attributes: dict[str, Attribute] = {"partials": "half"}
    (nearest,) = run_ir("MatMul", [a, b], attributes)
    assert (nearest == 4096).all()
    (random,) = run_ir("MatMul", [a, b], {**attributes, "rounding": "stochastic"})
    assert abs(random.astype(np.float64).mean() - (4096 + 32)) < 1


def test_refusals() -> None:
    types = [TensorType(DType.FLOAT32, (2, 2))] * 2
    with pytest.raises(ModelError, match="products of float32 cannot add up in half"):
        infer_types("MatMul", types, {"partials": "half"})
    with pytest.raises(ModelError, match="expected one of float, half"):
        infer_types("MatMul", types, {"partials": "quarter"})
