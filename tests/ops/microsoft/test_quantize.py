"""Quantised operators of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import (
    assert_matches_onnxruntime,
    one_node_model,
    run_ir,
    run_model,
    run_onnxruntime,
    run_op,
)

_DOMAIN = "com.microsoft"
Shape = tuple[int, ...]


def _integers(dtype: Any, shape: Shape, seed: int = 1) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _floats(shape: Shape, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _scale(value: float) -> Array:
    return np.array(value, np.float32)


def _tensor(dtype: Any, shape: Shape, scale: float, seed: int = 1) -> list[Array | None]:
    """Values, scale, zero point."""
    return [_integers(dtype, shape, seed), _scale(scale), np.array(99, dtype)]


def _compare(
    op_type: str,
    inputs: list[Array | None],
    attributes: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    assert_matches_onnxruntime(op_type, inputs, attributes, domain=_DOMAIN, **options)


# -- elementwise, pooling, movement ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_binary(op_type: str, dtype: Any) -> None:
    """onnxruntime works with rounded factors: a result may differ by one step."""
    result = [_scale(0.09), np.array(90, dtype)]
    inputs = [*_tensor(dtype, (3, 200), 0.02), *_tensor(dtype, (200,), 0.03, 2), *result]
    _compare(op_type, inputs, atol=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("op_type", "scale", "zero", "attributes"),
    [
        ("QLinearSigmoid", 1 / 256, 0, {}),
        ("QLinearLeakyRelu", 0.04, 70, {"alpha": 0.2}),
        ("QLinearLeakyRelu", 0.04, 70, {}),
        ("QLinearSoftmax", 1 / 256, 0, {"opset": 13, "axis": -1}),
        ("QLinearSoftmax", 1 / 256, 0, {"opset": 12, "axis": 1}),
    ],
)
def test_unary(
    op_type: str, scale: float, zero: int, attributes: dict[str, Any], dtype: Any
) -> None:
    inputs = [*_tensor(dtype, (2, 3, 40), 0.03), _scale(scale), np.array(zero, dtype)]
    _compare(op_type, inputs, attributes, atol=1)


# Windows that begin in the padding and end behind it.
_BEYOND: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("QLinearGlobalAveragePool", {}),
        ("QLinearAveragePool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        *(
            ("QLinearAveragePool", {**_BEYOND, "count_include_pad": counted, "ceil_mode": ceil})
            for counted in (0, 1)
            for ceil in (0, 1)
        ),
    ],
)
def test_pool(op_type: str, attributes: dict[str, Any], last: int) -> None:
    inputs = [*_tensor(np.uint8, (2, 7, 6, 5), 0.03), _scale(0.02), np.array(50, np.uint8)]
    _compare(op_type, inputs, {**attributes, "channels_last": last}, atol=1)


@pytest.mark.parametrize("constants", [(), (0, 1, 3, 4, 6, 7)])
def test_concat(constants: tuple[int, ...]) -> None:
    parts = [*_tensor(np.uint8, (2, 3), 0.03), *_tensor(np.uint8, (2, 4), 0.02, 2)]
    inputs = [_scale(0.03), np.array(99, np.uint8), *parts]
    _compare("QLinearConcat", inputs, {"axis": 1}, constants=constants, atol=1)


def test_where() -> None:
    condition = np.array([True, False, True])
    operands = [*_tensor(np.uint8, (2, 3), 0.03), *_tensor(np.uint8, (2, 3), 0.02, 2)]
    inputs = [condition, *operands, _scale(0.04), np.array(60, np.uint8)]
    _compare("QLinearWhere", inputs, atol=1)


def test_reduce_mean() -> None:
    """onnxruntime does not run this one: the formula is the oracle."""
    x, scale, zero = _tensor(np.uint8, (2, 3, 4), 0.03)
    assert x is not None
    inputs = [x, scale, zero, _scale(0.02), np.array(9, np.uint8)]
    (y,) = run_op("QLinearReduceMean", inputs, {"axes": [-1], "keepdims": 0}, domain=_DOMAIN)
    mean = ((x.astype(np.float32) - 99) * np.float32(0.03)).mean(-1)
    np.testing.assert_allclose(y, np.clip(np.rint(mean / 0.02) + 9, 0, 255), atol=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantize_and_dequantize(dtype: Any) -> None:
    x, zero = _floats((3, 50)) * 3, _integers(dtype, (3,))
    scale = np.array([0.01, 0.02, 0.05], np.float32)
    _compare("QuantizeLinear", [x, scale, zero], {"axis": 0}, rtol=0, atol=0)
    _compare("DequantizeLinear", [_integers(dtype, (3, 50)), scale, zero], {"axis": 0})


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [0, 1])
def test_conv(last: int) -> None:
    x_shape = (1, 6, 5, 4) if last else (1, 4, 6, 5)
    inputs: list[Array | None] = [
        *_tensor(np.uint8, x_shape, 0.02),
        _integers(np.int8, (3, 4, 3, 3)) // 2,
        _scale(0.01),
        np.array(0, np.int8),
        _scale(0.05),
        np.array(128, np.uint8),
        np.array([100, -100, 3], np.int32),
    ]
    attributes = {"channels_last": last, "pads": [1, 1, 1, 1]}
    _compare("QLinearConv", inputs, attributes, constants=(3, 4, 5), rtol=0, atol=0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("columns", [(), (5,)])
def test_gemm(bias: bool, quantized: bool, columns: Shape) -> None:  # noqa: FBT001
    b_scale = np.random.default_rng(0).uniform(0.01, 0.02, columns).astype(np.float32)
    inputs: list[Array | None] = [
        *_tensor(np.uint8, (6, 4), 0.02),
        _integers(np.int8, (5, 6)) // 2,
        b_scale,
        np.zeros(columns, np.int8),
        np.array([[100, -1000, 3, 5000, 0]], np.int32) if bias else None,
    ]
    if quantized:
        inputs += [_scale(0.03), np.array(120, np.uint8)]
    attributes = {"transA": 1, "transB": 1, "alpha": 0.5}
    _compare("QGemm", inputs, attributes, atol=1 if quantized else 1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("columns", [(), (5,)])
@pytest.mark.parametrize("constants", [(), (1, 3, 5)])
def test_matmul_integer_to_float(
    bias: bool,  # noqa: FBT001
    columns: Shape,
    constants: tuple[int, ...],
) -> None:
    inputs: list[Array | None] = [
        _integers(np.uint8, (2, 3, 300)),
        _integers(np.int8, (300, 5)) // 2,
        _scale(0.02),
        np.random.default_rng(0).uniform(0.01, 0.02, columns).astype(np.float32),
        np.array(120, np.uint8),
        np.array(3, np.int8),
        _floats((5,)) if bias else None,
    ]
    _compare("MatMulIntegerToFloat", inputs, constants=constants, atol=1e-4)


@pytest.mark.parametrize("full", [False, True])
def test_dynamic_quantize_matmul(full: bool) -> None:  # noqa: FBT001
    optional: list[Array | None] = [np.array(3, np.int8), _floats((5,))] if full else []
    weights = _integers(np.int8, (40, 5)) // 2
    inputs = [_floats((2, 3, 40)), weights, _scale(0.01), *optional]
    _compare("DynamicQuantizeMatMul", inputs, constants=(1, 2, 3), atol=1e-4)


@pytest.mark.parametrize("past", [False, True])
def test_qattention(past: bool) -> None:  # noqa: FBT001
    inputs: list[Array | None] = [
        _integers(np.uint8, (2, 4, 12)),
        _integers(np.int8, (12, 48)) // 2,
        _floats((48,)),
        _scale(0.01),
        _scale(0.01),
        np.array([4, 2], np.int32) if not past else None,
        np.array(128, np.uint8),
        np.array(1, np.int8),
        _floats((2, 2, 2, 3, 8)) if past else None,
    ]
    attributes = {"num_heads": 2, "unidirectional": int(past)}
    outputs = 2 if past else 1
    _compare(
        "QAttention", inputs, attributes, outputs=outputs, constants=(1, 4, 7), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("segments", [False, True])
def test_qembed_layer_normalization(segments: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(0)
    tables = [(9, 8), (6, 8), (2, 8), (8,), (8,)]
    used = [True, True, segments, True, True]
    values = [_integers(np.uint8, shape, k) for k, shape in enumerate(tables)]
    inputs: list[Array | None] = [
        rng.integers(0, 9, (2, 4), np.int32),
        rng.integers(0, 2, (2, 4), np.int32) if segments else None,
        *(value if u else None for value, u in zip(values, used, strict=True)),
        np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32),
        *(_scale(0.02) if u else None for u in used),
        *(np.array(100, np.uint8) if u else None for u in used),
    ]
    _compare("QEmbedLayerNormalization", inputs, {"epsilon": 1e-6}, outputs=2, rtol=1e-4, atol=1e-5)


# -- weights of a few bits -------------------------------------------------------------------------

_NBITS = [
    pytest.param(4, 16, 40, "packed", id="4-packed"),
    pytest.param(4, 32, 64, "none", id="4"),
    pytest.param(4, 32, 96, "float", id="4-float"),
    pytest.param(4, 64, 333, "packed", id="4-odd"),
    pytest.param(4, 128, 300, "none", id="4-wide"),
    pytest.param(4, 16, 77, "float", id="4-odd-float"),
    pytest.param(8, 32, 64, "packed", id="8-packed"),
    pytest.param(8, 16, 40, "none", id="8"),
    pytest.param(2, 16, 64, "packed", id="2-packed"),
    pytest.param(2, 32, 64, "none", id="2"),
]


def _nbits_operands(
    bits: int, block: int, columns: int, zeros: str, *, bias: bool = False
) -> tuple[list[Array | None], dict[str, Any]]:
    rows, blocks = 6, -(-columns // block)
    zero: Array | None = None
    if zeros == "packed":
        zero = _integers(np.uint8, (rows, -(-blocks * bits // 8)), 3)
    elif zeros == "float":
        zero = _floats((rows, blocks), 3) + 8
    inputs: list[Array | None] = [
        _floats((2, 3, columns)),
        _integers(np.uint8, (rows, blocks, block * bits // 8), 2),
        np.random.default_rng(0).uniform(0.01, 0.02, (rows, blocks)).astype(np.float32),
        zero,
        None,
        _floats((rows,), 4) if bias else None,
    ]
    return inputs, {"K": columns, "N": rows, "bits": bits, "block_size": block}


@pytest.mark.parametrize(("bits", "block", "columns", "zeros"), _NBITS)
@pytest.mark.parametrize("bias", [False, True])
def test_matmul_nbits(bits: int, block: int, columns: int, zeros: str, bias: bool) -> None:  # noqa: FBT001
    inputs, attributes = _nbits_operands(bits, block, columns, zeros, bias=bias)
    _compare("MatMulNBits", inputs, attributes, constants=(1, 2, 3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("bits", "block", "columns", "zeros"),
    [case for case in _NBITS if case.id in {"4-packed", "4", "4-odd", "4-wide", "8-packed", "8"}],
)
def test_matmul_nbits_of_bytes(bits: int, block: int, columns: int, zeros: str) -> None:
    """Both round activations to the same bytes: these are cases in which onnxruntime does."""
    inputs, attributes = _nbits_operands(bits, block, columns, zeros)
    attributes["accuracy_level"] = 4
    _compare("MatMulNBits", inputs, attributes, constants=(1, 2, 3), rtol=1e-4, atol=1e-4)


def test_matmul_nbits_by_groups() -> None:
    inputs: list[Array | None] = [
        _floats((3, 64)),
        _integers(np.uint8, (6, 2, 16), 2),
        np.random.default_rng(0).uniform(0.01, 0.02, (6, 2)).astype(np.float32),
        None,
        np.random.default_rng(1).permutation(64).astype(np.int32) // 32,
    ]
    attributes = {"K": 64, "N": 6, "bits": 4, "block_size": 32}
    _compare("MatMulNBits", inputs, attributes, constants=(1, 2, 4), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed"])
def test_matmul_nbits_of_groups_in_order(bits: int, zeros: str) -> None:
    """Groups in the order of the blocks change nothing: onnxruntime without them is the oracle.

    With them its own results are others where there are 2 bits, or packed zero points, and it
    refuses 8 bits.
    """
    inputs, attributes = _nbits_operands(bits, 16, 64, zeros)
    model = one_node_model(
        "MatMulNBits", inputs[:4], attributes, constants=(1, 2, 3), domain=_DOMAIN
    )
    x = inputs[0]
    assert x is not None
    (expected,) = run_onnxruntime(model, {"x0": x})
    inputs[4] = np.arange(64, dtype=np.int32) // 16
    (actual,) = run_op(
        "MatMulNBits", inputs[:5], attributes, constants=(1, 2, 3, 4), domain=_DOMAIN
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_gather_block_quantized(bits: int, zeros: bool) -> None:  # noqa: FBT001
    rows, columns, block = 7, 48, 16
    inputs: list[Array | None] = [
        _integers(np.uint8, (rows, columns * bits // 8)),
        np.array([[1, 6, 1], [0, 3, 5]]),
        np.random.default_rng(0).uniform(0.01, 0.02, (rows, 3)).astype(np.float32),
        _integers(np.uint8, (rows, -(-3 * bits // 8)), 3) if zeros else None,
    ]
    attributes = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    _compare("GatherBlockQuantized", inputs, attributes, constants=(0, 2, 3), rtol=1e-6)


def test_unsupported_width() -> None:
    inputs: list[Array | None] = [_floats((3, 16)), _integers(np.uint8, (6, 1, 6)), _floats((6, 1))]
    with pytest.raises(ModelError, match="3 bits"):
        run_op(
            "MatMulNBits", inputs, {"K": 16, "N": 6, "bits": 3, "block_size": 16}, domain=_DOMAIN
        )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({1: _integers(np.int8, (6, 2, 16))}, "weights must be uint8"),
        ({1: _integers(np.uint8, (6, 2, 15))}, "weights must be of shape"),
        ({2: _floats((6, 3))}, "scales must be of shape"),
        ({2: _integers(np.uint8, (6, 2))}, "scales must be"),
        ({3: _integers(np.uint8, (6, 2))}, "zero points must be of shape"),
        ({3: _integers(np.int32, (6, 2))}, "zero points must be"),
        ({4: _integers(np.int64, (64,))}, "groups must be int32"),
        ({4: _integers(np.int32, (63,))}, "groups must be of shape"),
        ({5: _floats((5,))}, "bias must be of shape"),
        ({0: _floats((3, 63))}, "do not have the 64"),
    ],
)
def test_what_does_not_fit(changed: dict[int, Array], message: str) -> None:
    inputs: list[Array | None] = [
        _floats((3, 64)), _integers(np.uint8, (6, 2, 16)), _floats((6, 2)), None, None, None
    ]  # fmt: skip
    attributes = {"K": 64, "bits": 4, "block_size": 32}
    assert run_ir("MatMulNBits", inputs, attributes)[0].shape == (3, 6)
    with pytest.raises(ModelError, match=message):
        run_ir(
            "MatMulNBits", [changed.get(i, operand) for i, operand in enumerate(inputs)], attributes
        )
    uneven = {"block_size": 48, "rounded": 1}
    for wrong in ({"bits": 5}, {"block_size": 8}, {"block_size": 40}, {"K": 0}, uneven):
        with pytest.raises(ModelError):
            run_ir("MatMulNBits", inputs, {**attributes, **wrong})


def test_weights_stay_packed() -> None:
    """No constant is larger than the packed weights."""
    inputs: list[Array | None] = [
        _floats((1, 512)),
        _integers(np.uint8, (64, 16, 16)),
        np.ones((64, 16), np.float32),
    ]
    attributes = {"K": 512, "N": 64, "bits": 4, "block_size": 32}
    model = one_node_model("MatMulNBits", inputs, attributes, constants=(1, 2), domain=_DOMAIN)
    from popc.frontend.load import load_model
    from popc.frontend.model import import_model

    graph = import_model(load_model(model)).graph
    assert max(tensor.type.nbytes for tensor in graph.constants) == 64 * 16 * 16
    feeds = {"x0": inputs[0]} if inputs[0] is not None else {}
    np.testing.assert_allclose(
        run_model(model, feeds)[0], run_onnxruntime(model, feeds)[0], rtol=1e-4
    )
