"""Functions of a model that change gradients, accumulators by weight, and two kinds of means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime import VariableRole
from popc_runtime.errors import OptionError
from popc_runtime.format import Array
from tests.support.compiling import CHECKED
from tests.training import small
from tests.training.small import RATE, data, linear_model, trainable, training_program

_OPSETS = [helper.make_opsetid("", 22), helper.make_opsetid("local", 1)]
_DECAY = 0.01


def _function(name: str, op_type: str, *, inputs: int = 2) -> onnx.FunctionProto:
    """gradient + 0.01 weight, or with "Mul" gradient * 0.01 weight."""
    names = ["gradient", "weight"][:inputs]
    return helper.make_function(
        "local",
        name,
        names,
        ["mapped"],
        [
            helper.make_node("Constant", [], ["number"], value_float=_DECAY),
            helper.make_node("CastLike", ["number", "gradient"], ["rate"]),
            helper.make_node("Mul", ["rate", names[-1]], ["part"]),
            helper.make_node(op_type, ["gradient", "part"], ["mapped"]),
        ],
        _OPSETS[:1],
    )


def _flat() -> onnx.FunctionProto:
    nodes = [helper.make_node("ReduceSum", ["gradient"], ["mapped"], keepdims=0)]
    return helper.make_function(
        "local", "flat", ["gradient", "weight"], ["mapped"], nodes, _OPSETS[:1]
    )


def _products() -> onnx.ModelProto:
    """TensorFlow's example: a b + a c + b c for a = 1, b = 2, c = 3."""
    nodes = [helper.make_node("Mul", list(pair), [f"{pair}"]) for pair in ("ab", "ac", "bc")]
    nodes += [
        helper.make_node("Sum", ["ab", "ac", "bc"], ["sum"]),
        helper.make_node("Mul", ["sum", "x"], ["loss"]),
    ]
    values = zip("abc", (1.0, 2.0, 3.0), strict=True)
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.array([value], np.float32), name) for name, value in values],
    )
    return helper.make_model(
        graph, opset_imports=_OPSETS, ir_version=10, functions=[_function("decay", "Add")]
    )


def test_the_example_of_tensorflow(tmp_path: Path) -> None:
    optimizer = {
        "type": "sgd",
        "learning_rate": 1e-6,
        "gradient_map": [{"function": "decay"}],
    }
    names = [f"{prefix}{name}" for prefix in ("Gradient___", "MappedGradient___") for name in "abc"]
    archive = popc.compile(
        _products(),
        train={
            "loss": {"type": "identity", "input": "loss"},
            "optimizer": optimizer,
            "weights": {"trainable": ["a", "b", "c"]},
        },
        options={"verify_ir": True, "anchors": dict.fromkeys(names, "all")},
    )
    program = popc_runtime.load(archive.save(tmp_path / "map.popx"))
    found = program.run(x=np.ones(1, np.float32))
    before, mapped = ([float(found[name][0]) for name in part] for part in (names[:3], names[3:]))
    assert before == [5, 4, 3]
    np.testing.assert_allclose(mapped, [5.01, 4.02, 3.03], rtol=1e-6)
    weights = program.state.read(VariableRole.WEIGHT)
    for name, value, gradient in zip("abc", (1, 2, 3), (5.01, 4.02, 3.03), strict=True):
        np.testing.assert_allclose(weights[name], [value - 1e-6 * gradient], rtol=1e-7)


