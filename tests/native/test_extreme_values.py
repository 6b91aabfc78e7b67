"""NaN, infinities and overflow at every place of a line, in both engines: docs/numerics.md.

A line of n numbers becomes n lines, each with the extreme at another place, so that vectors, what
is left over behind them and single elements all meet it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.format import Array, DType
from popc_runtime.native import Library
from tests.native.bindings import native_results, numpy_results
from tests.support.oracles import run_model

_NAN, _INF = math.nan, math.inf
_RNG: Final = np.random.default_rng(8)
_TYPES: Final = ("float32", "float64", "float16", "bfloat16")
_LENGTHS: Final = (1, 5, 41)


# -- what results have to be, for a line of Python floats ------------------------------------------


def _largest(line: Sequence[float]) -> float:
    return _NAN if any(map(math.isnan, line)) else max(line)


def _smallest(line: Sequence[float]) -> float:
    return _NAN if any(map(math.isnan, line)) else min(line)


def _order(line: Sequence[float], *, largest: bool) -> list[int]:
    """Places from first to last; NaN is larger than everything, and equals are in order."""

    def key(place: int) -> tuple[bool, float]:
        value = line[place]
        return math.isnan(value), 0.0 if math.isnan(value) else value

    if largest:
        return sorted(range(len(line)), key=lambda place: tuple(-item for item in key(place)))
    return sorted(range(len(line)), key=key)


def _place(line: Sequence[float], *, largest: bool) -> int:
    """NaN wins, whichever is looked for."""
    nans = [place for place, value in enumerate(line) if math.isnan(value)]
    return nans[0] if nans else _order(line, largest=largest)[0]


def _softmax(line: Sequence[float]) -> list[float]:
    x = np.array(line)
    with np.errstate(all="ignore"):
        e = np.exp(x - _largest(line))
        return [float(item) for item in e / e.sum()]


def _pooled(line: Sequence[float]) -> list[float]:
    return [_largest(line[max(0, at - 1) : at + 2]) for at in range(len(line))]


def _pooled_places(line: Sequence[float]) -> list[int]:
    starts = [max(0, at - 1) for at in range(len(line))]
    return [start + _place(line[start : at + 2], largest=True) for at, start in enumerate(starts)]


def _one_hot(line: Sequence[float]) -> list[float]:
    first = _place(line, largest=True)
    return [float(place == first) for place in range(len(line))]


def _between(line: Sequence[float]) -> list[float]:
    return [_NAN if math.isnan(number) else min(max(number, -0.5), 0.5) for number in line]


def _positive(line: Sequence[float]) -> list[float]:
    return [_NAN if math.isnan(number) else max(number, 0.0) for number in line]


@dataclass(frozen=True)
class _Case:
    """An instruction on lines along the last axis, and what it makes of a line."""

    opcode: str
    expected: Callable[[Sequence[float]], Any]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    integers: bool = False


_WINDOW: Final = {
    "kernel_shape": (1, 3),
    "strides": (1, 1),
    "pads": (0, 1, 0, 1),
    "dilations": (1, 1),
}
_FIRST: Final = {"select_last_index": 0}
_CASES: Final = (
    _Case("Relu", _positive),
    _Case("Clip", _between, {"min": -0.5, "max": 0.5}),
    _Case("ReduceMax", _largest, {"axes": (-1,), "keepdims": 1}),
    _Case("ReduceMin", _smallest, {"axes": (-1,), "keepdims": 1}),
    _Case("ArgMax", lambda line: _place(line, largest=True), _FIRST, integers=True),
    _Case("ArgMin", lambda line: _place(line, largest=False), _FIRST, integers=True),
    _Case("Softmax", _softmax),
    _Case("Hardmax", _one_hot),
    _Case("MaxPool", _pooled, _WINDOW),
)  # fmt: skip


def _lines(n: int, value: float, dtype: str) -> tuple[Array, Array]:
    """[n, n] with ``value`` at another place in each line, as stored and as float64."""
    x = _RNG.standard_normal((n, n))
    np.fill_diagonal(x, value)
    return _stored(x, dtype)


def _stored(x: Array, dtype: str) -> tuple[Array, Array]:
    if dtype == "bfloat16":
        rounded = x.astype(ml_dtypes.bfloat16)
        return rounded.view(np.uint16), rounded.astype(np.float64)
    narrow = x.astype(dtype)
    return narrow, narrow.astype(np.float64)


def _numbers(stored: Array, dtype: str) -> Array:
    if dtype == "bfloat16" and stored.dtype == np.uint16:
        wide: Array = stored.view(ml_dtypes.bfloat16).astype(np.float64)
        return wide
    return stored.astype(np.float64) if stored.dtype.kind == "f" else stored


def _layouts(x: Array) -> list[Array]:
    """The same numbers in order, in columns, backwards, and inside a wider buffer."""
    wide = np.zeros((x.shape[0] + 2, x.shape[1] + 3), x.dtype)
    wide[1:-1, 1:-2] = x
    backwards = np.ascontiguousarray(x[:, ::-1])[:, ::-1]
    return [x, np.ascontiguousarray(x.T).T, backwards, wide[1:-1, 1:-2]]


def _results(
    library: Library,
    opcode: str,
    x: Array,
    outputs: list[Array],
    attributes: Mapping[str, Any],
    dtype: str,
) -> list[list[Array]]:
    """Of numpy's engine, and of the native one if it has the instruction."""
    given = DType(dtype)
    types = [given, *(DType.INT64 if result.dtype == np.int64 else given for result in outputs)]
    both = [
        numpy_results(opcode, [x], outputs, attributes, (), types),
        native_results(library, opcode, [x], outputs, attributes, (), 2, types),
    ]
    return [got for got in both if got is not None]


