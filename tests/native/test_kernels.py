"""Every native kernel gives what numpy gives, on all shapes, strides and alignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, native_opcodes
from tests.native.bindings import numpy_results, steady_results, translated_results
from tests.native.convolutions import convolution
from tests.native.families.test_dynamic import DYNAMIC
from tests.native.families.test_elementwise import ARITHMETIC
from tests.native.families.test_elementwise_types import TYPED
from tests.native.families.test_fused import FUSED
from tests.native.families.test_integer import QUANTIZED
from tests.native.families.test_movement import MOVED
from tests.native.families.test_pool import POOLED
from tests.native.families.test_random import DRAWN
from tests.native.families.test_regions import SAMPLED
from tests.native.gradients import GRADIENTS
from tests.native.placed import PLACED
from tests.native.test_analysis import ANALYSED
from tests.native.test_channels import CHANNELLED
from tests.native.test_layers import LAYERS

_UNARY: dict[str, dict[str, Any]] = {
    "Abs": {},
    "Ceil": {},
    "Celu": {"alpha": 1.5},
    "Clip": {"min": -0.5, "max": 0.75},
    "Elu": {"alpha": 1.5},
    "Erf": {},
    "Exp": {},
    "FakeQuantize": {"scale": 0.1, "low": -5.0, "high": 7.0},
    "Floor": {},
    "Gelu": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "HardSwish": {},
    "LeakyRelu": {"alpha": 0.1},
    "Log": {},
    "Mish": {},
    "Neg": {},
    "Reciprocal": {},
    "Relu": {},
    "Round": {},
    "Selu": {},
    "Shrink": {"bias": 0.25, "lambd": 0.75},
    "Sigmoid": {},
    "Softplus": {},
    "Sqrt": {},
    "Square": {},
    "Swish": {"alpha": 1.2},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 0.7},
}
_SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.5, -88.5, 104, -104, 3e38, -3e38]


def _layouts(array: Array) -> dict[str, Array]:
    """The same numbers, laid out differently."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    wide[..., 1::2] = array
    return {
        "contiguous": np.ascontiguousarray(array),
        "transposed": np.ascontiguousarray(array.T).T,
        "every other": wide[..., 1::2],
        "backwards": np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
    }


def _numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return random.standard_normal(shape).astype(dtype) * 3
    return random.integers(0, 2 if dtype == "bool" else 50, shape).astype(dtype)


def _compare(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
    constant: Sequence[int] = (),
    rtol: float = 2e-6,
    atol: float = 2e-6,
) -> None:
    expected = numpy_results(opcode, inputs, outputs, attributes, constant)
    results = steady_results(library, opcode, inputs, outputs, attributes, constant)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "every other", "backwards"])
@pytest.mark.parametrize("opcode", sorted(_UNARY))
@np.errstate(all="ignore")
def test_maps_of_one_operand(library: Library, opcode: str, layout: str) -> None:
    x = _numbers(13, 37)
    x.flat[: len(_SPECIAL)] = _SPECIAL
    if opcode in ("Log", "Sqrt"):
        x = np.abs(x)
    x = _layouts(x)[layout]
    _compare(library, opcode, [x], [np.empty(x.shape, np.float32)], _UNARY[opcode])


@np.errstate(all="ignore")
def test_gelu_by_tanh(library: Library) -> None:
    x = _numbers(7, 100)
    _compare(library, "Gelu", [x], [x], {"approximate": "tanh"})


