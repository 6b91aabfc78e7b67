"""What `add_updates` adds to a graph: names, state, shared scalars, and types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popc.ir import (
    Graph,
    TensorType,
    VariableRole,
    format_graph,
    verify,
)
from popc.ops.build import build
from popc.optimizers import (
    Sharing,
    UpdateContext,
    add_loss_scale_update,
    loss_scale,
    parse_optimizer,
)
from popc.options import MeanStrategy, Reduction
from popc_runtime.errors import OptionError
from popc_runtime.format import DType
from popc_runtime.kernels.core.stored import from_bfloat16
from tests.optimizers.network import (
    bits,
    gradients,
    initial_weights,
    run_update,
    train,
    update_graph,
)

_WEIGHTS = initial_weights()

# type and settings -> variables of each weight
_STATES: list[tuple[dict[str, Any], list[str]]] = [
    ({"type": "sgd"}, []),
    ({"type": "sgd", "momentum": 0.5}, ["Accl___"]),
    ({"type": "sgd", "momentum": [0.0, False]}, ["Accl___"]),
    ({"type": "sgd", "momentum": 0.5, "accumulator_and_momentum": "separate"}, ["Accl1___"]),
    ({"type": "adam"}, ["Accl1___", "Accl2___", "Step___"]),
    ({"type": "lamb"}, ["Accl1___", "Accl2___", "Step___"]),
    ({"type": "adamax"}, ["Accl1___", "Accl2___", "Step___"]),
    ({"type": "lamb_no_bias"}, ["Accl1___", "Accl2___"]),
    ({"type": "adagrad"}, ["Accl1___"]),
    ({"type": "rmsprop", "momentum": 0.5}, ["Accl1___", "Accl3___"]),
    ({"type": "centered_rmsprop"}, ["Accl1___", "Accl2___"]),
    ({"type": "adadelta"}, ["Accl1___", "Accl2___"]),
]


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize(("settings", "prefixes"), _STATES, ids=str)
def test_state(settings: dict[str, Any], prefixes: list[str], micro_batches: int) -> None:
    graph, result = update_graph(settings, _WEIGHTS, accumulation_factor=micro_batches)
    verify(graph)
    for weight, updated in zip(_WEIGHTS, result.weights, strict=True):
        assert updated.weight == weight
        assert updated.states == tuple(f"{prefix}{weight}" for prefix in prefixes)
        for name in (weight, *updated.states):
            (copy,) = [
                op
                for op in graph.tensors[name].users
                if op.op_type == "CopyVarUpdate" and op.operand(0).name == name
            ]
            assert copy.operand(1).name == f"UpdatedVar___{name}"
        for name in updated.states:
            assert graph.tensors[name].role is VariableRole.OPTIMIZER_STATE
    accumulated = [op for op in graph.ops if op.op_type == "Accumulate"]
    assert len(accumulated) == (len(_WEIGHTS) if micro_batches > 1 else 0)
    if "Accl___" in prefixes and micro_batches > 1:
        assert all(op.operand(1).name.startswith("Accl___") for op in accumulated)


def test_scalars_are_shared() -> None:
    graph, result = update_graph(
        {
            "type": "sgd",
            "learning_rate": [0.1, False],
            "weight_decay": 0.01,
            "loss_scaling": [4.0, False],
            "specific": [{"tensors": ["b*"], "weight_decay": [0.0, False]}],
        },
        _WEIGHTS,
    )
    verify(graph)
    assert [
        (parameter.name, parameter.group, parameter.value, parameter.variable)
        for parameter in result.hyper_parameters
    ] == [
        ("loss_scaling", "default", 4.0, "lossScaling_FLOAT"),
        ("learning_rate", "default", 0.1, "learningRate___default___FLOAT"),
        ("weight_decay", "default", 0.01, ""),
        ("weight_decay", "b*", 0.0, "weightDecay___specific___b*"),
        ("dampening", "default", 0.0, ""),
    ]
    hyper = [
        variable for variable in graph.variables if variable.role is VariableRole.HYPER_PARAMETER
    ]
    assert len(hyper) == 3
    assert all(variable.type.shape == () and variable.initial is not None for variable in hyper)
    updates = {op.operand(0).name: op for op in graph.ops if op.op_type == "SGD0VarUpdate"}
    rates = {op.operand(2).name for op in updates.values()}
    assert rates == {"scaledLearningRate0___default___FLOAT"}
    assert updates["b1"].operand(3) is updates["b2"].operand(3)
    assert updates["b1"].operand(3).name == "weightDecayScaleFactor0___specific___b*"
    assert updates["w1"].operand(3).name == "weightDecayScaleFactor0___default___FLOAT"
    scalars = [op for op in graph.ops if op.op_type in ("Mul", "Sub", "Div")]
    assert len(scalars) == 6  # 1 / scale, rate / scale, and two each for the decays


def test_constants_are_no_ops() -> None:
    graph, _ = update_graph({"type": "adamw", "weight_decay": 0.1}, {"w": _WEIGHTS["w1"]})
    assert format_graph(graph).splitlines()[5:-3] == [
        (
            "  %UpdatedVar___Accl1___w: float32[6,5] = AccumulateMoment($Accl1___w, %Gradient___w, "
            "float64(0.9), float64(1.0)) kind='moving_average'"
        ),
        (
            "  %UpdatedVar___Accl2___w: float32[6,5] = AccumulateMoment($Accl2___w, %Gradient___w, "
            "float64(0.999), float64(1.0)) kind='moving_average_square'"
        ),
        "  %UpdatedVar___Step___w: float32[] = Add($Step___w, float32(1.0))",
        "  CopyVarUpdate($Accl1___w, %UpdatedVar___Accl1___w)",
        "  CopyVarUpdate($Accl2___w, %UpdatedVar___Accl2___w)",
        (
            "  %UpdatedVar___w: float32[6,5] = AdamVarUpdate($w, %UpdatedVar___Accl1___w, "
            "%UpdatedVar___Accl2___w, float64(0.1), float64(0.99), float64(0.9), float64(0.999), "
            "float64(1e-06), %UpdatedVar___Step___w) mode='adam'"
        ),
        "  CopyVarUpdate($Step___w, %UpdatedVar___Step___w)",
    ]


def test_a_later_entry_wins() -> None:
    settings = {
        "type": "sgd",
        "learning_rate": 0.5,
        "specific": [
            {"tensors": ["*1"], "learning_rate": 0.25, "weight_decay": 0.5},
            {"tensors": ["w1"], "learning_rate": 0.125},
        ],
    }
    weights = train(settings, steps=1).weights
    found = gradients(_WEIGHTS, 0)
    for name, rate, decay in [
        ("w1", 0.125, 0.5),
        ("b1", 0.25, 0.5),
        ("w2", 0.5, 0.0),
        ("b2", 0.5, 0.0),
    ]:
        expected = _WEIGHTS[name] * (1 - rate * decay) - rate * found[name]
        np.testing.assert_allclose(weights[name], expected, rtol=1e-6)


def test_clip_groups() -> None:
    settings = {
        "type": "sgd",
        "learning_rate": 1.0,
        "clip_norm": [{"max_norm": 0.01, "tensors": ["w*"]}, {"max_norm": 9, "tensors": ["b1"]}],
    }
    trained = train(settings, steps=1)
    assert trained.result.clip_norms == ("0.01: w*", "9: b1")
    found = gradients(_WEIGHTS, 0)
    norm = np.sqrt((found["w1"] ** 2).sum() + (found["w2"] ** 2).sum())
    for name in _WEIGHTS:
        factor = 0.01 / norm if name.startswith("w") else 1.0
        expected = _WEIGHTS[name] - factor * found[name]
        np.testing.assert_allclose(trained.weights[name], expected, rtol=1e-5, atol=1e-7)


def test_unknown_weights() -> None:
    with pytest.raises(OptionError) as caught:
        update_graph(
            {
                "type": "sgd",
                "specific": [{"tensors": ["weight1", "w1"]}, {"tensors": ["layers.*"]}],
                "clip_norm": [
                    {"max_norm": 1, "tensors": ["*1"]},
                    {"max_norm": 1, "tensors": ["ww2"]},
                    {"max_norm": 1, "tensors": ["w*"]},
                ],
            },
            _WEIGHTS,
        )
    assert caught.value.details == (
        "optimizer.specific[0].tensors: 'weight1' matches no trained weight",
        "optimizer.specific[1].tensors: 'layers.*' matches no trained weight",
        "optimizer.clip_norm[1].tensors: 'ww2' matches no trained weight: did you mean w2?",
        "'w1' is in clip_norm[0] and in clip_norm[2]: its gradient can have one bound only",
    )


def test_a_new_learning_rate() -> None:
    settings = {"type": "adam", "learning_rate": [0.1, False]}
    name = "learningRate___default___FLOAT"
    still = train(settings, steps=4, changes={2: {name: 0.0}})
    stopped = train(settings, steps=2)
    for weight, value in stopped.weights.items():
        np.testing.assert_array_equal(still.weights[weight], value)
    assert still.variables["Step___w1"] == 4


def test_the_first_step_without_gradient_leaves_the_weight() -> None:
    """No 0 / 0: a learning rate that starts at 0 meets moments that are 0."""
    graph, _ = update_graph({"type": "adam", "learning_rate": [0.0, False]}, {"w": _WEIGHTS["w1"]})
    variables = {"w": _WEIGHTS["w1"]}
    run_update(graph, [{"Gradient___w": np.zeros_like(_WEIGHTS["w1"])}], variables)
    np.testing.assert_array_equal(variables["w"], _WEIGHTS["w1"])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("settings", "prefixes"), _STATES, ids=str)
def test_half_weights(settings: dict[str, Any], prefixes: list[str], dtype: Any) -> None:
    """State of Adam and adaptive methods is float32; the result is near that of float32."""
    settings = {**settings, "learning_rate": 0.01}
    wide = initial_weights(dtype)
    exact = {name: value.astype(np.float32) for name, value in wide.items()}
    graph, result = update_graph(settings, wide, accumulation_factor=2)
    reference, _ = update_graph(settings, exact, accumulation_factor=2)
    verify(graph)
    variables = {name: bits(value) for name, value in wide.items()}
    for step in range(3):
        found = [gradients(exact, step, index) for index in range(2)]
        rounded = [{name: g.astype(dtype) for name, g in got.items()} for got in found]
        run_update(graph, [_feeds(item) for item in rounded], variables)
        run_update(
            reference,
            [_feeds({name: g.astype(np.float32) for name, g in item.items()}) for item in rounded],
            exact,
        )
    spacing = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    for name, value in wide.items():
        found_weight = variables[name]
        actual = from_bfloat16(found_weight) if dtype is ml_dtypes.bfloat16 else found_weight
        np.testing.assert_allclose(actual, exact[name], rtol=8 * spacing, atol=2 * spacing)
        assert graph.tensors[name].type.dtype is DType.of(value.dtype)
    moments = {"Accl1___", "Accl2___"} & set(prefixes)
    for prefix in moments - ({"Accl1___"} if settings["type"] == "sgd" else set()):
        assert graph.tensors[f"{prefix}w1"].type.dtype is DType.FLOAT32
    assert len(result.weights) == len(wide)


def _feeds(found: dict[str, Any]) -> dict[str, Any]:
    return {f"Gradient___{name}": bits(g) for name, g in found.items()}


def test_types_of_state() -> None:
    settings = {
        "type": "adadelta",
        "momentum": 0.5,
        "accum_type": "float32",
        "accl1_type": "float16",
        "accl2_type": "float64",
        "accl3_type": "float32",
    }
    graph, _ = update_graph(settings, initial_weights(np.float16), accumulation_factor=2)
    verify(graph)
    expected = {"Accum___w1": "float32", "Accl1___w1": "float16", "Accl2___w1": "float64"}
    expected["Accl3___w1"] = "float32"
    assert {name: graph.tensors[name].type.dtype.value for name in expected} == expected


def test_float64_weights_have_float64_moments() -> None:
    graph, _ = update_graph({"type": "adam"}, initial_weights(np.float64))
    assert graph.tensors["Accl1___w1"].type.dtype is DType.FLOAT64


# -- loss scale ------------------------------------------------------------------------------------


def _scaled_graph(period: int, factor: int, **settings: Any) -> Graph:
    """A graph with two gradients and a loss scale that adapts itself."""
    spec = parse_optimizer(
        {
            "type": "sgd",
            "loss_scaling": [8.0, False],
            "automatic_loss_scaling": {
                "threshold_upper_count_proportion": 0.3,
                "update_period": period,
                **settings,
            },
        }
    )
    graph = Graph("scaled")
    for name in ("a", "b"):
        graph.add_input(f"Gradient___{name}", _type())
    scale = loss_scale(graph, spec)
    assert not isinstance(scale, float)
    assert scale.name == "finalLossScale"
    graph.add_output("scale", scale)
    add_loss_scale_update(graph, spec, accumulation_factor=factor)
    verify(graph)
    return graph


def _type() -> TensorType:
    return TensorType(DType.FLOAT16, (4,))


_EDGE = 65504 * 0.125
_SMALL, _LARGE = np.full(4, _EDGE, np.float16), np.full(4, -2 * _EDGE, np.float16)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_loss_scale_adapts(micro_batches: int) -> None:
    graph = _scaled_graph(1, micro_batches)
    variables: dict[str, Any] = {}
    factors = []
    for a in (_SMALL, _SMALL, _LARGE, _SMALL):
        feeds = {"Gradient___a": a, "Gradient___b": _SMALL}
        run_update(graph, [feeds] * micro_batches, variables)
        factors.append(float(variables["lossScaleUpdateFactor"]))
    assert factors == [2, 4, 2, 4]


def test_not_a_number_counts_as_too_large() -> None:
    graph = _scaled_graph(1, 1)
    variables: dict[str, Any] = {}
    nans = np.full(4, np.nan, np.float16)
    run_update(graph, [{"Gradient___a": nans, "Gradient___b": _SMALL}], variables)
    assert variables["lossScaleUpdateFactor"] == 0.5


def test_update_period() -> None:
    graph = _scaled_graph(3, 1)
    variables: dict[str, Any] = {}
    factors = []
    for _ in range(7):
        run_update(graph, [{"Gradient___a": _SMALL, "Gradient___b": _SMALL}], variables)
        factors.append(float(variables["lossScaleUpdateFactor"]))
    assert factors == [2, 2, 2, 4, 4, 4, 8]


def test_tracked_tensors() -> None:
    graph = _scaled_graph(1, 1, to_track_tensors=["b"])
    variables: dict[str, Any] = {}
    run_update(graph, [{"Gradient___a": _LARGE, "Gradient___b": _SMALL}], variables)
    assert variables["lossScaleUpdateFactor"] == 2
    with pytest.raises(OptionError) as caught:
        _scaled_graph(1, 1, to_track_tensors=["c"])
    assert "to_track_tensors: 'c' has no gradient" in str(caught.value)


def test_views_of_gradients_are_not_tracked() -> None:
    graph = Graph("views")
    gradient = graph.add_input("Gradient___a", _type())
    build(graph, "Reshape", [gradient], {"shape": (2, 2)}, output_names=["Gradient___b"])
    spec = parse_optimizer(
        {"type": "sgd", "loss_scaling": [8.0, False], "automatic_loss_scaling": True}
    )
    loss_scale(graph, spec)
    add_loss_scale_update(graph, spec, accumulation_factor=1)
    assert [op.operand(0).name for op in graph.ops if op.op_type == "Histogram"] == ["Gradient___a"]


def test_updates_with_a_scale_that_adapts_divide_by_it() -> None:
    settings = {
        "type": "sgd",
        "learning_rate": 1.0,
        "loss_scaling": [4.0, False],
        "automatic_loss_scaling": True,
    }
    graph, _ = update_graph(settings, _WEIGHTS)
    variables: dict[str, Any] = {}
    found = gradients(_WEIGHTS, 0)
    for factor in (4, 8):
        feeds = {f"Gradient___{name}": factor * g for name, g in found.items()}
        before = {name: variables.get(name, value) for name, value in _WEIGHTS.items()}
        run_update(graph, [feeds], variables)
        for name, g in found.items():
            np.testing.assert_allclose(variables[name], before[name] - g, rtol=1e-6, atol=1e-7)
    assert variables["lossScaleUpdateFactor"] == 4


def test_context() -> None:
    one, three = Sharing(1), Sharing(3)
    assert UpdateContext(accumulation_factor=4).divisor(three) == 1
    assert UpdateContext(accumulation_factor=4, reduction=Reduction.MEAN).divisor(three) == 4
    replicas = UpdateContext(accumulation_factor=4, reduction_of_replicas=Reduction.MEAN)
    assert (replicas.divisor(one), replicas.divisor(three)) == (1, 3)
    running = UpdateContext(
        accumulation_factor=4, reduction=Reduction.MEAN, mean_strategy=MeanStrategy.RUNNING
    )
    assert (running.divisor(three), running.kind, running.kind_of_replicas) == (1, "mean", "add")
