"""Gradients of recurrent layers where cases of one node do not reach: dtypes, padding, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from popc.autodiff import differentiate
from popc.ir import Graph, TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from tests.autodiff.cases_rnn import CASES
from tests.support.gradients import Case
from tests.support.oracles import import_graph, run_graph, run_ir, run_kernel

_LAYERS: Final = pytest.mark.parametrize("op_type", ["GRU", "LSTM", "RNN"])
_FUNCTIONS: Final = {
    "GRU": ("sigmoid", "tanh"),
    "LSTM": ("sigmoid", "tanh", "tanh"),
    "RNN": ("tanh",),
}
_GATES: Final = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _attributes(op_type: str, directions: int = 2) -> dict[str, Attribute]:
    functions = _FUNCTIONS[op_type] * directions
    return {
        "direction": "bidirectional" if directions == 2 else "forward",
        "activations": functions,
        "alphas": (0.0,) * len(functions),
        "betas": (0.0,) * len(functions),
        "clip": 0.0,
        "linear_before_reset": 1,
        "input_forget": 0,
        "keep": 1,
    }


def _values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-0.8, 0.8, shape).astype(np.float32)


def _layer(
    op_type: str, *, steps: int = 5, batch: int = 3, hidden: int = 2, directions: int = 2
) -> list[Array | None]:
    """X, W, R, bias of a layer of width 4."""
    rows = _GATES[op_type] * hidden
    return [
        _values(steps, batch, 4),
        _values(directions, rows, 4, seed=1),
        _values(directions, rows, hidden, seed=2),
        _values(directions, 2 * rows, seed=3),
    ]


def _gradient_operands(
    op_type: str, layer: list[Array | None], results: list[Array]
) -> list[Array | None]:
    """Those of the gradient op, the gradient of Y being random and the others absent."""
    kept = results[3 if op_type == "LSTM" else 2 :]
    gates = kept[1] if len(kept) > 1 else None
    grad_y = _values(*results[0].shape, seed=4)
    lengths = layer[4] if len(layer) > 4 else None
    return [*layer[:3], None, lengths, None, None, None, kept[0], gates, grad_y]


@_LAYERS
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_half_precision(op_type: str, dtype: DType) -> None:
    """Computed in float32 from what the forward pass kept in float32, and rounded once."""
    layer = _layer(op_type)
    attributes = _attributes(op_type)
    results = run_ir(op_type, layer, attributes)
    operands = _gradient_operands(op_type, layer, results)
    wanted: Mapping[str, Attribute] = {**attributes, "wanted": (0, 1, 2, 3)}
    expected = run_ir(f"{op_type}Grad", operands, wanted)
    halves = [index for index in range(len(operands)) if index not in (4, 8, 9)]
    types = [None if x is None else TensorType(DType.of(x.dtype), x.shape) for x in operands]
    for index in halves:
        x = operands[index]
        if x is not None:
            operands[index] = to_bfloat16(x) if dtype is DType.BFLOAT16 else x.astype(np.float16)
            types[index] = TensorType(dtype, x.shape)
    actual = run_kernel(f"{op_type}Grad", operands, types, wanted, [False] * len(operands))
    for a, b in zip(actual, expected, strict=True):
        shown = from_bfloat16(a) if dtype is DType.BFLOAT16 else a
        np.testing.assert_allclose(shown, b, rtol=0, atol=0.04 * np.abs(b).max())


@_LAYERS
def test_what_is_kept_is_float32(op_type: str) -> None:
    layer = [TensorType(DType.FLOAT16, x.shape) for x in _layer(op_type) if x is not None]
    *_, states = infer_types(op_type, layer, _attributes(op_type))
    assert states.dtype is DType.FLOAT32


@_LAYERS
def test_strided_operands(op_type: str) -> None:
    layer = _layer(op_type)
    attributes = _attributes(op_type)
    results = run_ir(op_type, layer, attributes)
    operands = _gradient_operands(op_type, layer, results)
    wanted: Mapping[str, Attribute] = {**attributes, "wanted": (0, 1, 2, 3)}
    expected = run_ir(f"{op_type}Grad", operands, wanted)
    strided = [None if x is None else np.asfortranarray(x) for x in operands]
    for a, b in zip(run_ir(f"{op_type}Grad", strided, wanted), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@_LAYERS
@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_padding_does_not_matter(op_type: str, linear_before_reset: int) -> None:
    """Nor does what the gradient of the padded output is."""
    layer = [*_layer(op_type), np.array([2, 5, 3])]
    attributes = {**_attributes(op_type), "linear_before_reset": linear_before_reset}
    wanted: Mapping[str, Attribute] = {**attributes, "wanted": (0, 1, 2, 3)}
    found: list[list[Array]] = []
    for padding in (0.0, np.nan):
        x = layer[0]
        assert x is not None
        x[2:, 0] = x[3:, 2] = padding
        operands = _gradient_operands(op_type, layer, run_ir(op_type, layer, attributes))
        grad_y = operands[10]
        assert grad_y is not None
        grad_y[2:, :, 0] = padding
        found.append(run_ir(f"{op_type}Grad", operands, wanted))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not found[0][0][2:, 0].any()


@_LAYERS
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (2, 0)])
def test_no_elements(op_type: str, steps: int, batch: int) -> None:
    layer = _layer(op_type, steps=steps, batch=batch)
    attributes = _attributes(op_type)
    operands = _gradient_operands(op_type, layer, run_ir(op_type, layer, attributes))
    wanted: Mapping[str, Attribute] = {**attributes, "wanted": (0, 1, 2, 3)}
    dx, *others = run_ir(f"{op_type}Grad", operands, wanted)
    assert dx.shape == (steps, batch, 4)
    assert not any(x.any() for x in others)


@_LAYERS
def test_threads(op_type: str) -> None:
    """The shares of the large products give what one thread gives."""
    layer = _layer(op_type, steps=32, batch=16, hidden=96, directions=1)
    attributes = _attributes(op_type, directions=1)
    operands = _gradient_operands(op_type, layer, run_ir(op_type, layer, attributes))
    types = [None if x is None else TensorType(DType.of(x.dtype), x.shape) for x in operands]
    wanted: Mapping[str, Attribute] = {**attributes, "wanted": (0, 1, 2, 3)}
    found: list[list[Array]] = []
    for threads in (1, 3):
        outputs = [
            np.empty(type_.shape, type_.dtype.storage)
            for type_ in infer_types(f"{op_type}Grad", types, wanted)
        ]
        binding = Binding(
            inputs=tuple(operands),
            outputs=tuple(outputs),
            input_dtypes=tuple(None if type_ is None else type_.dtype for type_ in types),
            output_dtypes=(DType.FLOAT32,) * len(outputs),
            attributes=wanted,
            constant=(False,) * len(operands),
            scratch=Scratch(threads),
            random=RandomState(),
        )
        for call in prepare(KERNELS[f"{op_type}Grad"], binding):
            call()
        found.append(outputs)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def _graph(case: Case) -> Graph:
    return import_graph(case.model())


@_LAYERS
def test_two_losses_share_what_is_kept(op_type: str) -> None:
    case = next(case for case in CASES if str(case) == f"{op_type}-full")
    graph = _graph(case)
    y, *_ = graph.outputs
    seed = graph.add_constant("seed", y.type, np.ones(y.type.shape))
    x = graph.tensors["x0"]
    first = differentiate(graph, {y: seed}, [x])[x]
    count = len(y.producer.outputs) if y.producer is not None else 0
    second = differentiate(graph, {y: seed}, [x])[x]
    assert y.producer is not None
    assert len(y.producer.outputs) == count
    graph.outputs = [first, second]
    a, b = run_graph(graph, case.feeds())
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("function", ["Elu", "LeakyRelu"])
def test_functions_whose_value_does_not_tell_the_slope(function: str) -> None:
    case = next(case for case in CASES if str(case) == "RNN-full")
    attributes: dict[str, Any] = {"activations": [function], "activation_alpha": [-0.5]}
    graph = _graph(replace(case, attributes={**case.attributes, **attributes}))
    y, *_ = graph.outputs
    seed = graph.add_constant("seed", y.type, np.ones(y.type.shape))
    with pytest.raises(ModelError, match=r"alpha = -0\.5 < 0 cannot be differentiated"):
        differentiate(graph, {y: seed}, [graph.tensors["x0"]])
