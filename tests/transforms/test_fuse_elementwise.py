"""The pass that makes one op of chains of elementwise ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import parser

import popc
import popc_runtime
from popc.ir import Graph, OrderedPair, Recompute, StepPart, Tensor, TensorType
from popc.memory import plan_memory
from popc.options import Options, PatternLevel
from popc.schedule import build_schedule
from popc.transforms import fuse_elementwise
from popc.transforms.context import PassContext
from popc.transforms.fuse_elementwise import FuseElementwise
from popc_runtime.format import Array, DType
from tests.placement.networks import SGD, assert_equal, layered, on_chips, run_program
from tests.support.fused_programs import Chain, chains
from tests.support.oracles import run_onnxruntime
from tests.support.pipeline import Program
from tests.support.small_graphs import SmallGraph
from tests.transforms.building import Builder

_TOGETHER: Final[dict[str, Any]] = {"patterns": PatternLevel.ALL}
_X: Final = TensorType(DType.FLOAT32, (4, 6))
# Operands of an op: one that is there anyway, and two that are computed.
_PLACES: Final = ((0,), (1,), (1, 1), (0, 1), (1, 2), (2, 1), (2,), (0, 1, 2))
# Inputs of programs are arrays of types that numpy has.
_FED: Final = (DType.FLOAT32, DType.FLOAT16, DType.INT32, DType.INT64, DType.BOOL)


def _types(graph: Graph) -> list[str]:
    return [op.op_type for op in graph.topological()]


def _fused(graph: Graph) -> list[tuple[str, ...]]:
    """The steps of all chains."""
    made = [op for op in graph.topological() if op.op_type == "FusedElementwise"]
    found = (op.attributes["steps"] for op in made)
    return [tuple(map(str, got)) for got in found if isinstance(got, tuple)]


def _set(tensor: Tensor, **changes: Any) -> None:
    op = tensor.producer
    assert op is not None
    op.settings = replace(op.settings, **changes)


# -- what becomes one op ---------------------------------------------------------------------------


def test_what_is_read_in_the_chain_alone_is_inside() -> None:
    b = Builder(_X)
    a = b.emit("Mul", [b.x, b.constant(np.ones((4, 1), np.float32))])
    s = b.emit("Sigmoid", [a])
    y = b.emit("Mul", [a, s])
    b.graph.add_output("y", b.emit("Cast", [y], to="float16"))
    assert FuseElementwise()(b.graph, check=True).changes == 1
    assert _fused(b.graph) == [("Mul", "Sigmoid", "Mul", "Cast")]


def test_what_others_read_is_a_result() -> None:
    b = Builder(_X)
    a = b.emit("Exp", [b.emit("Neg", [b.x])])
    y = b.emit("Sqrt", [b.emit("Abs", [a])])
    b.graph.add_output("y", b.emit("Add", [y, b.emit("CumSum", [a, b.constant(0, DType.INT64)])]))
    FuseElementwise()(b.graph, check=True)
    assert sorted(_fused(b.graph)) == [("Abs", "Sqrt", "Add"), ("Neg", "Exp")]


@pytest.mark.parametrize(
    "changes",
    [
        {"virtual_graph": 1},
        {"pipeline_stage": 1},
        {"execution_phase": 1},
        {"batch_phase": 1},
        {"tile_set": "io"},
        {"bins": (("cycle", 2),)},
        {"part": StepPart.BACKWARD},
        {"recompute": Recompute.CHECKPOINT},
        {"outline": ("layer",)},
        {"schedule_priority": 1.0},
        {"inplace": ((0, 1.0),)},
        {"exclude_patterns": ("fuse_elementwise",)},
    ],
    ids=str,
)
def test_ops_that_do_not_belong_together_stay_apart(changes: dict[str, Any]) -> None:
    b = Builder(_X)
    a = b.emit("Exp", [b.x])
    _set(a, **changes)
    b.graph.add_output("y", b.emit("Neg", [a]))
    assert FuseElementwise()(b.graph, check=True).changes == 0
    assert _types(b.graph) == ["Exp", "Neg"]


@pytest.mark.parametrize(
    "make",
    [
        lambda b: b.emit("Neg", [b.emit("Cast", [b.x], to="float64")]),
        lambda b: b.emit("Square", [b.emit("Cast", [b.x], to="int32")]),
        lambda b: b.emit("Neg", [b.emit("Softmax", [b.x], axis=1)]),
        lambda b: b.emit("Add", [b.x, b.emit("Neg", [b.constant(np.ones(6, np.float32))])]),
        lambda b: b.emit("Add", [b.x, b.emit("Neg", [b.constant(np.ones((4, 6), np.float32))])]),
    ],
)
def test_what_is_no_chain(make: Callable[[Builder], Tensor]) -> None:
    """Other types, ops and shapes; and what is computed when the program is loaded."""
    b = Builder(_X)
    b.graph.add_output("y", make(b))
    assert FuseElementwise()(b.graph, check=True).changes == 0


def test_required_order_stays() -> None:
    """What has to wait for a step, or a step for it, must not become part of a cycle."""
    b = Builder(_X)
    first = b.emit("Exp", [b.x])
    between = b.emit("CumSum", [b.x, b.constant(0, DType.INT64)])
    last = b.emit("Add", [b.emit("Neg", [first]), between])
    assert first.producer is not None
    assert between.producer is not None
    assert last.producer is not None
    b.graph.ordering.add(OrderedPair(first.producer, between.producer))
    b.graph.ordering.add(OrderedPair(between.producer, last.producer))
    b.graph.add_output("y", last)
    FuseElementwise()(b.graph, check=True)
    assert _fused(b.graph) == [("Neg", "Add")]
    (fused,) = (op for op in b.graph.ops if op.op_type == "FusedElementwise")
    pairs = {(pair.first, pair.second) for pair in b.graph.ordering}
    assert pairs == {(first.producer, between.producer), (between.producer, fused)}


def test_long_chains_are_cut() -> None:
    b = Builder(_X)
    y = b.x
    for _ in range(30):
        y = b.emit("Neg", [y])
    b.graph.add_output("y", y)
    FuseElementwise()(b.graph, check=True)
    assert [len(steps) for steps in _fused(b.graph)] == [6, 24]


@pytest.mark.parametrize("option", ["enable_floating_point_checks", "enable_stochastic_rounding"])
def test_not_where_results_are_looked_at_or_rounded_one_by_one(option: str) -> None:
    for value, wanted in ((False, 1), (True, 0)):
        b = Builder(_X)
        b.graph.add_output("y", b.emit("Neg", [b.emit("Exp", [b.x])]))
        changes: dict[str, Any] = {option: value}
        one = FuseElementwise.of(PassContext(replace(Options(), **changes)))
        assert one(b.graph, check=True).changes == wanted


# -- memory ----------------------------------------------------------------------------------------


def _peak(graph: Graph) -> int:
    return plan_memory(graph, build_schedule(graph, Options()), inplace=True).peak_bytes


def _late(b: SmallGraph) -> Graph:
    """A sum of two results, and what takes a lot of memory before the next factor is there."""
    x = b.input(64, 64)
    a, c = b("CumSum", x, b.constant(0, DType.INT64)), b("CumSum", x, b.constant(1, DType.INT64))
    total = b("Add", a, c)
    wide = b("Softmax", b("Concat", *[x] * 8, axis=1), axis=1)
    row = b("ReduceSum", wide, axes=(1,), keepdims=1)
    return b.output(b("Mul", total, row))


def _waiting(b: SmallGraph) -> Graph:
    """The same, but one operand is all that waits."""
    x = b.input(64, 64)
    a = b("CumSum", x, b.constant(0, DType.INT64))
    wide = b("Softmax", b("Concat", *[x] * 8, axis=1), axis=1)
    row = b("ReduceSum", wide, axes=(1,), keepdims=1)
    return b.output(b("Mul", b("Relu", a), row))


def _chosen(b: SmallGraph) -> Graph:
    """A condition is smaller than what is chosen by it, but that has to be kept until then."""
    x = b.input(64, 64)
    a = b("CumSum", x, b.constant(0, DType.INT64))
    return b.output(b("Where", b("Greater", a, b.constant(0.0)), a, b.constant(1.0)))


def _part(b: SmallGraph) -> Graph:
    """What is read lies in something larger, which would have to be kept."""
    x = b.input(64, 64)
    wide = b("Softmax", b("Concat", *[x] * 8, axis=1), axis=1)
    part = b("Slice", wide, starts=(0, 0), steps=(1, 1), sizes=(64, 64))
    other = b("CumSum", x, b.constant(0, DType.INT64))
    return b.output(b("Mul", b("Relu", part), other))


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (_late, []),
        (_waiting, [("Relu", "Mul")]),
        (_chosen, [("Greater", "Where")]),
        (_part, []),
    ],
)
def test_memory_does_not_grow(
    make: Callable[[SmallGraph], Graph], steps: list[tuple[str, ...]]
) -> None:
    graph = make(SmallGraph())
    before = _peak(graph)
    FuseElementwise()(graph, check=True)
    assert _fused(graph) == steps
    assert _peak(graph) <= before


@pytest.mark.parametrize("first", _PLACES)
@pytest.mark.parametrize("second", _PLACES)
def test_pairs_are_judged_like_chains(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    around, answers = fuse_elementwise._Surroundings(frozenset(), {}), set[bool]()
    for dtypes in product((DType.BOOL, DType.FLOAT16, DType.FLOAT32), repeat=3):
        graph = Graph("main")
        given = [graph.add_constant("c", _X, np.zeros((4, 6), np.float32))]
        for dtype in dtypes[:2]:
            source = graph.add_op("CumSum", given, [_X.with_dtype(dtype)])
            given.append(source.output)
        op = graph.add_op("Where", [given[place] for place in first], [_X.with_dtype(dtypes[2])])
        read = [*(given[place] for place in second), op.output]
        for dtype in (DType.BOOL, DType.FLOAT16, DType.FLOAT32):
            root = graph.add_op("Where", read, [_X.with_dtype(dtype)])
            answer = fuse_elementwise._pair_needs_no_more(op, root, around)
            assert answer == fuse_elementwise._needs_no_more([op, root], around)
            answers.add(answer)
    assert True in answers


# -- the same bits ---------------------------------------------------------------------------------


def _graph_of(chain: Chain) -> Graph:
    graph = SmallGraph()
    values = [
        graph.graph.add_input(f"x{index}", TensorType(dtype, array.shape))
        for index, (array, dtype) in enumerate(zip(chain.inputs, chain.dtypes, strict=True))
    ]
    for step in chain.steps:
        operands = [values[operand] for operand in step.operands]
        values.append(graph(step.opcode, *operands, **step.attributes))
    return graph.output(values[-1])


def _bits(chain: Chain, engine: str, **options: Any) -> bytes:
    feeds = {
        f"x{index}": np.ascontiguousarray(operand) for index, operand in enumerate(chain.inputs)
    }
    feeds = {
        name: array.reshape(chain.inputs[int(name[1:])].shape) for name, array in feeds.items()
    }
    program = Program(_graph_of(chain), Options(verify_ir=True, **options))
    (result,) = program.run(feeds, engine).values()
    return result.tobytes()


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(chain=chains(types=_FED))
def test_programs_give_the_same_bits(chain: Chain) -> None:
    for engine in ("numpy", "auto"):
        assert _bits(chain, engine, **_TOGETHER) == _bits(chain, engine)


def _model(body: str, y: str = "y") -> Any:
    header = '<ir_version: 10, opset_import: ["" : 20]>\n'
    return parser.parse_model(
        f"{header} g (float[2,16,9,9] x, float[16,1,1] s) => (float[2,16,9,9] {y}) {{ {body} }}"
    )


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul (x, s) b = Add (a, x) c = Tanh (b) y = Mul (c, s)",
        "a = Greater (x, s) b = Where (a, x, s) y = Sub (b, x)",
        "a = Cast <to = 6> (x) b = Add (a, a) c = Cast <to = 1> (b) y = Max (c, s)",
    ],
)
def test_beside_onnxruntime(body: str, tmp_path: Path) -> None:
    model = _model(body)
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        "x": random.standard_normal((2, 16, 9, 9)).astype(np.float32),
        "s": random.standard_normal((16, 1, 1)).astype(np.float32),
    }
    (expected,) = run_onnxruntime(model, feeds)
    path = popc.compile(model, options=_TOGETHER).save(tmp_path / "m.popx")
    for engine in ("numpy", "auto"):
        result = popc_runtime.load(path, engine=engine).run(feeds)["y"]
        np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_outlining": True},
        {"replicated_graph_count": 2},
        {"auto_recomputation": "standard"},
        {"merge_var_update": "all"},
        {"virtual_graph_mode": "manual", "num_ipus": 2},
        {"virtual_graph_mode": "manual", "num_ipus": 2, "enable_pipelining": True},
        {
            "virtual_graph_mode": "manual",
            "num_ipus": 2,
            "enable_pipelining": True,
            "auto_recomputation": "pipeline",
        },
        {"batches_per_step": 2},
    ],
    ids=str,
)
def test_training_gives_the_same_weights(options: dict[str, Any], tmp_path: Path) -> None:
    model = on_chips(4, 2, skips=True) if "num_ipus" in options else layered([None] * 4, skips=True)
    options = {"accumulation_factor": 4, **options}
    apart = run_program(tmp_path, model, SGD, **options)
    assert_equal(run_program(tmp_path, model, SGD, **options, **_TOGETHER), apart)


def test_steps_keep_what_is_said_of_ops() -> None:
    b = Builder(_X)
    a = b.emit("Exp", [b.x])
    _set(a, origin="first", location="here")
    y = b.emit("Neg", [a])
    _set(y, origin="last", location="there")
    name = y.name
    b.graph.add_output("y", y)
    FuseElementwise()(b.graph, check=True)
    (op,) = b.graph.ops
    assert (op.settings.origin, op.settings.location) == ("first, last", "there")
    assert op.output.name == name
