"""Losses that training adds: their description, the ops, the inputs for labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from popc.autodiff import differentiate
from popc.ir import Graph, Tensor, TensorType
from popc.training.losses import LOSS_TYPES, LossSpec, add_loss, parse_loss
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import Array, DType
from tests.support.oracles import run_graph

_RNG = np.random.default_rng(12)


def _graph(*shape: int, dtype: DType = DType.FLOAT32) -> Graph:
    graph = Graph("g")
    graph.add_input("x", TensorType(dtype, shape))
    return graph


def _run(graph: Graph, spec: LossSpec, feeds: Mapping[str, Array]) -> Array:
    loss = add_loss(graph, spec, graph.tensors.__getitem__)
    graph.add_output(spec.name, loss)
    return run_graph(graph, feeds)[0]


def _log_softmax(x: Array, axis: int) -> Array:
    x = x.astype(np.float64)
    x = x - x.max(axis=axis, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=axis, keepdims=True)))


def _picked(logs: Array, labels: Array, axis: int) -> Array:
    chosen = np.take_along_axis(logs, np.expand_dims(labels, axis).astype(np.int64), axis)
    return np.asarray(-chosen.squeeze(axis))


_SAMPLED = ("nce", "sampled_softmax")  # test_sampled.py is about these

_REDUCTION = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])


def _reduced(losses: Array, reduction: str) -> Array:
    if reduction == "none":
        return losses
    return np.asarray(losses.mean() if reduction == "mean" else losses.sum())


# -- values ----------------------------------------------------------------------------------------


@_REDUCTION
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2)])
def test_cross_entropy(reduction: str, axis: int | None, shape: tuple[int, ...]) -> None:
    graph = _graph(*shape)
    classes = (1 if axis is None else axis) % len(shape)
    x = _RNG.normal(size=shape).astype(np.float32)
    labels = _RNG.integers(0, shape[classes], np.delete(shape, classes)).astype(np.int32)
    spec = LossSpec("cross_entropy", "x", "t", reduction=reduction, axis=axis)
    loss = _run(graph, spec, {"x": x, "t": labels})
    assert graph.inputs[1].type == TensorType(DType.INT32, labels.shape)
    expected = _picked(_log_softmax(x, classes), labels, classes)
    np.testing.assert_allclose(loss, _reduced(expected, reduction), rtol=1e-5)


@_REDUCTION
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("logarithms", [False, True])
def test_nll(reduction: str, axis: int | None, *, logarithms: bool) -> None:
    graph = _graph(3, 4, 2)
    classes = 2 if axis is None else axis
    logs = _log_softmax(_RNG.normal(size=(3, 4, 2)), classes).astype(np.float32)
    labels = _RNG.integers(0, 2, np.delete((3, 4, 2), classes))
    spec = LossSpec(
        "nll",
        "x",
        "t",
        reduction=reduction,
        axis=axis,
        label_dtype=DType.INT64,
        log_probability=logarithms,
    )
    loss = _run(graph, spec, {"x": logs if logarithms else np.exp(logs), "t": labels})
    expected = _reduced(_picked(logs, labels, classes), reduction)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_ignored_and_weighted_labels() -> None:
    graph = _graph(4, 3)
    weights = np.array([1, 2, 4], np.float32)
    graph.add_constant("w", TensorType(DType.FLOAT32, (3,)), weights)
    x, labels = _RNG.normal(size=(4, 3)).astype(np.float32), np.array([0, 2, -7, 1], np.int32)
    spec = LossSpec("cross_entropy", "x", "t", ignore_index=-7, weights="w")
    loss = _run(graph, spec, {"x": x, "t": labels})
    losses = _picked(_log_softmax(x, 1), np.maximum(labels, 0), 1)
    counts = np.array([1, 4, 0, 2])
    np.testing.assert_allclose(loss, (losses * counts).sum() / 7, rtol=1e-5)


@_REDUCTION
def test_differences(reduction: str) -> None:
    x, target = (_RNG.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
    feeds = {"x": x, "t": target}
    loss = _run(_graph(3, 4), LossSpec("mse", "x", "t", reduction=reduction), feeds)
    np.testing.assert_allclose(loss, _reduced((x - target) ** 2, reduction), rtol=1e-5)
    spec = LossSpec("l1", "x", "t", reduction=reduction, lambda_=0.5)
    expected = _reduced(np.abs(x - target) / 2, reduction)
    np.testing.assert_allclose(_run(_graph(3, 4), spec, feeds), expected, rtol=1e-5)
    spec = LossSpec("l1", "x", reduction=reduction)
    loss = _run(_graph(3, 4), spec, {"x": x})
    np.testing.assert_allclose(loss, _reduced(np.abs(x), reduction), rtol=1e-5)
    loss = _run(_graph(3, 4), LossSpec("identity", "x", reduction=reduction), {"x": x})
    np.testing.assert_allclose(loss, _reduced(x, reduction), rtol=1e-5)


def test_bfloat16() -> None:
    spec = LossSpec("l1", "x", lambda_=0.5)
    graph = _graph(4, dtype=DType.BFLOAT16)
    loss = _run(graph, spec, {"x": np.array([0x3F80, 0x4000, 0xBF80, 0], np.uint16)})
    assert loss == np.float32(0.5)


def test_ctc_labels_and_lengths() -> None:
    logs = _log_softmax(_RNG.normal(size=(3, 2, 4)), 2).astype(np.float32)
    labels = np.array([[2], [3]], np.int32)
    every = _graph(3, 2, 4)
    spec = LossSpec("ctc", "x", "t", max_labels=1, reduction="none")
    whole = _run(every, spec, {"x": logs, "t": labels})
    assert [tensor.name for tensor in every.inputs] == ["x", "t"]
    some = _graph(3, 2, 4)
    spec = LossSpec(
        "ctc",
        "x",
        "t",
        max_labels=1,
        reduction="none",
        input_lengths="steps",
        label_lengths="counts",
    )
    lengths = {"steps": np.array([3, 1], np.int32), "counts": np.array([1, 0], np.int32)}
    part = _run(some, spec, {"x": logs, "t": labels, **lengths})
    assert [tensor.name for tensor in some.inputs] == ["x", "t", "steps", "counts"]
    assert part[0] == whole[0]
    assert part[1] == pytest.approx(-logs[0, 1, 0])


# -- names and inputs ------------------------------------------------------------------------------


def test_names() -> None:
    assert LossSpec("mse", "x", "t").name == "loss"
    assert LossSpec("identity", "x").name == "x"
    assert LossSpec("identity", "x", name="total").name == "total"
    graph = _graph(3)
    loss = add_loss(graph, LossSpec("identity", "x", name="total"), graph.tensors.__getitem__)
    assert loss.name == "total"
    assert loss.producer is not None
    assert loss.producer.settings.origin == "total"


def test_a_scalar_is_its_own_loss() -> None:
    graph = _graph()
    assert add_loss(graph, LossSpec("identity", "x"), graph.tensors.__getitem__).name == "x"


def test_existing_labels_are_used() -> None:
    graph = _graph(3, 4)
    labels = graph.add_input("t", TensorType(DType.INT64, (3,)))
    add_loss(graph, LossSpec("cross_entropy", "x", "t"), graph.tensors.__getitem__)
    assert len(graph.inputs) == 2
    assert labels.uses


@pytest.mark.parametrize(
    ("type_", "spec", "message"),
    [
        (
            TensorType(DType.INT64, (4,)),
            LossSpec("cross_entropy", "x", "t"),
            r"the loss 'loss' of 'x': 't' is int64\[4\], but must be int32\[3\]",
        ),
        (
            TensorType(DType.FLOAT32, (3,)),
            LossSpec("nll", "x", "t"),
            r"'t' is float32\[3\], but must be int32\[3\]",
        ),
        (
            TensorType(DType.FLOAT16, (3, 4)),
            LossSpec("mse", "x", "t"),
            r"'t' is float16\[3,4\], but must be float32\[3,4\]",
        ),
        (
            TensorType(DType.INT32, (3,)),
            LossSpec("cross_entropy", "x", "t", axis=2),
            "axis 2 is out of range for rank 2",
        ),
        (
            TensorType(DType.INT32, (3,)),
            LossSpec("cross_entropy", "x", "t", weights="x"),
            r"weights float32\[3,4\] do not fit 4 classes",
        ),
        (
            TensorType(DType.INT32, (3,)),
            LossSpec("ctc", "x", "t"),
            r"it is float32\[3,4\], but must be \[time, batch, classes\]",
        ),
        (
            TensorType(DType.INT32, (3,)),
            LossSpec("mse", "t", "x"),
            r"the loss cannot be computed from 't', which is int32\[3\]",
        ),
    ],
)
def test_tensors_that_do_not_fit(type_: TensorType, spec: LossSpec, message: str) -> None:
    graph = _graph(3, 4)
    graph.add_input("t", type_)
    with pytest.raises(ModelError, match=message):
        add_loss(graph, spec, graph.tensors.__getitem__)


def test_ctc_needs_to_know_how_many_labels() -> None:
    graph = _graph(3, 2, 4)
    with pytest.raises(ModelError, match="the number of labels in 't' is unknown") as caught:
        add_loss(graph, LossSpec("ctc", "x", "t"), graph.tensors.__getitem__)
    assert "max_labels" in caught.value.hint


def test_scores_without_classes() -> None:
    graph = _graph(3)
    with pytest.raises(ModelError, match="a dimension of samples and one of classes"):
        add_loss(graph, LossSpec("cross_entropy", "x", "t"), graph.tensors.__getitem__)


_SPECS = {
    "cross_entropy": LossSpec("cross_entropy", "x", "t", axis=-1),
    "ctc": LossSpec("ctc", "x", "t", max_labels=2),
    "identity": LossSpec("identity", "x"),
    "l1": LossSpec("l1", "x", "t", lambda_=2.0),
    "mse": LossSpec("mse", "x", "t"),
    "nll": LossSpec("nll", "x", "t"),
}


@pytest.mark.parametrize("kind", [kind for kind in LOSS_TYPES if kind not in _SAMPLED])
def test_every_loss_has_a_gradient(kind: str) -> None:
    graph = _graph(4, 2, 5)
    x = graph.inputs[0]
    loss = add_loss(graph, _SPECS[kind], graph.tensors.__getitem__)
    seed: dict[Tensor, Tensor] = {
        loss: graph.add_constant("one", loss.type, np.ones((), np.float32))
    }
    assert differentiate(graph, seed, [x])[x].type == x.type


# -- descriptions ----------------------------------------------------------------------------------


def test_parse() -> None:
    spec = parse_loss({"type": "nll", "input": "p", "label": "t", "ignore_index": -1, "axis": 1})
    assert spec == LossSpec("nll", "p", "t", ignore_index=-1, axis=1)
    popart = {"ignoreIndex": -1, "inputIsLogProbability": True, "reduction": "NoReduction"}
    spec = parse_loss({"type": "nll", "input": "p", "label": "t", **popart})
    assert spec == LossSpec(
        "nll", "p", "t", ignore_index=-1, log_probability=True, reduction="none"
    )
    spec = parse_loss({"type": "l1", "input": "p", "lambda": 2, "reduction": "sum", "name": "n"})
    assert spec == LossSpec("l1", "p", lambda_=2.0, reduction="sum", name="n")
    spec = parse_loss(
        {
            "type": "ctc",
            "input": "p",
            "label": "t",
            "label_dtype": "uint32",
            "blank": 3,
            "max_labels": 9,
            "input_lengths": "a",
            "label_lengths": "b",
            "zero_infinity": True,
        }
    )
    assert spec.fed_tensors == ("t", "a", "b")
    assert spec.label_dtype is DType.UINT32
    assert spec.zero_infinity


_INTEGERS = "int8, int16, int32, int64, uint8, uint16, uint32, uint64"


@pytest.mark.parametrize(
    ("table", "details"),
    [
        (
            {},
            [
                f"loss.type is missing: choose from {', '.join(LOSS_TYPES)}",
            ],
        ),
        (
            {"type": "cross-entropy", "inputs": "x", "reduction": 1},
            [
                "loss.inputs is not a setting of a loss: did you mean input?",
                "loss.reduction is 1, but must be a name",
                "loss.type is 'cross-entropy', which does not exist: did you mean cross_entropy?",
            ],
        ),
        (
            {"type": "mse", "input": 3, "ignore_index": True, "blank": 1, "lambda": "a"},
            [
                "loss.input is 3, but must be a name",
                "loss.ignore_index is True, but must be a whole number",
                "loss.lambda is 'a', but must be a number",
                "loss.label is missing: mse needs the name of the labels",
                "loss.blank does not apply to mse, which has label",
            ],
        ),
        (
            {"type": "ctc", "label": "t", "max_labels": 0, "zero_infinity": 1},
            [
                "loss.max_labels is 0, but must be at least 1",
                "loss.zero_infinity is 1, but must be true or false",
                "loss.input is missing: name the tensor of the model to compute it from",
            ],
        ),
        (
            {"type": "nll", "input": "x", "label": "t", "reduction": "max", "label_dtype": "int"},
            [
                f"loss.label_dtype is 'int', but must be one of {_INTEGERS}",
                "loss.reduction is 'max', but must be one of none, mean, sum",
            ],
        ),
    ],
)
def test_all_problems_at_once(table: Mapping[str, Any], details: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        parse_loss(table)
    assert list(caught.value.details) == details


def test_a_spec_from_python_is_checked_too() -> None:
    graph = _graph(3)
    with pytest.raises(OptionError) as caught:
        add_loss(graph, LossSpec("identity", "x", blank=2), graph.tensors.__getitem__)
    assert caught.value.details == (
        "loss.blank does not apply to identity, which has no settings of its own",
    )
