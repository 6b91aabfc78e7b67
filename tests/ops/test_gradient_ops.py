"""Gradient ops of activations, softmax and dropout: element types, strides, blocks, in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops import OPS
from popc.ops.activation_grad import OPS as ACTIVATION_OPS
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.oracles import epsilon, run_ir, run_kernel, smallest

_Attributes = dict[str, Attribute]
_RNG: Final = np.random.default_rng(7)

# Name of the case and attributes of the activation
_BY_RESULT: Final[dict[str, _Attributes]] = {
    "Celu": {"alpha": 0.5},
    "Clip": {"min": -1.0, "max": 2.0},
    "Clip:low": {"min": -1.0},
    "Clip:high": {"max": 2.0},
    "Clip:free": {},
    "Elu": {"alpha": 1.0},
    "Elu:steep": {"alpha": 1.5},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.125},
    "Relu": {},
    "Selu": {"alpha": 1.75, "gamma": 1.125},
    "Sigmoid": {},
    "Tanh": {},
}
_BY_ARGUMENT: Final[dict[str, _Attributes]] = {
    "Erf": {},
    "Gelu": {"approximate": "none"},
    "Gelu:tanh": {"approximate": "tanh"},
    "HardSwish": {},
    "Mish": {},
    "Shrink": {"lambd": 0.5, "bias": 0.25},
    "Softplus": {},
    "Softsign": {},
    "Swish": {"alpha": 1.5},
    "ThresholdedRelu": {"alpha": 0.75},
}
_CASES: Final = {**_BY_RESULT, **_BY_ARGUMENT}
_DTYPES: Final = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


def _type_of(array: Array) -> TensorType:
    bits = array.dtype == ml_dtypes.bfloat16
    return TensorType(DType.BFLOAT16 if bits else DType.of(array.dtype), array.shape)


def _run(op_type: str, operands: Sequence[Array], attributes: _Attributes) -> Array:
    """The first result, as float64, also of operands in bfloat16."""
    types = [_type_of(array) for array in operands]
    stored = [a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for a in operands]
    result = run_kernel(op_type, stored, types, attributes, [False] * len(stored))[0]
    if result.dtype == np.uint16:
        result = result.view(ml_dtypes.bfloat16)
    return result.astype(np.float64)


def _slope(op_type: str, x: Array, attributes: _Attributes) -> Array:
    """By differences of the function in float64."""
    step = 1e-6
    above, below = (run_ir(op_type, [x + sign * step], attributes)[0] for sign in (1, -1))
    return np.asarray((above - below) / (2 * step))


def _operands(case: str, dtype: Any, shape: tuple[int, ...]) -> tuple[str, Array, Array, Array]:
    """The op, its operands, and the gradient that they should give.

    Arguments lie between thousandths, so that no difference spans a bend of the function.
    """
    op_type, attributes = case.partition(":")[0], _CASES[case]
    g = _RNG.normal(size=shape).astype(dtype)
    x = np.asarray((np.rint(_RNG.normal(size=shape) * 3000) + 0.5) / 1000).astype(dtype)
    wide = x.astype(np.float64)
    expected = g.astype(np.float64) * _slope(op_type, wide, attributes)
    if case in _BY_ARGUMENT:
        return f"{op_type}Grad", g, x, expected
    result = run_ir(op_type, [wide], attributes)[0].astype(dtype)
    return f"{op_type}Grad", g, result, expected


def test_every_gradient_has_a_case() -> None:
    names = {f"{case.partition(':')[0]}Grad" for case in _CASES}
    # The two others are compared with PyTorch: see tests/autodiff.
    assert names == ACTIVATION_OPS.keys() - {"FakeQuantizeGrad", "PReluGrad"}


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("dtype", _DTYPES)
def test_values(case: str, dtype: Any) -> None:
    op_type, g, v, expected = _operands(case, dtype, (3, 211))
    step = epsilon(dtype)
    actual = _run(op_type, [g, v], _CASES[case])
    # Where the slope comes from the rounded result, that is exact to a bit of numbers near 1.
    near = (
        np.abs(actual - expected) <= 6 * step * np.maximum(np.abs(g.astype(np.float64)), 1) + 1e-8
    )
    assert near.mean() > 0.99 if step > 1e-4 else near.all()


@pytest.mark.parametrize("case", _CASES)
def test_strided_operands_of_many_blocks(case: str) -> None:
    op_type, g, v, expected = _operands(case, np.float32, (400, 211))
    (actual,) = run_ir(
        op_type, [np.asfortranarray(g), np.repeat(v, 2, axis=1)[:, ::2]], _CASES[case]
    )
    np.testing.assert_allclose(actual, expected, atol=4e-6)


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("shape", [(), (1, 1), (0, 3)])
def test_small_shapes(case: str, shape: tuple[int, ...]) -> None:
    op_type, g, v, expected = _operands(case, np.float32, shape)
    (actual,) = run_ir(op_type, [np.asarray(g), np.asarray(v)], _CASES[case])
    assert actual.shape == shape
    np.testing.assert_allclose(actual, expected, atol=4e-6)


def _in_place(op_type: str, operands: list[Array], attributes: _Attributes, index: int) -> Array:
    """The result written over operand ``index``."""
    copies = [array.copy() for array in operands]
    types = tuple(DType.of(array.dtype) for array in copies)
    binding = Binding(
        inputs=tuple(copies),
        outputs=(copies[index],),
        input_dtypes=types,
        output_dtypes=(types[index],),
        attributes=attributes,
        constant=(False,) * len(copies),
        scratch=Scratch(threads=2),
        random=RandomState(),
    )
    with np.errstate(all="ignore"):
        for call in prepare(KERNELS[op_type], binding):
            call()
    return copies[index]


_DROPOUT: Final = [np.array(0.25, np.float32), np.ones((), np.bool_)]
_OTHERS: Final[dict[str, tuple[list[Array], _Attributes]]] = {
    "DropoutGrad": ([_RNG.random((300, 300)) < 0.75, *_DROPOUT], {}),
    "FakeQuantizeGrad": (
        [_RNG.normal(size=(300, 300)).astype(np.float32)],
        {"scale": 0.01, "low": -90.0, "high": 90.0},
    ),
    "LogSoftmaxGrad": ([_RNG.normal(size=(300, 300)).astype(np.float32)], {"axis": 1}),
    "MaxArgGrad": ([_RNG.integers(0, 3, (300, 300)).astype(np.float32)] * 2, {}),
    "MinArgGrad": ([_RNG.integers(0, 3, (300, 300)).astype(np.float32)] * 2, {}),
    "PReluGrad": (
        [_RNG.normal(size=(300, 300)).astype(np.float32), np.array(0.5, np.float32)],
        {},
    ),
    "SoftmaxGrad": ([_RNG.normal(size=(300, 300)).astype(np.float32)], {"axis": 1}),
}


@pytest.mark.parametrize("name", [*_CASES, *_OTHERS])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_in_place(name: str, dtype: Any) -> None:
    if name in _CASES:
        op_type, g, v, _ = _operands(name, np.float32, (300, 300))
        others, attributes = [v], _CASES[name]
    else:
        op_type, g = name, _RNG.normal(size=(300, 300)).astype(np.float32)
        others, attributes = _OTHERS[name]
    operands = [a.astype(dtype) if a.dtype == np.float32 and a.ndim else a for a in (g, *others)]
    operands = [a.astype(dtype) if name == "PReluGrad" else a for a in operands]
    (expected,) = run_ir(op_type, operands, attributes)
    for index in OPS[op_type].inplace:
        actual = _in_place(op_type, operands, attributes, index)
        np.testing.assert_array_equal(actual, expected)


def _softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5,), 0), ((40, 7), 1), ((3, 900, 5), 1), ((2, 70000), 1), ((700, 20), 0), ((0, 4), 1)],
    ids=str,
)
def test_softmax(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    """A rounded sum is off by the root of its length in steps of its absolute terms."""
    g, x = (_RNG.normal(size=shape).astype(dtype), _RNG.normal(size=shape) * 2)
    probabilities = _softmax(x, axis) if x.size else x
    y, log = probabilities.astype(dtype), np.log(probabilities).astype(dtype)
    exact, wide = g.astype(np.longdouble), y.astype(np.longdouble)
    powers = np.exp(log.astype(np.longdouble))
    for name, value, terms, factor in (
        ("SoftmaxGrad", y, exact * wide, wide),
        ("LogSoftmaxGrad", log, exact, powers),
    ):
        total = terms.sum(axis, keepdims=True)
        expected = (exact - total) * wide if value is y else exact - powers * total
        step = epsilon(dtype)
        off = step * np.sqrt(shape[axis]) * np.abs(terms).sum(axis, keepdims=True) * factor
        actual = _run(name, [g, value], {"axis": axis})
        near = 8 * step * np.abs(expected) + off + smallest(dtype)
        assert (np.abs(actual - expected) <= near).all()


def test_softmax_of_strided_operands() -> None:
    g, x = _RNG.normal(size=(2, 6, 8, 9)).astype(np.float32)
    y = _softmax(x, 1)
    expected = run_ir("SoftmaxGrad", [g, y], {"axis": 1})[0]
    (actual,) = run_ir(
        "SoftmaxGrad", [np.asfortranarray(g), np.repeat(y, 2, axis=2)[:, :, ::2]], {"axis": 1}
    )
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize(
    ("ratio", "training", "scale"), [(0.5, True, 2.0), (0.5, False, 1.0), (1.0, True, 0.0)]
)
def test_dropout(ratio: float, training: bool, scale: float, dtype: Any) -> None:  # noqa: FBT001
    g = _RNG.normal(size=(30, 40)).astype(dtype)
    mask = _RNG.random(g.shape) < 0.5
    settings = [np.array(ratio, np.float32), np.array(training)]
    actual = _run("DropoutGrad", [g, mask, *settings], {})
    np.testing.assert_array_equal(actual, np.where(mask, g.astype(np.float64) * scale, 0))


def test_dropout_of_everything() -> None:
    x = np.array([1.0, -2.0, np.inf], np.float32)
    y, mask = run_ir("Dropout", [x, np.array(1.0, np.float32), np.array(True)], {})  # noqa: FBT003
    assert not mask.any()
    np.testing.assert_array_equal(y[:2], 0)


_F2: Final = TensorType(DType.FLOAT32, (2,))
_F3: Final = TensorType(DType.FLOAT32, (3,))


@pytest.mark.parametrize(
    ("op_type", "types", "attributes", "message"),
    [
        ("ReluGrad", [_F2, _F3], {}, "broadcast"),
        ("ReluGrad", [TensorType(DType.FLOAT32, ()), _F3], {}, "does not fit"),
        ("ReluGrad", [_F2, TensorType(DType.FLOAT64, (2,))], {}, "one element type"),
        ("SoftmaxGrad", [_F2, _F3], {"axis": 0}, "expected"),
        ("SoftmaxGrad", [TensorType(DType.INT32, (2,))] * 2, {"axis": 0}, "int32 is not allowed"),
        ("CumProdGrad", [_F2, _F3], {"axis": 0}, "expected"),
        ("DropoutGrad", [_F2, _F2, _F2, _F2], {}, "mask"),
    ],
)
def test_refusals(
    op_type: str, types: list[TensorType], attributes: _Attributes, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        infer_types(op_type, types, attributes)
