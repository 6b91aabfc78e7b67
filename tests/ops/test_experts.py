"""Products with matrices of which each row chooses one, against numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from tests.support.oracles import epsilon, run_ir

_EXPERTS, _ROWS, _WIDTH, _DEPTH = 4, 7, 5, 32
_CHOICE: Final = np.array([2, 0, 2, 2, 3, 0, 2], np.int64)
_BITS: Final[dict[str, int]] = {"bits": 4, "block_size": 16, "K": _DEPTH}


def _floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    drawn: Array = np.random.default_rng([seed, *shape]).normal(size=shape)
    return drawn.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("bias", [False, True])
def test_floats(dtype: type, index_type: type, bias: bool) -> None:  # noqa: FBT001
    x, weights = _floats(_ROWS, _DEPTH, dtype=dtype), _floats(_EXPERTS, _WIDTH, _DEPTH, dtype=dtype)
    added = _floats(_EXPERTS, _WIDTH, dtype=dtype) if bias else None
    (y,) = run_ir("ExpertMatMul", [x, _CHOICE.astype(index_type), weights, added], {})
    wide = weights.astype(np.float64)
    expected = np.einsum("rk,rnk->rn", x.astype(np.float64), wide[_CHOICE])
    sizes = np.einsum("rk,rnk->rn", np.abs(x), np.abs(wide)[_CHOICE])
    if added is not None:
        expected, sizes = expected + added[_CHOICE], sizes + np.abs(added[_CHOICE])
    narrow = np.float64 if dtype is np.float64 else np.float32
    bound = sizes * (_DEPTH + 2) * epsilon(narrow) + np.abs(expected) * epsilon(dtype)
    assert (np.abs(y - expected) <= bound).all()
    assert y.dtype == dtype


def test_operands_that_do_not_lie_in_order() -> None:
    x, weights = _floats(_DEPTH, _ROWS).T, _floats(_DEPTH, _EXPERTS, _WIDTH).transpose(1, 2, 0)
    choice = np.repeat(_CHOICE, 2)[::2]
    (y,) = run_ir("ExpertMatMul", [x, choice, weights, None], {})
    expected = np.einsum("rk,rnk->rn", x, weights[_CHOICE])
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_few_bits(zeros: bool, dtype: type) -> None:  # noqa: FBT001
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 16, (_EXPERTS, _WIDTH, _DEPTH))
    points = rng.integers(0, 16, (_EXPERTS, _WIDTH, 2)) if zeros else np.full((1, 1, 2), 8)
    scales = _floats(_EXPERTS, _WIDTH, 2, dtype=dtype)
    packed = (numbers[..., ::2] | numbers[..., 1::2] << 4).astype(np.uint8)
    zero = (points[..., :1] | points[..., 1:] << 4).astype(np.uint8) if zeros else None
    x = _floats(_ROWS, _DEPTH, dtype=dtype)
    operands = [x, _CHOICE, packed.reshape(_EXPERTS, _WIDTH, 2, 8), scales, zero, None]
    (y,) = run_ir("ExpertMatMulNBits", operands, _BITS)
    spread = np.repeat(points, 16, axis=2), np.repeat(scales, 16, axis=2).astype(np.float64)
    matrices = (numbers - spread[0]) * spread[1]
    expected = np.einsum("rk,rnk->rn", x, matrices[_CHOICE])
    sizes = np.einsum("rk,rnk->rn", np.abs(x), np.abs(matrices)[_CHOICE])
    bound = sizes * (_DEPTH + 2) * epsilon(np.float32) + np.abs(expected) * epsilon(dtype)
    assert (np.abs(y - expected) <= bound).all()


@pytest.mark.parametrize("number", [-1, _EXPERTS])
def test_experts_that_there_are_not(number: int) -> None:
    choice = np.full(_ROWS, number)
    with pytest.raises(IndexError, match="out of range for 4"):
        run_ir("ExpertMatMul", [_floats(_ROWS, 3), choice, _floats(_EXPERTS, 2, 3), None], {})


def test_no_rows() -> None:
    operands = [_floats(0, 3), np.zeros(0, np.int64), _floats(_EXPERTS, 2, 3), None]
    (y,) = run_ir("ExpertMatMul", operands, {})
    assert y.shape == (0, 2)


def _type(dtype: DType, *shape: int) -> TensorType:
    return TensorType(dtype, shape)


_X: Final = _type(DType.FLOAT32, 7, 32)
_OF_ROWS: Final = _type(DType.INT64, 7)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([_X, _OF_ROWS, _type(DType.FLOAT32, 4, 5, 31)], "rows of 32 numbers do not fit"),
        ([_X, _type(DType.INT64, 6), _type(DType.FLOAT32, 4, 5, 32)], "each of 7 rows"),
        ([_X, _type(DType.FLOAT32, 7), _type(DType.FLOAT32, 4, 5, 32)], "the number of an expert"),
        ([_X, _OF_ROWS, _type(DType.FLOAT32, 0, 5, 32)], "there are rows, but no experts"),
        (
            [_X, _OF_ROWS, _type(DType.FLOAT32, 4, 5, 32), _type(DType.FLOAT32, 5)],
            "the bias of 4 experts",
        ),
    ],
)
def test_operands_that_do_not_fit(types: list[TensorType], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        infer_types("ExpertMatMul", types, {})


@pytest.mark.parametrize(
    ("packed", "scale", "message"),
    [((4, 5, 2, 8), (3, 5, 2), "of different numbers"), ((4, 5, 2, 7), (4, 5, 2), "the weights")],
)
def test_few_bits_that_do_not_fit(
    packed: tuple[int, ...], scale: tuple[int, ...], message: str
) -> None:
    types = [_X, _OF_ROWS, _type(DType.UINT8, *packed), _type(DType.FLOAT32, *scale)]
    with pytest.raises(ModelError, match=message):
        infer_types("ExpertMatMulNBits", types, _BITS)