def _axis(attributes: Mapping[str, Any], rank: int) -> dict[str, Any]:
    found = {"axis": rank - 1, **attributes}
    if "axes" in found:
        found["axes"] = (rank - 1,)
    return found


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.opcode)
def test_an_extreme_at_every_place(library: Library, case: _Case, dtype: str) -> None:
    for n in _LENGTHS:
        for value in (_NAN, -_NAN, _INF, -_INF):
            x, exact = _lines(n, value, dtype)
            want = np.array([case.expected(line.tolist()) for line in exact]).reshape(n, -1)
            for laid_out in _layouts(x):
                given = laid_out[None, None] if case.opcode == "MaxPool" else laid_out
                shape = (*given.shape[:-1], want.shape[1])
                out = np.zeros(shape, np.int64 if case.integers else x.dtype)
                attributes = _axis(case.attributes, given.ndim)
                for (got,) in _results(library, case.opcode, given, [out], attributes, dtype):
                    _assert_near(_numbers(got, dtype).reshape(want.shape), want, dtype)


def _assert_near(got: Array, want: Array, dtype: str) -> None:
    eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    smallest = float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(got, want, rtol=8 * eps, atol=smallest)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("largest", [0, 1])
def test_nan_is_the_largest_when_sorted(library: Library, largest: int, dtype: str) -> None:
    for n in _LENGTHS:
        for value in (_NAN, -_NAN, _INF, -_INF):
            x, exact = _lines(n, value, dtype)
            exact[:, n // 2] = exact[0, n // 2]
            x[:, n // 2] = x[0, n // 2]
            for k in {1, min(n, 3), n}:
                want = [_order(line.tolist(), largest=bool(largest))[:k] for line in exact]
                outputs = [np.zeros((n, k), x.dtype), np.zeros((n, k), np.int64)]
                attributes = {"axis": 1, "k": k, "largest": largest}
                for values, places in _results(library, "TopK", x, outputs, attributes, dtype):
                    np.testing.assert_array_equal(places, want)
                    found = np.take_along_axis(exact, np.array(want), 1)
                    np.testing.assert_array_equal(_numbers(values, dtype), found)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_places_of_maxima(library: Library, dtype: str) -> None:
    """NaN wins with Indices as without, and they say where the first is."""
    for n in _LENGTHS:
        for value in (_NAN, _INF, -_INF):
            x, exact = _lines(n, value, dtype)
            outputs = [np.zeros((1, 1, n, n), x.dtype), np.zeros((1, 1, n, n), np.int64)]
            attributes = {**_WINDOW, "storage_order": 0}
            want = np.array([_pooled(line.tolist()) for line in exact])
            places = [_pooled_places(line.tolist()) for line in exact]
            for got, indices in _results(
                library, "MaxPool", x[None, None], outputs, attributes, dtype
            ):
                np.testing.assert_array_equal(_numbers(got, dtype)[0, 0], want)
                np.testing.assert_array_equal(
                    indices[0, 0] - np.arange(0, n * n, n)[:, None], places
                )


_PAIRS: Final = {"Max": _largest, "Min": _smallest}


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("opcode", _PAIRS)
def test_the_larger_of_two(library: Library, opcode: str, dtype: str) -> None:
    for n in _LENGTHS:
        for value in (_NAN, _INF, -_INF):
            x, exact = _lines(n, value, dtype)
            other, exact_other = _stored(_RNG.standard_normal((n, n)), dtype)
            pairs = zip(exact.reshape(-1).tolist(), exact_other.reshape(-1).tolist(), strict=True)
            want = np.array([_PAIRS[opcode](pair) for pair in pairs]).reshape(n, n)
            types = [DType(dtype)] * 3
            out = [np.zeros((n, n), x.dtype)]
            for operands in ([x, other], [other, x], [_layouts(x)[3], _layouts(other)[1]]):
                both = [
                    numpy_results(opcode, operands, out, {}, (), types),
                    native_results(library, opcode, operands, out, {}, (), 2, types),
                ]
                for found in both:
                    if found is not None:
                        np.testing.assert_array_equal(_numbers(found[0], dtype), want)


# -- sums ------------------------------------------------------------------------------------------


def _reduced(opcode: str, line: Array, work: Any) -> float:
    """ONNX's definition, in numbers of type ``work``."""
    with np.errstate(all="ignore"):
        terms = np.square(line.astype(work)) if opcode == "ReduceL2" else line.astype(work)
        total = work(np.sum(terms.astype(np.longdouble)))
        if opcode == "ReduceMean":
            return float(total / work(line.size))
        return float(np.sqrt(total) if opcode == "ReduceL2" else np.log(total))


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("opcode", ["ReduceL2", "ReduceMean", "ReduceLogSum"])
def test_sums_that_are_too_large_are_infinite(library: Library, opcode: str, dtype: str) -> None:
    """Float16 and bfloat16 add up in float32."""
    work = np.float64 if dtype == "float64" else np.float32
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    for shape, axes in (((7,), (0,)), ((5, 40), (1,)), ((40, 5), (0,)), ((3, 6, 5), (0, 2))):
        values = np.full(shape, 0.75 * largest)
        values.flat[0] = 0
        x, exact = _stored(values, dtype)
        out_shape = tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
        lines = np.moveaxis(exact, axes, range(-len(axes), 0)).reshape(math.prod(out_shape), -1)
        want = np.array([_reduced(opcode, line, work) for line in lines])
        attributes = {"axes": axes, "keepdims": 1}
        with np.errstate(all="ignore"):
            want = _numbers(_stored(want, dtype)[0], dtype).reshape(out_shape)
        for (got,) in _results(
            library, opcode, x, [np.zeros(out_shape, x.dtype)], attributes, dtype
        ):
            _assert_near(_numbers(got, dtype), want, dtype)


# -- whole programs --------------------------------------------------------------------------------

_FOLLOWING: Final[dict[str, dict[str, Any]]] = {
    "Relu": {}, "LeakyRelu": {"alpha": 0.1}, "HardSwish": {}, "HardSigmoid": {}, "Sigmoid": {},
    "Elu": {}, "Tanh": {}, "Softplus": {},
}  # fmt: skip


def _program(op_type: str, dtype: str, columns: int) -> Any:
    """[columns, columns] times a matrix and an activation; beside it a chain of single steps."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    matrix = np.eye(columns, dtype=dtype)
    constants = [numpy_helper.from_array(matrix, "w")]
    constants += [
        numpy_helper.from_array(np.array(v, dtype), n) for n, v in (("lo", -1), ("hi", 1))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node(op_type, ["m"], ["y"], **_FOLLOWING[op_type]),
        helper.make_node("Max", ["x", "lo"], ["a"]),
        helper.make_node("Min", ["a", "hi"], ["b"]),
        helper.make_node(op_type, ["b"], ["c"], **_FOLLOWING[op_type]),
        helper.make_node("Clip", ["c", "lo", "hi"], ["d"]),
        helper.make_node("Add", ["d", "x"], ["z"]),
    ]
    x, *outputs = (helper.make_tensor_value_info(n, number, [columns, columns]) for n in "xyz")
    graph = helper.make_graph(nodes, "g", [x], outputs, constants)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("op_type", _FOLLOWING)
def test_fused_steps_keep_extremes(op_type: str, dtype: str, tmp_path: Path) -> None:
    """What is fused into products and chains, against each op by itself."""
    model = _program(op_type, dtype, 37)
    path = popc.compile(model).save(tmp_path / "m.popx")
    program = popc_runtime.load(path)
    for value in (_NAN, _INF, -_INF):
        x = _RNG.standard_normal((37, 37)).astype(dtype)
        np.fill_diagonal(x, value)
        with np.errstate(all="ignore"):
            want = run_model(model, {"x": x})
        for got, item in zip(program.run({"x": x}).values(), want, strict=True):
            eps = float(np.finfo(dtype).eps)
            np.testing.assert_allclose(got, item, rtol=16 * eps, atol=16 * eps)
