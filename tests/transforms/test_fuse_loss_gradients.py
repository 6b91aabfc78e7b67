"""The pass that joins the gradients of a softmax and of the loss behind it."""

from __future__ import annotations

import numpy as np
import pytest

from popc.autodiff import differentiate
from popc.ir import AttributeMap, Graph, Tensor, TensorType
from popc.ops.build import build
from popc.training.losses import LossSpec, add_loss
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.fuse_loss_gradients import FuseLossGradients
from popc_runtime.format import Array, DType
from tests.support import run_graph

_RNG = np.random.default_rng(2)


def _graph(op_type: str, shape: tuple[int, ...], spec: LossSpec, axis: int = -1) -> Graph:
    """The gradient of a loss of a softmax along ``axis``."""
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT64, shape))
    weights = _RNG.uniform(0.5, 2, shape[axis])
    graph.add_constant("w", TensorType(DType.FLOAT64, weights.shape), weights)
    softmax = build(graph, op_type, [x], {"axis": axis % len(shape)}, output_names=["p"]).output
    loss = _loss(graph, spec, softmax)
    seed = graph.add_input("seed", loss.type)
    graph.add_output("y", differentiate(graph, {loss: seed}, [x])[x])
    return graph


def _loss(graph: Graph, spec: LossSpec, x: Tensor) -> Tensor:
    if spec.weights:  # ONNX's loss: the classes are dimension 1
        shape = (x.type.shape[0], *x.type.shape[2:])
        labels = graph.add_input("t", TensorType(DType.INT32, shape))
        operands = [x, labels, graph.tensors["w"]]
        attributes: AttributeMap = {"reduction": spec.reduction, "ignore_index": 1}
        return build(graph, "NegativeLogLikelihoodLoss", operands, attributes).output
    return add_loss(graph, spec, graph.tensors.__getitem__)


def _feeds(graph: Graph) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        if tensor.type.dtype is DType.INT32:
            feeds[tensor.name] = _RNG.integers(0, 3, tensor.type.shape).astype(np.int32)
        else:
            feeds[tensor.name] = np.asarray(_RNG.normal(size=tensor.type.shape))
    return feeds


def _nll(*, logarithms: bool, reduction: str = "mean", weights: str = "") -> LossSpec:
    return LossSpec(
        "nll",
        "p",
        "t",
        ignore_index=1,
        log_probability=logarithms,
        reduction=reduction,
        weights=weights,
    )


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    ("op_type", "shape", "axis", "weights"),
    [
        ("Softmax", (5, 4), -1, ""),
        ("Softmax", (2, 3, 4), -1, ""),
        ("LogSoftmax", (5, 4), -1, ""),
        ("LogSoftmax", (2, 3, 4), -1, ""),
        ("LogSoftmax", (5, 4), -1, "w"),
        ("LogSoftmax", (2, 3, 4), 1, "w"),
    ],
)
def test_joined(
    op_type: str, shape: tuple[int, ...], axis: int, weights: str, reduction: str
) -> None:
    spec = _nll(logarithms=op_type == "LogSoftmax", reduction=reduction, weights=weights)
    graph = _graph(op_type, shape, spec, axis)
    feeds = _feeds(graph)
    (expected,) = run_graph(graph, feeds)
    assert FuseLossGradients()(graph, check=True).changes == 1
    run_to_fixed_point([DeadCode(), FuseLossGradients()], graph, check=True)
    left = {op.op_type for op in graph.ops}
    assert left - {"Reshape"} == {op_type, "SoftmaxCrossEntropyLossGrad"}
    np.testing.assert_allclose(run_graph(graph, feeds)[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("op_type", "shape", "axis", "spec"),
    [
        ("Softmax", (4, 4), 0, _nll(logarithms=False)),
        ("LogSoftmax", (4, 4), 0, _nll(logarithms=True)),
        ("LogSoftmax", (4, 4), -1, _nll(logarithms=False)),
        ("Softmax", (4, 4), -1, _nll(logarithms=True)),
        ("LogSoftmax", (3, 4, 4), -1, _nll(logarithms=True, weights="w")),
        ("Softmax", (4, 4), -1, LossSpec("l1", "p")),
    ],
)
def test_left_alone(op_type: str, shape: tuple[int, ...], axis: int, spec: LossSpec) -> None:
    graph = _graph(op_type, shape, spec, axis)
    assert FuseLossGradients().run(graph) == 0


def test_loss_of_something_else() -> None:
    """The probabilities of the loss are not those that the softmax gave."""
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT64, (3, 4)))
    softmax = build(graph, "Softmax", [x], {"axis": 1}).output
    build(graph, "Square", [softmax], output_names=["p"])
    loss = add_loss(graph, _nll(logarithms=False), graph.tensors.__getitem__)
    seed = graph.add_input("seed", loss.type)
    graph.add_output("y", differentiate(graph, {loss: seed}, [x])[x])
    assert FuseLossGradients().run(graph) == 0
