from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import matmul
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_kernel, run_op

_RNG = np.random.default_rng(14)


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    if np.dtype(dtype).kind in "iu":
        return _RNG.integers(0, 100, shape).astype(dtype)
    return _RNG.standard_normal(shape).astype(dtype)


_SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 5, 3, 4), (1, 5, 4, 2)),
    ((1, 768), (768, 30)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
    ((2, 0, 4), (4, 5)),
    ((2, 3, 0), (0, 5)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize(("a", "b"), _SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint64])
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], dtype: Any) -> None:
    left, right = _random(*a, dtype=dtype), _random(*b, dtype=dtype)
    (actual,) = run_op("MatMul", [left, right])
    wanted = left @ right
    assert (actual.dtype, actual.shape) == (dtype, wanted.shape)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    tolerance = {np.float32: 1e-4, np.float16: 2e-2}.get(dtype, 1e-9)
    np.testing.assert_allclose(actual, exact, rtol=tolerance, atol=tolerance)


def test_integers_are_exact() -> None:
    left = np.array([[2**31 - 1, 2**62]], np.int64)
    (actual,) = run_op("MatMul", [left, np.array([[2**31 - 1], [1]], np.int64)])
    assert actual.item() == (2**31 - 1) ** 2 + 2**62


@pytest.mark.parametrize(
    ("a", "b"),
    [((9, 4), (4, 5)), ((7, 2, 4), (4, 5)), ((1, 9, 4), (7, 4, 5)), ((7, 3, 4), (1, 4, 5))],
)
def test_what_is_multiplied_without_blas_is_cut_into_calls(
    a: tuple[int, ...], b: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a run can be stopped between them."""
    monkeypatch.setattr(matmul, "_MOST_PLAIN", 20)
    left, right = _RNG.integers(-9, 9, a), _RNG.integers(-9, 9, b)
    expected: Array = left @ right
    out = np.empty_like(expected)
    calls = list(matmul._multiply(left, right, out))
    assert len(calls) > 6
    for call in calls:
        call()
    np.testing.assert_array_equal(out, expected)


def test_bfloat16() -> None:
    a, b = to_bfloat16(_random(3, 40)), to_bfloat16(_random(40, 5))
    types = [TensorType(DType.BFLOAT16, array.shape) for array in (a, b)]
    (actual,) = run_kernel("MatMul", [a, b], types, {}, [False, True])
    wanted = from_bfloat16(a) @ from_bfloat16(b)
    np.testing.assert_allclose(from_bfloat16(actual), wanted, rtol=1e-2, atol=1e-2)


def _views(rows: int, columns: int) -> list[Array]:
    """Matrices of every kind of strides."""
    big = _random(3, 2 * rows, 3 * columns)
    return [
        big[1, :rows, :columns],
        big[1, :rows, : 3 * columns : 3],
        big[1, ::2, :columns],
        _random(columns, rows).T,
        _random(columns, 2, rows).transpose(1, 2, 0)[1],
        np.broadcast_to(_random(1, columns), (rows, columns)),
        np.broadcast_to(_random(rows, 1), (rows, columns)),
        big[1, :rows, columns - 1 :: -1][:, :columns],
        _random(4, rows, columns).transpose(1, 0, 2)[:, 2],
        _random(2, rows, 5, columns).transpose(0, 2, 1, 3),
        np.broadcast_to(_random(rows, columns), (2, 5, rows, columns)),
    ]


@pytest.mark.parametrize(("rows", "inner", "columns"), [(7, 5, 6), (1, 9, 4), (80, 3, 1)])
def test_strided_operands(rows: int, inner: int, columns: int) -> None:
    types = None
    for a in _views(rows, inner):
        for b in _views(inner, columns):
            types = [TensorType(DType.FLOAT32, array.shape) for array in (a, b)]
            for constant in (False, True):
                (actual,) = run_kernel("MatMul", [a, b], types, {}, [False, constant])
                np.testing.assert_allclose(actual, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(20, 60_000, 30), (128, 3000, 130)])
def test_long_sums(rows: int, inner: int, columns: int) -> None:
    """The gradients of small weights in large batches."""
    x, dy, bias = _random(inner, rows), _random(inner, columns), _random(columns)
    for attributes in ({}, {"activation": "Relu"}):
        (actual,) = run_ir("MatMul", [x.T, dy, bias], attributes)
        wanted = x.T.astype(np.float64) @ dy + bias
        wanted = np.maximum(wanted, 0) if attributes else wanted
        np.testing.assert_allclose(actual, wanted, atol=2e-5 * inner**0.5)


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (1500, 700)])
def test_bias_residual_activation(op_type: str, rows: int, columns: int) -> None:
    a, b = _random(rows, 8), _random(8, columns)
    plain, residual = a @ b, _random(rows, columns)
    attributes: dict[str, Attribute] = {"activation": "Clip", "activation_min": -0.5}
    for bias in (None, _random(columns), _random(rows, 1), _random(1)):
        total = plain + residual + (0 if bias is None else bias)
        (actual,) = run_ir(op_type, [a, b, bias, residual], attributes)
        np.testing.assert_allclose(actual, np.maximum(total, -0.5), atol=1e-4)


_BATCHES = [
    ((2, 3, 8), (8, 5)),
    ((8,), (8, 5)),
    ((3, 8), (8,)),
    ((2, 3, 8), (2, 8, 5)),
    ((8,), (8,)),
]


@pytest.mark.parametrize(("a", "b"), _BATCHES)
def test_addends_of_batches(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = _random(*a), _random(*b)
    plain = np.asarray(left @ right)
    residual = _random(*plain.shape)
    full = _random(*plain.shape)
    views = (
        (full[..., :1], full.T.copy().T, np.broadcast_to(full[:1], full.shape))
        if plain.ndim
        else ()
    )
    for bias in (full[0] if plain.ndim > 1 else full, full, *views):
        (actual,) = run_ir("MatMul", [left, right, bias, residual], {"activation": "Relu"})
        np.testing.assert_allclose(actual, np.maximum(plain + bias + residual, 0), atol=1e-5)


@pytest.mark.parametrize("opset", [1, 6, 7, 11, 13])
@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.5, 2.0), (-1.0, 0.0)])
def test_gemm(opset: int, transposed: tuple[int, int], factors: tuple[float, float]) -> None:
    a = _random(4, 3) if transposed[0] else _random(3, 4)
    b = _random(5, 4) if transposed[1] else _random(4, 5)
    left, right = (a.T if transposed[0] else a), (b.T if transposed[1] else b)
    attributes = {"transA": transposed[0], "transB": transposed[1]}
    attributes |= {"alpha": factors[0], "beta": factors[1]}  # type: ignore[dict-item]
    if opset < 7:
        attributes["broadcast"] = 1
    for c in (_random(5), _random(3, 5), _random(3, 1), _random(1)):
        wanted = factors[0] * (left @ right) + factors[1] * c
        for constants in ((), (1, 2)):
            (actual,) = run_op("Gemm", [a, b, c], attributes, opset=opset, constants=constants)
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
    if opset >= 11:
        wanted = factors[0] * (left @ right)
        np.testing.assert_allclose(run_op("Gemm", [a, b], attributes)[0], wanted, atol=1e-5)


def test_gemm_of_integers() -> None:
    a, b, c = (_random(*shape, dtype=np.int32) for shape in ((3, 4), (4, 5), (5,)))
    np.testing.assert_array_equal(run_op("Gemm", [a, b, c])[0], a @ b + c)
    (actual,) = run_op("Gemm", [a, b, c], {"alpha": 0.5, "beta": 2.0})
    np.testing.assert_array_equal(actual, np.trunc(0.5 * (a @ b) + 2 * c))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_det(dtype: Any) -> None:
    x = _random(2, 3, 4, 4, dtype=dtype)
    (actual,) = run_op("Det", [x], opset=22)
    tolerance = 1e-2 if dtype == np.float16 else 1e-5
    wanted = np.linalg.det(x.astype(np.float64))
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_gradient_of_det(rank: int) -> None:
    """By the definition of cofactors, which singular matrices have too."""
    x = _random(2, 4, rank, dtype=np.float64) @ _random(2, rank, 4, dtype=np.float64)
    g = _random(2, dtype=np.float64)
    cofactors = [
        (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 1), j, 2))
        for i in range(4)
        for j in range(4)
    ]
    wanted = np.stack(cofactors, axis=-1).reshape(2, 4, 4) * g[:, None, None]
    (actual,) = run_ir("DetGrad", [g, x], {})
    np.testing.assert_allclose(actual, wanted, atol=1e-10)


def test_det_matches_onnxruntime() -> None:
    assert_matches_onnxruntime("Det", [_random(3, 3)], opset=11)


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes", "message"),
    [
        ("MatMul", [(3, 4), (3, 4)], {}, "4 != 3"),
        ("MatMul", [(2, 3, 4), (3, 4, 5)], {}, "do not broadcast"),
        ("MatMul", [(), (3,)], {}, "at least one dimension"),
        ("Gemm", [(3, 4), (5, 4)], {}, "A has 4 columns, but B has 5 rows"),
        ("Gemm", [(3, 4, 1), (5, 4)], {}, "A must have 2 dimensions"),
        ("Gemm", [(3, 4), (4, 5), (4,)], {}, "do not broadcast"),
        ("Gemm", [(1, 4), (4, 5), (3, 5)], {}, "does not broadcast to"),
        ("Det", [(3, 4)], {}, "square"),
        ("Einsum", [(3, 4), (4, 5)], {"equation": "ij->i"}, "names 1 operands"),
        ("Einsum", [(3, 4)], {"equation": "i->i"}, "does not label"),
        ("Einsum", [(3, 4)], {"equation": "i2->i"}, "does not label"),
        ("Einsum", [(3, 4)], {"equation": "ij->ik"}, "not in an operand"),
        ("Einsum", [(3, 4)], {"equation": "ij->ii"}, "repeat"),
        ("Einsum", [(3, 4), (5, 6)], {"equation": "ij,jk->ik"}, "stands for 4 and for 5"),
    ],
)
def test_shapes_that_cannot_be_multiplied_are_refused(
    op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        run_op(op_type, [_random(*shape) for shape in shapes], attributes, opset=13)
    assert message in str([caught.value.message, *caught.value.details])


def test_mixed_types() -> None:
    with pytest.raises(ModelError, match="expected the same type"):
        run_ir("MatMul", [_random(2, 3), _random(3, 4, dtype=np.float64)], {})


_EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("ji,jk->ki", [(4, 3), (4, 5)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bthd,bshd->bhts", [(2, 4, 3, 5), (2, 6, 3, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (6, 4, 5)]),
    ("...ij->...ji", [(2, 3, 4)]),
    ("...", [(2, 3)]),
    ("i...->...", [(3, 2, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->j", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("iij->ji", [(3, 3, 4)]),
    ("iji,jj->ij", [(3, 4, 3), (4, 4)]),
    ("iii->i", [(3, 3, 3)]),
    ("i,i->", [(4,), (4,)]),
    ("i,j->ij", [(4,), (5,)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ij,ij->i", [(3, 4), (3, 4)]),
    ("ij,j->ij", [(3, 4), (4,)]),
    ("ij,kl->il", [(3, 4), (5, 6)]),
    ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)]),
    ("a,b,c->abc", [(2,), (3,), (4,)]),
    ("ab,cd,ef->fa", [(2, 3), (4, 5), (6, 7)]),
    ("ij,jk->ik", [(3, 1), (4, 5)]),
    ("ij,ij->ij", [(3, 1), (1, 4)]),
    ("b i, i j -> b j", [(2, 3), (3, 4)]),
    ("aB,Bc", [(2, 3), (3, 4)]),
    (",->", [(), ()]),
    ("ij,jk->ik", [(0, 4), (4, 5)]),
    ("ij,jk->ik", [(3, 0), (0, 5)]),
]


@pytest.mark.parametrize(("equation", "shapes"), _EQUATIONS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [_random(*shape) for shape in shapes]
    (actual,) = run_op("Einsum", operands, {"equation": equation}, opset=12)
    wanted = np.asarray(np.einsum(equation.replace(" ", ""), *operands))
    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


def test_einsum_of_the_same_operand() -> None:
    for equation in ("i,i->", "i,i,i->", "i,j->ij"):
        x = _random(4)
        operands = [x] * (equation.count(",") + 1)
        (actual,) = run_op("Einsum", operands, {"equation": equation}, opset=12)
        np.testing.assert_allclose(actual, np.einsum(equation, *operands), rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_einsum(data: st.DataObject) -> None:
    sizes = {"i": 2, "j": 3, "k": 4, "l": 2}
    labels = st.lists(st.sampled_from("ijkl"), max_size=4).map("".join)
    inputs = data.draw(st.lists(labels, min_size=1, max_size=3))
    known = sorted(set("".join(inputs)))
    output = "".join(data.draw(st.permutations(known)))[: data.draw(st.integers(0, len(known)))]
    equation = ",".join(inputs) + "->" + output
    operands = [_random(*(sizes[label] for label in part)) for part in inputs]
    (actual,) = run_op("Einsum", operands, {"equation": equation}, opset=12)
    np.testing.assert_allclose(actual, np.einsum(equation, *operands), rtol=1e-3, atol=1e-4)