@pytest.mark.parametrize(
    "shapes", [((5, 1, 7), (3, 7)), ((4, 6), (6,)), ((6,), (4, 6)), ((), (9,))]
)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize(
    "opcode",
    ["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Equal", "Less", "GreaterOrEqual"],
)
def test_maps_of_two_operands(
    library: Library, opcode: str, dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    if dtype != "float32" and opcode in ("Div", "Max", "Min", "PRelu"):
        pytest.skip("numpy computes it")
    left, right = (_numbers(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes))
    compares = opcode in ("Equal", "Less", "GreaterOrEqual")
    shape = np.broadcast_shapes(*shapes)
    if opcode == "PRelu" and shape != left.shape:
        pytest.skip("a slope does not broadcast its operand")
    out = np.empty(shape, np.bool_ if compares else dtype)
    _compare(library, opcode, [left, right], [out], {})


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_where(library: Library, dtype: str) -> None:
    condition = _numbers(4, 1, 5, dtype="bool")
    a, b = _numbers(4, 3, 5, dtype=dtype), _numbers(3, 1, seed=1, dtype=dtype)
    _compare(library, "Where", [condition, a, b], [np.empty((4, 3, 5), dtype)], {})


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_convolutions(data: st.DataObject) -> None:
    from popc_runtime.native import find_library

    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    x, w, out, attributes = convolution(data)
    attributes["activation"] = data.draw(st.sampled_from(["", "Relu", "HardSwish"]), label="then")
    bias = _numbers(len(w), seed=2) if data.draw(st.booleans(), label="bias") else None
    residual = _numbers(*out.shape, seed=3) if data.draw(st.booleans(), label="residual") else None
    constant = (1, 2) if data.draw(st.booleans(), label="constant") else ()
    _compare(library, "Conv", [x, w, bias, residual], [out], attributes, constant, 1e-4, 1e-3)


@pytest.mark.parametrize("opcode", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("size", "taps", "stride", "pads", "dilation"),
    [
        ((17,), (3,), (2,), (1, 1), (1,)),
        ((16, 19), (3, 2), (2, 1), (1, 0, 1, 1), (1, 1)),
        ((16, 40), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        ((16, 19), (2, 2), (2, 3), (0, 0, 0, 0), (2, 1)),
        ((5, 6, 7), (2, 2, 3), (2, 1, 2), (0, 1, 1, 1, 0, 1), (1, 1, 1)),
    ],
)
def test_pools(
    library: Library,
    opcode: str,
    size: tuple[int, ...],
    taps: tuple[int, ...],
    stride: tuple[int, ...],
    pads: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:
    rank = len(size)
    results = [
        (size[i] + pads[i] + pads[i + rank] - (taps[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i in range(rank)
    ]
    x, out = _numbers(2, 3, *size), np.empty((2, 3, *results), np.float32)
    attributes = {"kernel_shape": taps, "strides": stride, "pads": pads, "dilations": dilation}
    for include in (0, 1):
        _compare(library, opcode, [x], [out], {**attributes, "count_include_pad": include})


@pytest.mark.parametrize(
    "shape",
    [
        *((1, 1), (3, 5), (70, 33), (4, 257), (9, 1000)),
        *((127, 3), (128, 7), (129, 1), (3000, 2), (300, 31), (5, 32)),  # rows that are turned
    ],
)
@pytest.mark.parametrize("opcode", ["Softmax", "LogSoftmax"])
def test_softmax(library: Library, opcode: str, shape: tuple[int, int]) -> None:
    x = _numbers(*shape)
    _compare(library, opcode, [x], [x], {"axis": 1}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (70, 33), (4, 257), (9, 1000)])
@pytest.mark.parametrize("opcode", ["LayerNormalization", "RMSNormalization"])
def test_normalisation(library: Library, opcode: str, shape: tuple[int, int]) -> None:
    x, scale, bias = _numbers(*shape) + 10, _numbers(shape[1], seed=1), _numbers(shape[1], seed=2)
    inputs = [x, scale, bias] if opcode.startswith("L") else [x, scale]
    _compare(library, opcode, inputs, [x], {"axis": 1, "epsilon": 1e-5}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (1, 2), (0, 1), (0, 1, 2)])
@pytest.mark.parametrize("opcode", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])
def test_reductions(library: Library, opcode: str, axes: tuple[int, ...]) -> None:
    x = _numbers(5, 7, 131)
    x[0, 0, 0] = np.nan
    out = np.empty([1 if axis in axes else size for axis, size in enumerate(x.shape)], np.float32)
    _compare(library, opcode, [x], [out], {"axes": axes, "keepdims": 1}, rtol=1e-4, atol=1e-4)


def test_sums_of_squares(library: Library) -> None:
    x, attributes = _numbers(5, 131), {"axes": (1,), "keepdims": 1}
    _compare(library, "ReduceSumSquare", [x], [np.empty((5, 1), np.float32)], attributes,
             rtol=1e-4, atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(library: Library, dtype: str, axis: int) -> None:
    x = _numbers(4, 5, 6, dtype=dtype)
    many = np.random.default_rng(0).integers(-4, 4, (30, 20))
    for indices in (np.array([[0, -1], [3, -4]]), np.array([[2]]), np.array(-3), many, many.T):
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        for laid in (x, np.ascontiguousarray(x.T).T, np.repeat(x, 2, axis=1)[:, ::2]):
            for constant in ((), (0,)):
                out = np.empty(shape, dtype)
                _compare(library, "Gather", [laid, indices], [out], {"axis": axis}, constant)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given_state", [False, True])
@pytest.mark.parametrize(("steps", "batch", "width", "hidden"), [(1, 1, 3, 5), (7, 2, 20, 33)])
@pytest.mark.parametrize(("opcode", "late"), [("LSTM", 0), ("GRU", 0), ("GRU", 1)])
def test_recurrent_layers(
    library: Library,
    opcode: str,
    late: int,
    steps: int,
    batch: int,
    width: int,
    hidden: int,
    *,
    given_state: bool,
    direction: str,
) -> None:
    ways, gates = 2 if direction == "bidirectional" else 1, 4 if opcode == "LSTM" else 3
    x = _numbers(steps, batch, width) / 3
    w = _numbers(ways, gates * hidden, width, seed=1) / 9
    r = _numbers(ways, gates * hidden, hidden, seed=2) / 9
    inputs: list[Array | None] = [x, w, r]
    states = 2 if opcode == "LSTM" else 1
    if given_state:
        lengths = np.arange(steps, steps - batch, -1).astype(np.int32) if batch > 1 else None
        inputs += [_numbers(ways, 2 * gates * hidden, seed=3), lengths]
        inputs += [_numbers(ways, batch, hidden, seed=4 + i) for i in range(states)]
    functions = ("sigmoid", "tanh", "tanh") if opcode == "LSTM" else ("sigmoid", "tanh")
    attributes = {
        "direction": direction,
        "activations": functions * ways,
        "alphas": (0.0,) * len(functions) * ways,
        "betas": (0.0,) * len(functions) * ways,
        "clip": 0.0,
        "input_forget": 0,
        "linear_before_reset": late,
    }
    outputs = [np.empty((steps, ways, batch, hidden), np.float32)]
    outputs += [np.empty((ways, batch, hidden), np.float32) for _ in range(states)]
    _compare(library, opcode, inputs, outputs, attributes, (1, 2, 3), 1e-4, 1e-5)


_MOVES: list[tuple[str, list[tuple[int, ...]], tuple[int, ...], dict[str, Any]]] = [
    ("Transpose", [(5, 6, 7)], (7, 5, 6), {"perm": (2, 0, 1)}),
    ("Transpose", [(70, 90)], (90, 70), {"perm": (1, 0)}),
    ("Concat", [(2, 3, 4), (2, 5, 4)], (2, 8, 4), {"axis": 1}),
    ("Slice", [(9, 8)], (3, 4), {"starts": (8, 1), "sizes": (3, 4), "steps": (-3, 2)}),
    ("Expand", [(3, 1, 5)], (2, 3, 4, 5), {"shape": (2, 3, 4, 5)}),
    ("Tile", [(3, 5)], (6, 15), {"repeats": (2, 3)}),
    ("Pad", [(3, 5)], (6, 6), {"pads": (1, 0, 2, 1), "mode": "reflect"}),
    ("Copy", [(4, 5)], (4, 5), {}),
]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64"])
@pytest.mark.parametrize(("opcode", "shapes", "result", "attributes"), _MOVES)
def test_calls_that_are_translated(
    library: Library,
    opcode: str,
    shapes: list[tuple[int, ...]],
    result: tuple[int, ...],
    attributes: dict[str, Any],
    dtype: str,
) -> None:
    inputs = [_numbers(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]
    outputs = [np.empty(result, dtype)]
    expected = numpy_results(opcode, inputs, outputs, attributes)
    results = translated_results(library, opcode, inputs, outputs, attributes)
    assert results is not None, "a call has no native form"
    assert results[0].tobytes() == expected[0].tobytes()


def test_every_native_opcode_is_tested_here() -> None:
    here = {
        *_UNARY,
        *("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Where", "MatMul", "Gemm"),
        *("Ctc", "ExpertMatMul", "ExpertMatMulNBits", "MatMulNBits"),
        "RemoteGather",  # see tests/streaming/test_rows.py and test_every_instruction.py
        "TreeEnsemble",  # see tests/ops/test_trees.py and test_every_instruction.py
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not"),
        *("MaxPool", "AveragePool", "Softmax", "LogSoftmax", "LayerNormalization", "Cast"),
        *("RMSNormalization", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "Gather"),
        *("ReduceSumSquare", "LSTM", "GRU", "Attention", "Sum", "Conv"),
        *("CheckSize", "PlacesWithin", "NonMaxSuppression", "NonZero", "Unique"),  # test_sizes
        "DynamicQuantizeLSTM",  # test_rnn_bytes
        "LinearAttention",  # test_rnn_linear
    }
    assert (
        native_opcodes()
        <= here
        | ANALYSED
        | ARITHMETIC
        | CHANNELLED
        | DYNAMIC
        | FUSED
        | GRADIENTS
        | LAYERS
        | POOLED
        | MOVED
        | SAMPLED
        | PLACED
        | QUANTIZED
        | TYPED
        | DRAWN
    )


@pytest.mark.parametrize("opcode", ["And", "Or", "Xor", "Not"])
def test_logic(library: Library, opcode: str) -> None:
    inputs = [_numbers(4, 9, seed=i, dtype="bool") for i in range(1 if opcode == "Not" else 2)]
    _compare(library, opcode, inputs, [np.empty((4, 9), np.bool_)], {})


@pytest.mark.parametrize(
    ("source", "target"),
    [("int32", "float32"), ("int64", "float32"), ("uint8", "float32"), ("bool", "float32"),
     ("int32", "int64"), ("int64", "int32")],
)  # fmt: skip
def test_casts(library: Library, source: str, target: str) -> None:
    x = _numbers(4, 9, dtype=source)
    _compare(library, "Cast", [x], [np.empty((4, 9), target)], {"to": target})
