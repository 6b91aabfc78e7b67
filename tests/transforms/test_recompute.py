"""Recomputation: what is chosen, that results stay, that memory shrinks, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

import popc
import popc_runtime
from popc.autodiff.copying import copy_graph
from popc.ir import Graph, Op, Recompute, StepPart, TensorType
from popc.ops.build import build
from popc.options import AutoRecomputation, Options
from popc.training.parts import added_ops_in
from popc.transforms.check_recompute import find_unrecomputed
from popc.transforms.checkpoints import METHODS, decreasing_intervals
from popc.transforms.common_subexpressions import CommonSubexpressions
from popc_runtime.format import Array, DType
from samples.networks import digits_cnn, digits_mlp, sorting_transformer
from tests.support.compiling import CHECKED
from tests.support.graph_gradients import with_gradients
from tests.support.pipeline import Program
from tests.support.smooth_graphs import smooth_feeds, smooth_graph
from tests.training.deep import (
    DEEP,
    TRAIN,
    compiled,
    deep_cnn,
    deep_mlp,
    deep_transformer,
    effects,
    feeds_of,
    repetitions,
)

_ALL: dict[str, Any] = {"auto_recomputation": "recompute_all"}
_VARIANTS: dict[str, dict[str, Any]] = {
    "standard": {"auto_recomputation": "standard"},
    "norm_only": {"auto_recomputation": "norm_only"},
    "recompute_all": _ALL,
    "blocks": {**_ALL, "checkpoints": ["block*"]},
    "by_name": {"recompute": ["*"], "checkpoints": ["block*"]},
}


def _results(
    model: onnx.ModelProto,
    folder: Path,
    feeds: Mapping[str, Array],
    train: Mapping[str, Any] = TRAIN,
    **options: Any,
) -> list[Array]:
    """The losses of three steps, and all variables after them."""
    archive = popc.compile(model, train=train, options={**CHECKED, **options})
    program = popc_runtime.load(archive.save(folder / "train.popx", force=True))
    losses = [program.run(feeds)["loss"] for _ in range(3)]
    return [*losses, *program.state.read().values()]


def _assert_same(one: Sequence[Array], other: Sequence[Array]) -> None:
    assert len(one) == len(other)
    for array, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(array, expected)


# -- methods ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "lengths"),
    [(1, [1]), (9, [2, 1] + [1] * 6), (32, [5, 4, 3, 2, 1] + [1] * 17), (0, [])],
)
def test_intervals_get_shorter(count: int, lengths: list[int]) -> None:
    intervals = list(decreasing_intervals(count))
    assert [len(interval) for interval in intervals] == lengths
    assert [place for interval in intervals for place in interval] == list(range(count))


@st.composite
def _forward(draw: st.DrawFn) -> list[Op]:
    """Ops of sizes and with readers at random; the last one reads what nobody else does."""
    graph = Graph("main")
    tensors = [graph.add_input("x", TensorType(DType.FLOAT32, (1,)))]
    for _ in range(draw(st.integers(1, 24))):
        operands = draw(st.lists(st.sampled_from(tensors[-4:]), min_size=1, max_size=3))
        size = draw(st.integers(1, 9))
        graph.add_op("Any", operands, [TensorType(DType.FLOAT32, (size,))])
        tensors.append(graph.ops[-1].output)
    ends = [tensor for tensor in tensors if not tensor.uses]
    graph.add_op("Any", ends, [TensorType(DType.FLOAT32, ())])
    return list(graph.ops)


@settings(deadline=None)
@given(ops=_forward())
def test_standard_keeps_what_is_live_at_the_cheapest_places(ops: list[Op]) -> None:
    def live(place: int) -> list[Op]:
        later = {tensor for op in ops[place + 1 :] for tensor in op.present_inputs}
        return [op for op in ops[: place + 1] if op is ops[place] or op.output in later]

    def size(place: int) -> int:
        return sum(op.output.type.nbytes for op in live(place))

    kept: set[Op] = set()
    for interval in decreasing_intervals(len(ops)):
        smallest = min(map(size, interval))
        kept.update(live(next(place for place in interval if size(place) == smallest)))
    assert list(METHODS[AutoRecomputation.STANDARD](ops)) == [op for op in ops if op not in kept]


# -- programs --------------------------------------------------------------------------------------


def _deep_results(name: str, folder: Path, **options: Any) -> list[Array]:
    model = DEEP[name]()
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return _results(model, folder, feeds_of(shape), **options)


_PLAIN: dict[str, list[Array]] = {}


def _plain_results(name: str, folder: Path) -> list[Array]:
    if name not in _PLAIN:
        _PLAIN[name] = _deep_results(name, folder)
    return _PLAIN[name]


@pytest.mark.parametrize("variant", sorted(_VARIANTS))
@pytest.mark.parametrize("name", sorted(DEEP))
def test_results_stay_the_same(name: str, variant: str, tmp_path: Path) -> None:
    options = _VARIANTS[variant]
    if name == "mlp" and variant == "norm_only":
        assert effects(compiled(DEEP[name](), **options)) == {}
        return
    _assert_same(_deep_results(name, tmp_path, **options), _plain_results(name, tmp_path))
    done = compiled(DEEP[name](), **options)
    assert effects(done)["ops recomputed"] == len(repetitions(done.graph)) > 0
    assert effects(done)["bytes saved"] >= 0


@pytest.mark.parametrize("method", ["standard", "recompute_all"])
@pytest.mark.parametrize("make", [digits_cnn, digits_mlp, sorting_transformer])
def test_sample_networks(make: Callable[[], onnx.ModelProto], method: str, tmp_path: Path) -> None:
    model = make()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    (x,) = model.graph.input
    shape = [dim.dim_value for dim in x.type.tensor_type.shape.dim]
    rng = np.random.default_rng(0)
    label = rng.integers(0, 10, shape[: 1 if x.name == "image" else 2]).astype(np.int32)
    data = rng.random(shape, np.float32) if x.name == "image" else rng.integers(0, 10, shape)
    feeds = {x.name: np.asarray(data), "label": label}
    plain = _results(model, tmp_path, feeds)
    options: dict[str, Any] = {"auto_recomputation": method}
    _assert_same(_results(model, tmp_path, feeds, **options), plain)


_CHOSEN = st.sampled_from([AutoRecomputation.STANDARD, AutoRecomputation.RECOMPUTE_ALL])


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 2**32), method=_CHOSEN)
def test_random_graphs(seed: int, method: AutoRecomputation) -> None:
    """With branches, loops and random checkpoints; `Program` lets all checkers look at them."""
    graph = smooth_graph(seed, most_ops=40)
    feeds = smooth_feeds(graph)
    rng = np.random.default_rng(seed)
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    weights = {name: np.asarray(rng.uniform(-1, 1, t.type.shape)) for name, t in outputs}
    for op in graph.ops:
        if rng.integers(4) == 0:
            op.settings = replace(op.settings, recompute=Recompute.CHECKPOINT)
    with added_ops_in(graph, StepPart.BACKWARD):
        with_gradients(graph, weights)
    plain = Program(copy_graph(graph).graph).run(feeds)
    results = Program(graph, Options(auto_recomputation=method, verify_ir=True)).run(feeds)
    _assert_same(list(results.values()), list(plain.values()))


@pytest.mark.parametrize(
    ("make", "blocks", "variant", "most"),
    [
        (deep_mlp, 24, "standard", 0.9),
        (deep_cnn, 10, "standard", 0.9),
        (deep_cnn, 6, "blocks", 0.7),
        (deep_transformer, 3, "standard", 0.9),
        (deep_transformer, 3, "blocks", 0.5),
    ],
)
def test_peak_memory_goes_down(
    make: Callable[[int], onnx.ModelProto], blocks: int, variant: str, most: float
) -> None:
    model = make(blocks)
    plain, done = compiled(model), compiled(model, **_VARIANTS[variant])
    assert plain.plan is not None
    assert done.plan is not None
    assert done.plan.arena_bytes <= most * plain.plan.arena_bytes


def test_memory_grows_with_the_root_of_the_depth() -> None:
    """With a checkpoint after every fifth of 25 blocks."""
    plain = compiled(deep_mlp(25)).plan
    some = compiled(deep_mlp(25), **_ALL, checkpoints=[f"block{i}" for i in range(4, 25, 5)]).plan
    assert plain is not None
    assert some is not None
    assert some.arena_bytes < 0.45 * plain.arena_bytes


@pytest.mark.parametrize(
    "loops",
    [
        {"accumulation_factor": 2},
        {"batches_per_step": 2},
        {"batches_per_step": 2, "accumulation_factor": 3},
    ],
)
def test_inside_main_loops(loops: dict[str, Any], tmp_path: Path) -> None:
    model = deep_transformer(2)
    feeds = feeds_of((8, 8, 16), *loops.values())
    plain = _results(model, tmp_path, feeds, **loops)
    options = {**_VARIANTS["blocks"], **loops}
    _assert_same(_results(model, tmp_path, feeds, **options), plain)
    before, after = compiled(model, **loops).plan, compiled(model, **options).plan
    assert before is not None
    assert after is not None
    assert after.arena_bytes < 0.75 * before.arena_bytes


def test_repetitions_come_after_the_forward_pass() -> None:
    done = compiled(deep_transformer(), **_VARIANTS["blocks"])
    assert done.schedule is not None
    order = list(done.schedule.orders[done.graph])
    loss = max(
        index
        for index, op in enumerate(order)
        if op.outputs and op.settings.part is StepPart.FORWARD
    )
    places = [order.index(op) for op in repetitions(done.graph)]
    assert min(places) > loss
    # They are spread over the backward pass: one block after the other.
    assert max(places) - min(places) > len(places) * 1.5


def test_seeds_of_dropouts_are_kept() -> None:
    done = compiled(deep_transformer(1), **_ALL)
    again = repetitions(done.graph)
    types = {op.op_type for op in again}
    assert "RandomSeed" not in types
    assert {"MatMul", "LayerNormalization", "Attention", "SeededDropout"} <= types
    dropped = next(op for op in again if op.op_type == "SeededDropout")
    drawn = dropped.operand(3).producer
    assert drawn is not None
    assert drawn.op_type == "RandomSeed"
    assert drawn.settings.part is StepPart.FORWARD


def test_what_is_rounded_at_random_is_kept() -> None:
    text = """<ir_version: 10, opset_import: ["" : 22]>
        g (float16[4,4] x) => (float16 loss) <float16[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}>
        { a = Relu (x) p = MatMul (a, w) r = Relu (p) s = Sin (r) loss = ReduceMean <keepdims = 0>
        (s) }"""
    train = {**TRAIN, "loss": {"type": "identity", "input": "loss"}}

    def repeated(**options: Any) -> set[str]:
        done = compiled(parser.parse_model(text), train, **_ALL, **options)
        return {op.op_type for op in repetitions(done.graph)}

    assert "MatMul" in repeated()
    assert "MatMul" not in repeated(enable_stochastic_rounding=True)


_LOOP = """<ir_version: 10, opset_import: ["" : 22]>
    g (float[4,4] x) => (float loss)
    <float[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}, float[4] h = {1,2,3,4}, int64 n = {3}> {
        a = MatMul (x, w)
        b, rows = Loop <body = step (int64 i, bool c, float[4,4] p)
            => (bool again, float[4,4] q, float[4,4] row) {
                again = Identity (c) m = Mul (p, w) q = Sin (m) row = Tanh (q) }> (n, , a)
        total = ReduceSum <keepdims = 0> (rows)
        d = Mul (b, total)
        large = ReduceMax <keepdims = 0> (d)
        positive = Less (large, total)
        e = If (positive) <then_branch = yes () => (float[4,4] y) { y = Sin (d) },
                           else_branch = no () => (float[4,4] z) { z = Mul (d, d) }>
        f = Mul (e, h)
        loss = ReduceMean <keepdims = 0> (f)
    }"""


def test_control_flow_is_repeated(tmp_path: Path) -> None:
    model = parser.parse_model(_LOOP)
    train = {**TRAIN, "loss": {"type": "identity", "input": "loss"}}
    feeds = {"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)}
    done = compiled(model, train, **_ALL)
    assert {"Loop", "If"} <= {op.op_type for op in repetitions(done.graph)}
    plain = _results(model, tmp_path, feeds, train)
    _assert_same(_results(model, tmp_path, feeds, train, **_ALL), plain)


def test_states_that_the_forward_pass_overwrites(tmp_path: Path) -> None:
    """s := sin(s + x), and the loss reads the new s and what it came from."""
    text = """<ir_version: 10, opset_import: ["" : 22, "ai.graphcore" : 1]>
        g (float[4] x) => (float loss) <float[4] s = {1,2,3,4}, float[4] w = {1,2,3,4}> {
            a = Add (s, x) b = Mul (a, w) c = Sin (b) updated = ai.graphcore.CopyVarUpdate (s, c)
            d = Mul (c, w) e = Mul (d, s) loss = ReduceMean <keepdims = 0> (e) }"""
    model = parser.parse_model(text)
    train = {
        "loss": {"type": "identity", "input": "loss"},
        "optimizer": TRAIN["optimizer"],
        "weights": {"trainable": ["w"]},
    }
    feeds = {"x": np.linspace(-1, 1, 4, dtype=np.float32)}
    assert effects(compiled(model, train, **_ALL))["ops recomputed"] > 0
    plain = _results(model, tmp_path, feeds, train)
    _assert_same(_results(model, tmp_path, feeds, train, **_ALL), plain)


# -- the checker, and other passes -----------------------------------------------------------------


def _first(graph: Graph, recompute: Recompute) -> Op:
    return next(op for op in graph.topological() if op.settings.recompute is recompute)


def _read_original(graph: Graph) -> None:
    op = _first(graph, Recompute.RECOMPUTED)
    original = graph.tensors[op.output.name.removesuffix("_recomputed")]
    for user in op.output.users:
        graph.set_input(user, user.inputs.index(op.output), original)


def _repeat_something_else(graph: Graph) -> None:
    op = _first(graph, Recompute.RECOMPUTED)
    op.op_type = "Sin"


def _read_the_future(graph: Graph) -> None:
    op = _first(graph, Recompute.RECOMPUTE)
    op.settings = replace(op.settings, part=StepPart.UPDATE)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_read_original, "which is not kept"),
        (_repeat_something_else, "repeats no forward op"),
        (_read_the_future, "of a later part"),
    ],
)
def test_the_checker_finds(spoil: Callable[[Graph], None], message: str) -> None:
    graph = compiled(deep_mlp(4), **_ALL, disabled_passes=["fuse_elementwise"]).graph
    assert find_unrecomputed(graph) == []
    spoil(graph)
    assert any(message in problem for problem in find_unrecomputed(graph))


def test_repetitions_are_not_merged_with_originals() -> None:
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (2,)))
    ops = [build(graph, "Sin", [x]) for _ in range(4)]
    for op in ops[2:]:
        op.settings = replace(op.settings, recompute=Recompute.RECOMPUTED)
    graph.add_output("y", build(graph, "Sum", [op.output for op in ops]).output)
    CommonSubexpressions().run(graph)
    kept = [op.settings.recompute for op in graph.ops if op.op_type == "Sin"]
    assert kept == [Recompute.UNDEFINED, Recompute.RECOMPUTED]