def _trained(folder: Path, optimizer: dict[str, Any], **options: Any) -> dict[str, Array]:
    """The weights of the linear model, with functions of its own, after two runs."""
    model = linear_model()
    model.opset_import.append(_OPSETS[1])
    model.functions.extend([_function("decay", "Add"), _function("scale", "Mul"), _flat()])
    archive = popc.compile(
        model,
        dims={"batch": 2},
        train=trainable(**optimizer),
        options={**CHECKED, **options},
    )
    program = popc_runtime.load(archive.save(folder / "maps.popx", force=True))
    samples = data(24)
    size = np.prod(program.inputs[0].shape) // 4
    for first in range(0, 24 // size * size, size):
        program.run(
            {
                spec.name: samples[spec.name][first : first + size].reshape(spec.shape)
                for spec in program.inputs
            }
        )
    return dict(program.state.read(VariableRole.WEIGHT))


def _reference(
    *, micro_batches: int, replicas: int, means: tuple[bool, bool], decay: float = 0.0
) -> dict[str, Array]:
    """Gradient descent in float64: means over micro-batches, over replicas."""
    w, b = (start.astype(np.float64) for start in small.FIRST)
    samples = data(24)
    several = micro_batches * replicas
    count = (micro_batches if means[0] else 1) * (replicas if means[1] else 1)
    for first in range(0, 24 // (2 * several) * 2 * several, 2 * several):
        gradient_w, gradient_b = np.zeros_like(w), np.zeros_like(b)
        for start in range(first, first + 2 * several, 2):
            x, target = (samples[name][start : start + 2] for name in ("x", "target"))
            slope = 2 * (x @ w + b - target) / 6
            gradient_w += x.T @ slope / count
            gradient_b += slope.sum(axis=0) / count
        w, b = (v - RATE * (g + decay * v) for v, g in ((w, gradient_w), (b, gradient_b)))
    return {"w": w, "b": b}


_SHARDED = {
    "optimizer_state_tensor_location": {
        "replicated_tensor_sharding": True,
        "min_elements_for_replicated_tensor_sharding": 1,
    },
    "weight_tensor_location": {
        "replicated_tensor_sharding": True,
        "min_elements_for_replicated_tensor_sharding": 1,
    },
}


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ({}, {}),
        ({"loss_scaling": 64.0}, {"merge_var_update": "all"}),
        ({"loss_scaling": {"value": 64.0, "const": False}}, {}),
        ({"clip_norm": [{"max_norm": 1e6}]}, {}),
        ({"momentum": 0.0, "accum_type": "float32"}, _SHARDED),
    ],
    ids=["plain", "scaled", "scaled at run time", "bounded", "sharded"],
)
def test_a_decay_is_that_of_the_whole_batch(
    optimizer: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    many = {"accumulation_factor": 2, "replicated_graph_count": 2}
    mapped = {"gradient_map": [{"function": "local.decay"}], **optimizer}
    found = _trained(tmp_path, mapped, **many, **options)
    expected = _reference(micro_batches=2, replicas=2, means=(False, False), decay=_DECAY)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_functions_follow_each_other_before_gradients_are_bounded(tmp_path: Path) -> None:
    """Of two weights in a group, one has a function: the norm is that of what is left."""
    maps = [{"function": name, "tensors": ["w"]} for name in ("decay", "scale")]
    optimizer = {"gradient_map": maps, "clip_norm": [{"max_norm": 0.5}], "loss_scaling": 8.0}
    found = _trained(tmp_path, optimizer, batches_per_step=12)
    w, b = (start.astype(np.float64) for start in small.FIRST)
    samples = data(24)
    for first in range(0, 24, 2):
        x, target = (samples[name][first : first + 2] for name in ("x", "target"))
        slope = 2 * (x @ w + b - target) / 6
        gradients = [(x.T @ slope + _DECAY * w) * (_DECAY * w), slope.sum(axis=0)]
        factor = 0.5 / max(0.5, np.sqrt(sum((g**2).sum() for g in gradients)))
        w, b = (v - RATE * g * factor for v, g in zip((w, b), gradients, strict=True))
    np.testing.assert_allclose(found["w"], w, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["b"], b, rtol=1e-4, atol=1e-6)


def test_momentum_takes_up_what_the_function_gives(tmp_path: Path) -> None:
    """A decay by a function is PyTorch's weight decay, which the optimizer has by itself."""
    mapped = {"gradient_map": [{"function": "decay"}], "momentum": 0.9}
    given = {"weight_decay": _DECAY, "momentum": 0.9, "accumulator_and_momentum": "separate"}
    found, expected = (
        _trained(tmp_path, optimizer, accumulation_factor=2) for optimizer in (mapped, given)
    )
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ([{"function": "deca"}], "no function 'deca'; did you mean 'decay'"),
        (
            [{"function": "flat"}],
            r"'flat' makes float32\[\] of the gradient of 'w', but must make float32\[4,3\]",
        ),
        ([{"tensors": ["w"]}], r"gradient_map\[0\].function is missing"),
        ([{"function": "decay", "tensors": ["v"]}], r"gradient_map\[0\].tensors: 'v' matches no"),
        ([{"function": 3}], "function is 3, but must be a name"),
    ],
)
def test_functions_that_cannot_be_called(
    maps: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError) as error:
        _trained(tmp_path, {"gradient_map": maps})
    assert re.search(message, "\n".join((error.value.message, *error.value.details)))


