"""Losses over many classes of which some are drawn, against TensorFlow's formulas in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc.autodiff import differentiate
from popc.ir import Graph, TensorType
from popc.training.losses import LossSpec, add_loss, parse_loss
from popc_runtime import VariableRole
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import Array, DType
from tests.support.oracles import run_graph

_RNG = np.random.default_rng(5)
_N, _DIM, _CLASSES, _S = 6, 4, 20, 8
_X = _RNG.normal(size=(_N, _DIM)).astype(np.float32)
_W = _RNG.normal(size=(_CLASSES, _DIM)).astype(np.float32)
_B = _RNG.normal(size=_CLASSES).astype(np.float32)
_LABELS = _RNG.integers(0, _CLASSES, _N).astype(np.int32)
_SAMPLES = np.array([0, 1, 1, 7, int(_LABELS[0]), 19, 3, 2], np.int32)


def _share(ids: Array, classes: int) -> Array:
    return np.asarray(np.log((ids + 2.0) / (ids + 1.0)) / np.log(classes + 1.0))


def _expected(
    kind: str,
    x: Array,
    w: Array,
    b: Array,
    labels: Array,
    samples: Array,
    tries: float | None = None,
) -> Array:
    """``nn_impl`` of TensorFlow; with the number of tries of a sampler without replacement."""
    x, w, b = (array.astype(np.float64) for array in (x, w, b))

    def log_count(ids: Array) -> Array:
        share = _share(ids, len(w))
        if tries in (None, len(samples)):
            return np.asarray(np.log(share * len(samples)))
        return np.asarray(np.log(-np.expm1(tries * np.log1p(-share))))

    labels = labels.reshape(len(x), -1)
    true = np.einsum("nd,ntd->nt", x, w[labels]) + b[labels] - log_count(labels)
    sampled = x @ w[samples].T + b[samples] - log_count(samples)
    if kind == "sampled_softmax":
        sampled[(labels[:, :, None] == samples).any(axis=1)] = -np.inf
    scores = np.concatenate([true, sampled], axis=1)
    wanted = np.zeros_like(scores)
    wanted[:, : labels.shape[1]] = 1 / labels.shape[1]
    if kind == "nce":
        losses = np.maximum(scores, 0) - scores * wanted + np.log1p(np.exp(-np.abs(scores)))
        return np.asarray(losses.sum(axis=1))
    top = scores.max(axis=1)
    whole = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
    return np.asarray(whole - (true / labels.shape[1]).sum(axis=1))


def _graph(dtype: DType = DType.FLOAT32) -> Graph:
    graph = Graph("g")
    for name, shape in (("x", (_N, _DIM)), ("w", (_CLASSES, _DIM)), ("b", (_CLASSES,))):
        graph.add_input(name, TensorType(dtype, shape))
    return graph


def _spec(kind: str, **more: Any) -> LossSpec:
    given = {"biases": "b", "samples": "s", "num_sampled": _S, "reduction": "none", **more}
    return LossSpec(kind, "x", "t", weights="w", **given)


_KIND = pytest.mark.parametrize("kind", ["nce", "sampled_softmax"])


@_KIND
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(kind: str, reduction: str) -> None:
    graph = _graph()
    graph.add_output(
        "loss", add_loss(graph, _spec(kind, reduction=reduction), graph.tensors.__getitem__)
    )
    feeds: dict[str, Array] = {"x": _X, "w": _W, "b": _B, "t": _LABELS, "s": _SAMPLES}
    (found,) = run_graph(graph, feeds)
    expected = _expected(kind, _X, _W, _B, _LABELS, _SAMPLES)
    wanted = {"none": expected, "mean": expected.mean(), "sum": expected.sum()}[reduction]
    np.testing.assert_allclose(found, wanted, rtol=2e-5)


@_KIND
def test_several_right_classes(kind: str) -> None:
    labels = np.stack([_LABELS, (_LABELS + 7) % _CLASSES, _LABELS], axis=1)
    graph = _graph()
    spec = _spec(kind, num_true=3)
    graph.add_output("loss", add_loss(graph, spec, graph.tensors.__getitem__))
    (found,) = run_graph(graph, {"x": _X, "w": _W, "b": _B, "t": labels, "s": _SAMPLES})
    expected = _expected(kind, _X, _W, _B, labels, _SAMPLES)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def _sampled(graph: Graph, spec: LossSpec) -> None:
    """Let the drawn classes, and the number of tries, be outputs beside the loss."""
    graph.add_output("loss", add_loss(graph, spec, graph.tensors.__getitem__))
    (equal,) = {op for op in graph.ops if op.op_type == "Equal" and op.operand(0).type.rank == 2}
    graph.add_output("samples", equal.operand(1))
    (tries,) = {op.operand(0) for op in graph.ops if op.op_type == "Equal"} - {equal.operand(0)}
    graph.add_output("tries", tries)


@_KIND
@pytest.mark.parametrize("size", [8, _CLASSES])
def test_no_class_is_drawn_twice(kind: str, size: int) -> None:
    graph = _graph()
    spec = _spec(kind, samples="", unique=True, num_sampled=size)
    _sampled(graph, spec)
    loss, samples, tries = run_graph(graph, {"x": _X, "w": _W, "b": _B, "t": _LABELS})
    assert len(set(samples.tolist())) == size
    assert tries >= size
    assert tries == int(tries)
    expected = _expected(kind, _X, _W, _B, _LABELS, samples, float(tries))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def _drawn_one_by_one(rng: np.random.Generator, classes: int, size: int) -> tuple[int, int]:
    """How many of the fifty most frequent classes are among ``size`` different ones, and tries."""
    share = _share(np.arange(classes), classes)
    order = rng.choice(classes, 10 * size, p=share / share.sum())
    first = np.sort(np.unique(order, return_index=True)[1])[:size]
    return int((order[first] < 50).sum()), int(first[-1]) + 1


def test_different_classes_come_as_by_throwing_away_what_is_there() -> None:
    """Within five deviations of drawing one by one."""
    classes, size = 2000, 400
    graph = Graph("g")
    for name, shape in (("x", (1, 2)), ("w", (classes, 2))):
        graph.add_input(name, TensorType(DType.FLOAT32, shape))
    spec = LossSpec("nce", "x", "t", weights="w", num_sampled=size, unique=True)
    _sampled(graph, spec)
    x, w = np.zeros((1, 2), np.float32), np.zeros((classes, 2), np.float32)
    _, samples, tries = run_graph(graph, {"x": x, "w": w, "t": np.zeros(1, np.int32)})
    rng = np.random.default_rng(0)
    theirs = np.array([_drawn_one_by_one(rng, classes, size) for _ in range(100)])
    ours = np.array([(samples < 50).sum(), tries])
    assert (np.abs(ours - theirs.mean(axis=0)) < 5 * theirs.std(axis=0)).all(), (ours, theirs)


@_KIND
def test_without_biases_and_with_wide_labels(kind: str) -> None:
    graph = _graph()
    spec = _spec(kind, biases="", label_dtype=DType.INT64)
    graph.add_output("loss", add_loss(graph, spec, graph.tensors.__getitem__))
    labels, samples = _LABELS.astype(np.int64), _SAMPLES.astype(np.int64)
    feeds: dict[str, Array] = {"x": _X, "w": _W, "b": _B, "t": labels, "s": samples}
    (found,) = run_graph(graph, feeds)
    zero = np.zeros_like(_B)
    np.testing.assert_allclose(found, _expected(kind, _X, _W, zero, _LABELS, _SAMPLES), rtol=2e-5)


@_KIND
def test_float16(kind: str) -> None:
    graph = _graph(DType.FLOAT16)
    graph.add_output("loss", add_loss(graph, _spec(kind), graph.tensors.__getitem__))
    x, w, b = (array.astype(np.float16) for array in (_X, _W, _B))
    feeds: dict[str, Array] = {"x": x, "w": w, "b": b, "t": _LABELS, "s": _SAMPLES}
    (found,) = run_graph(graph, feeds)
    np.testing.assert_allclose(found, _expected(kind, x, w, b, _LABELS, _SAMPLES), rtol=0.02)


@_KIND
def test_gradients(kind: str) -> None:
    graph = _graph()
    loss = add_loss(graph, _spec(kind, reduction="sum"), graph.tensors.__getitem__)
    one = graph.add_constant("one", loss.type, np.ones(loss.type.shape, np.float32))
    wanted = [graph.tensors[name] for name in "xwb"]
    gradients = differentiate(graph, {loss: one}, dict.fromkeys(wanted))
    for tensor in wanted:
        graph.add_output(f"d{tensor.name}", gradients[tensor])
    arrays = {"x": _X, "w": _W, "b": _B}
    found = run_graph(graph, {**arrays, "t": _LABELS, "s": _SAMPLES})
    step = 1e-5
    for name, gradient in zip("xwb", found, strict=True):
        direction = _RNG.normal(size=arrays[name].shape)
        ends = []
        for sign in (1, -1):
            moved = {k: v.astype(np.float64) for k, v in arrays.items()}
            moved[name] = moved[name] + sign * step * direction
            x, w, b = moved.values()
            ends.append(_expected(kind, x, w, b, _LABELS, _SAMPLES).sum())
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-4)


def test_classes_are_drawn_by_the_law_of_zipf() -> None:
    """20,000 draws: each share within five deviations."""
    count = 20_000
    graph = _graph()
    spec = LossSpec("nce", "x", "t", weights="w", num_sampled=count)
    add_loss(graph, spec, graph.tensors.__getitem__)
    (gather,) = {op for op in graph.ops if op.op_type == "Equal"}
    graph.add_output("samples", gather.operand(1))
    feeds: dict[str, Array] = {"x": _X, "w": _W, "b": _B, "t": _LABELS}
    (samples,) = run_graph(graph, feeds)
    assert samples.min() >= 0
    assert samples.max() < _CLASSES
    ids = np.arange(_CLASSES)
    share = np.log((ids + 2.0) / (ids + 1.0)) / np.log(_CLASSES + 1.0)
    found = np.bincount(samples, minlength=_CLASSES) / count
    assert (np.abs(found - share) < 5 * np.sqrt(share / count)).all()


@_KIND
def test_training_learns_the_classes(kind: str) -> None:
    """Embeddings of eight words that each have a class."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Gather", ["table", "word"], ["hidden"])]
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("word", 6, [16])],
        [helper.make_tensor_value_info("hidden", 1, [16, 8])],
        [
            numpy_helper.from_array(0.3 * rng.normal(size=shape).astype(np.float32), name)
            for name, shape in (("table", (8, 8)), ("w", (50, 8)), ("b", (50,)))
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    archive = popc.compile(
        model,
        loss={"type": kind, "input": "hidden", "label": "t", "weights": "w", "biases": "b",
              "num_sampled": 20},
        optimizer={"type": "adam", "learning_rate": 0.05},
        outputs=["hidden"],
        options={"verify_ir": True},
    )  # fmt: skip
    program = popc_runtime.load(archive.to_bytes(), seed=1)
    classes = np.array([0, 40, 3, 11, 25, 1, 7, 33], np.int32)
    for _ in range(120):
        word = rng.integers(0, 8, 16).astype(np.int32)
        program.run(word=word, t=classes[word])
    weights = program.state.read(VariableRole.WEIGHT)
    scores = weights["table"] @ weights["w"].T + weights["b"]
    np.testing.assert_array_equal(scores.argmax(axis=1), classes)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"weights": ""}, "loss.weights is missing: nce needs those of the last layer"),
        ({"num_sampled": None}, "loss.num_sampled is missing"),
        ({"axis": 1}, "loss.axis does not apply to nce"),
        ({"unique": True, "samples": "s"}, "loss.unique is about classes that are drawn"),
    ],
)
def test_settings_that_are_wrong(more: dict[str, Any], message: str) -> None:
    table = {"type": "nce", "input": "x", "label": "t", "weights": "w", "num_sampled": 3, **more}
    given = {key: value for key, value in table.items() if value not in (None, "")}
    with pytest.raises(OptionError) as error:
        parse_loss(given)
    assert message in "\n".join(error.value.details)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "b"}, r"the weights 'b' are float32\[20\], but must be \[classes, 4\]"),
        ({"biases": "x"}, r"the biases 'x' are float32\[6,4\], but must be \[20\]"),
        ({"input": "b", "weights": "w"}, r"must be \[samples, dim\]"),
        ({"unique": True, "num_sampled": 21}, "21 classes of which none is drawn twice"),
    ],
)
def test_tensors_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    graph = _graph()
    given = {"input": "x", "label": "t", "weights": "w", "num_sampled": 3, **settings}
    spec = LossSpec("nce", **given)
    with pytest.raises(ModelError, match=message):
        add_loss(graph, spec, graph.tensors.__getitem__)


def test_labels_are_int32_unless_told_otherwise() -> None:
    graph = _graph()
    add_loss(graph, _spec("nce"), graph.tensors.__getitem__)
    assert [tensor.type.dtype for tensor in graph.inputs[3:]] == [DType.INT32, DType.INT32]