def test_a_model_without_functions_has_none_to_call(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no function 'decay', nor any other"):
        training_program(tmp_path, trainable(gradient_map=[{"function": "decay"}]))


@pytest.mark.parametrize("strategy", ["post", "running"])
@pytest.mark.parametrize("means", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_means_over_one_kind_of_parts(
    means: tuple[bool, bool], strategy: str, momentum: float, tmp_path: Path
) -> None:
    """With momentum, a program that adds everything up and divides by a rate has the same steps."""
    words = {True: "mean", False: "sum"}
    many = {"accumulation_factor": 2, "replicated_graph_count": 2}
    options = {
        "micro_batch_reduction_type": words[means[0]],
        "replica_reduction_type": words[means[1]],
        "mean_accumulation_and_replication_reduction_strategy": strategy,
    }
    found = _trained(tmp_path, {"momentum": momentum}, **many, **options)
    if momentum:
        rate = RATE / 2 ** sum(means)
        expected = _trained(tmp_path, {"momentum": momentum, "learning_rate": rate}, **many)
    else:
        expected = _reference(micro_batches=2, replicas=2, means=means)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_common_reduction_is_overridden(tmp_path: Path) -> None:
    found = _trained(
        tmp_path,
        {},
        accumulation_factor=2,
        replicated_graph_count=2,
        accumulation_and_replication_reduction_type="mean",
        micro_batch_reduction_type="sum",
    )
    expected = _reference(micro_batches=2, replicas=2, means=(False, True))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_accumulators_of_single_weights_have_types_of_their_own(tmp_path: Path) -> None:
    """In float16, a gradient of 1 and a thousand of 2^-12 add up to 1; in float32, not."""
    nodes = [helper.make_node("Mul", ["x", name], [f"{name}x"]) for name in ("narrow", "wide")] + [
        helper.make_node("Add", ["narrowx", "widex"], ["sum"]),
        helper.make_node("ReduceSum", ["sum"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.zeros(1, np.float32), name) for name in ("narrow", "wide")],
    )
    model = helper.make_model(graph, opset_imports=_OPSETS[:1], ir_version=10)
    optimizer = {
        "type": "sgd",
        "learning_rate": 1.0,
        "specific": [{"tensors": ["narrow"], "accum_type": "float16"}],
    }
    archive = popc.compile(
        model,
        train={"loss": {"type": "identity", "input": "loss"}, "optimizer": optimizer},
        options={"accumulation_factor": 1025, "verify_ir": True},
    )
    program = popc_runtime.load(archive.save(tmp_path / "two.popx"))
    x = np.full((1025, 1), 2.0**-12, np.float32)
    x[0] = 1
    program.run(x=x)
    found = program.state.read(VariableRole.WEIGHT)
    assert float(found["narrow"][0]) == -1
    assert float(found["wide"][0]) == -1.25


def test_a_type_of_one_accumulator_needs_an_accumulator(tmp_path: Path) -> None:
    optimizer = {"momentum": 0.5, "specific": [{"tensors": ["w"], "accum_type": "float32"}]}
    with pytest.raises(OptionError) as error:
        training_program(tmp_path, trainable(**optimizer))
    problem = "\n".join((error.value.message, *error.value.details))
    assert "optimizer.accum_type needs accumulator_and_momentum" in problem


def test_a_replacement_keeps_functions_and_types() -> None:
    from popc.optimizers import parse_optimizer, replacement_problem

    base: dict[str, Any] = {"type": "sgd", "specific": [{"tensors": ["w"], "momentum": 0.0}]}
    one = parse_optimizer(base)
    mapped = parse_optimizer({**base, "gradient_map": [{"function": "f"}]})
    typed = parse_optimizer(
        {**base, "specific": [{"tensors": ["w"], "momentum": 0.0, "accum_type": "float16"}]}
    )
    assert replacement_problem(one, mapped) == [
        "gradient maps are part of the program and cannot change"
    ]
    assert replacement_problem(one, typed) == [
        "accum_type of w is part of the program and cannot change"
    ]


def test_gradients_that_the_host_gives() -> None:
    """A HostCall in the function: what it returns is what the weight is updated by."""
    text = """<ir_version: 9, opset_import: ["": 18, "ai.graphcore": 1, "local": 1]>
    agraph (float[2, 3] x) => (float loss) <float[3, 1] w = {1, 2, 3}> {
        y = MatMul (x, w) loss = ReduceMean <keepdims = 0> (y)
    }"""
    model = onnx.parser.parse_model(text)
    call = helper.make_node("HostCall", ["g"], ["r"], domain="ai.graphcore", function="mine")
    domain = helper.make_opsetid("ai.graphcore", 1)
    model.functions.append(helper.make_function("local", "f", ["g", "w"], ["r"], [call], [domain]))
    maps = [{"function": "f", "tensors": ["w"]}]
    archive = popc.compile(
        model,
        loss={"type": "identity", "input": "loss"},
        optimizer={"type": "sgd", "learning_rate": 1.0, "gradient_map": maps},
    )
    seen: list[Any] = []

    def mine(gradient: Any) -> Any:
        seen.append(gradient.copy())
        return np.full_like(gradient, 5)

    program = popc_runtime.load(archive.to_bytes(), host_calls={"mine": mine})
    program.run(x=np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(program.state.read()["w"].ravel(), [-4, -3, -2])
    np.testing.assert_allclose(seen[0].ravel(), [1, 1, 1])
