"""Every local rule: when it fires, when it must not, and that results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popc.ir import Graph, OpSettings, Tensor, verify
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.rules import RULES, LocalRule
from popc.transforms.rules.fast_math import FAST_MATH
from popc.transforms.simplify import Simplify
from popc_runtime.format import Array, DType
from tests.support.random_graphs import interpret
from tests.support.small_graphs import SmallGraph

_BY_NAME: Final = {rule.name: rule for rule in RULES}
_EXACT: Final = tuple(rule for rule in RULES if rule.level != FAST_MATH)
_LARGE: Final = 1 << 18  # float32 elements of a megabyte


@dataclass(frozen=True)
class Case:
    """A graph on which a rule fires, and what is left of it, op by op."""

    rule: str
    write: Callable[[SmallGraph], Tensor]
    left: str


def _sliced(g: SmallGraph, x: Tensor, start: int, size: int, step: int) -> Tensor:
    return g("Slice", x, starts=(start, 0), sizes=(size, 3), steps=(step, 1))


def _padded(g: SmallGraph, x: Tensor, before: int, after: int) -> Tensor:
    return g("Pad", x, pads=(before, 0, after, 0), mode="constant", value=0.0)


def _pads(g: SmallGraph, around: tuple[int, int] = (0, 0), gap: int = 0) -> list[Tensor]:
    """Two halves of a sum, [2, 3] each, between zeros."""
    a, b = g.input(2, 3), g.input(2, 3)
    first, last = around
    return [
        _padded(g, b, first + 2 + gap, last),
        _padded(g, a, first, last + 2 + gap),
    ]


def _convolved(g: SmallGraph, pads: tuple[int, ...], value: float = 0.0) -> Tensor:
    x = g("Pad", g.input(1, 2, 3, 4), pads=pads, mode="constant", value=value)
    return g("Conv", x, g.input(3, x.type.shape[1], 2, 2), pads=(1, 0, 0, 1))


def _table(g: SmallGraph) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of a lookup, with a row that is read twice, and another gradient."""
    rows, dense = g.input(4, 3), g.input(5, 3)
    return rows, g.constant([1, 3, 1, -1], DType.INT64), dense


def _tied(g: SmallGraph, *, swap: bool = False) -> Tensor:
    rows, places, dense = _table(g)
    grad = g("GatherGrad", rows, places, axis=0, size=5)
    return g("Add", *((dense, grad) if swap else (grad, dense)))


def _bags(g: SmallGraph, fold: str, *, apart: bool = False) -> Tensor:
    table, rows = g.input(5, 3), []
    places = g.constant([4, 0, 4, 2], DType.INT64)
    for start in (0, 2):
        part = g("Slice", places, starts=(start,), sizes=(2,), steps=(1,))
        found = g("Gather", table, g("Copy", part) if apart else part, axis=0)
        rows.append(g("Reshape", g(fold, found, axes=(0,), keepdims=0), shape=(1, 3)))
    return g("Concat", *rows, axis=0)


def _twice(g: SmallGraph, op_type: str) -> Tensor:
    x = g.input(3)
    return g(op_type, x, x)


def _factored(g: SmallGraph, x: Tensor, y: Tensor) -> Tensor:
    factor = g.input(3)
    return g("Add", g("Mul", x, factor), g("Mul", factor, y))


def _shared_expansion(g: SmallGraph) -> Tensor:
    expanded = g("Expand", g.input(1, 3), shape=(4, 3))
    return g("Mul", expanded, g("Cast", g("Cast", expanded, to="float16"), to="float32"))


_CASES: Final = (
    Case("drop_identities", lambda g: g("Neg", g("Cast", g.input(3), to="float32")), "Neg"),
    Case("drop_identities", lambda g: g("Neg", g("Sum", g.input(3))), "Neg"),
    Case("drop_identities", lambda g: g("Neg", _padded(g, g.input(3, 2), 0, 0)), "Neg"),
    Case("drop_identities", lambda g: g("Neg", _sliced(g, g.input(4, 3), 0, 4, 1)), "Neg"),
    Case("drop_detach", lambda g: g("Neg", g("Detach", g.input(3))), "Neg"),
    Case("drop_neutral_elements", lambda g: g("Neg", g("Mul", g.input(3), g.constant(1))), "Neg"),
    Case("drop_empty_operands", lambda g: g("Concat", *map(g.input, (2, 0, 3)), axis=0), "Concat"),
    Case(
        "join_reshapes",
        lambda g: g("Reshape", g("Reshape", g.input(2, 3), shape=(6,)), shape=(3, 2)),
        "Reshape",
    ),
    Case("trivial_transposes", lambda g: g("Transpose", g.input(1, 3), perm=(1, 0)), "Reshape"),
    Case(
        "join_transposes",
        lambda g: g(
            "Transpose", g("Transpose", g.input(2, 3, 4), perm=(1, 2, 0)), perm=(1, 2, 0)
        ),
        "Transpose",
    ),
    Case(
        "late_reshapes",
        lambda g: g("Tanh", g("Reshape", _convolved(g, (0,) * 8), shape=(3, 3, 4))),
        "Pad Conv Tanh Reshape",
    ),
    Case(
        "join_slices",
        lambda g: _sliced(g, _sliced(g, g.input(9, 3), 8, 8, -1), 6, 3, -2),
        "Slice",
    ),
    Case("split_slices", lambda g: _sliced(g, g.input(9, 3), 7, 3, -2), "Slice Slice"),
    Case(
        "join_casts",
        lambda g: g("Cast", g("Cast", g.input(3, dtype=DType.FLOAT16), to="float32"),
                    to="float64"),
        "Cast",
    ),
    Case(
        "expand_casts",
        lambda g: g("Cast", g("Expand", g.input(1, 3), shape=(4, 3)), to="float16"),
        "Cast Expand",
    ),
    Case("negative_ones", lambda g: g("Mul", g.constant(-1), g.input(3)), "Neg"),
    Case("pad_windows", lambda g: _convolved(g, (0, 0, 1, 2, 0, 0, 3, 0)), "Conv"),
    Case("add_pads", lambda g: g("Sum", *_pads(g)), "Concat"),
    Case("add_pads", lambda g: g("Add", *_pads(g, (1, 2))), "Concat Pad"),
    Case("add_pads", lambda g: g("Sum", g.input(4, 3), *_pads(g)), "Concat Sum"),
    Case("sums_of_two", lambda g: g("Sum", g.input(3), g.input(3)), "Add"),
    Case("tied_gradients", _tied, "Reshape ScatterND"),
    Case("tied_gradients", lambda g: _tied(g, swap=True), "Reshape ScatterND"),
    Case(
        "gathers_of_ranges",
        lambda g: g("Gather", g.input(5, 3), g.constant([-1, 2, 0][:2], DType.INT64), axis=0),
        "Slice",
    ),
    Case(
        "gathers_of_ranges",
        lambda g: g("Gather", g.input(2, 5), g.constant(-2, DType.INT32), axis=1),
        "Slice Reshape",
    ),
    Case(
        "split_gathers",
        lambda g: g("Gather", g.input(4, _LARGE // 2), g.constant([3, 0, 3], DType.INT64), axis=0),
        "Split Gather Gather Concat",
    ),
    Case("lookups_of_bags", lambda g: _bags(g, "ReduceMax"), "Slice Reshape Gather ReduceMax"),
    Case(
        "lookups_of_bags",
        lambda g: _bags(g, "ReduceSum", apart=True),
        "Slice Slice Copy Copy Reshape Reshape Concat Gather ReduceSum",
    ),
    Case("known_values", lambda g: _twice(g, "Sub"), "Expand"),
    Case("inverse_factors", lambda g: g("Div", g.input(3), g.constant(3)), "Mul"),
    Case("inverse_factors", lambda g: g("Div", g.input(4, 3), g.input(3)), "Reciprocal Mul"),
    Case(
        "joined_constants",
        lambda g: g("Add", g("Add", g.input(3), g.constant(0.1)), g.constant(0.2)),
        "Add",
    ),
    Case("common_factors", lambda g: _factored(g, g.input(3), g.input(3)), "Add Mul"),
)  # fmt: skip

_QUIET: Final[dict[str, Callable[[SmallGraph], Tensor]]] = {
    "a pad that moves": lambda g: _padded(g, g.input(4, 3), 1, -1),
    "a narrower type on the way": lambda g: g(
        "Cast", g("Cast", g.input(3), to="float16"), to="float32"
    ),
    "an expansion that others read": _shared_expansion,
    "pads with a gap": lambda g: g("Sum", *_pads(g, gap=1), g.input(5, 3)),
    "pads among two others": lambda g: g("Sum", g.input(4, 3), g.input(4, 3), *_pads(g)),
    "overlapping pads": lambda g: g(
        "Sum", _padded(g, g.input(3, 3), 0, 1), _padded(g, g.input(3, 3), 1, 0), g.input(4, 3)
    ),
    "pads with ones": lambda g: g(
        "Sum",
        *(g("Pad", g.input(1, 3), pads=pads, mode="constant", value=1.0)
          for pads in ((0, 0, 1, 0), (1, 0, 0, 0))),
        g.input(2, 3),
    ),
    "an unsigned product": lambda g: g(
        "Mul", g.input(3, dtype=DType.UINT8), g.constant(255, DType.UINT8)
    ),
    "irregular rows": lambda g: g(
        "Gather", g.input(5, 3), g.constant([0, 1, 3], DType.INT64), axis=0
    ),
    "one row again and again": lambda g: g(
        "Gather", g.input(5, 3), g.constant([2, 2], DType.INT64), axis=0
    ),
    "a subsample of all": lambda g: _sliced(g, _sliced(g, g.input(9, 3), 1, 7, 1), 0, 4, 2),
    "an image between ones": lambda g: _convolved(g, (0, 0, 1, 1, 0, 0, 1, 1), 1.0),
    "channels of zeros": lambda g: _convolved(g, (0, 1, 1, 1, 0, 0, 1, 1)),
    "a part of an image": lambda g: _convolved(g, (0, 0, -1, 1, 0, 0, 1, 1)),
    "a sum of three": lambda g: g("Sum", g.input(3), g.input(3), g.input(3)),
}  # fmt: skip


def _feeds(graph: Graph) -> list[Array]:
    random = np.random.default_rng(1)
    feeds = []
    for tensor in graph.inputs:
        values = random.standard_normal(tensor.type.shape) * 4
        feeds.append(values.astype(tensor.type.dtype.storage))
    return feeds


def _graph(write: Callable[[SmallGraph], Tensor]) -> Graph:
    small = SmallGraph()
    return small.output(write(small))


def _apply(graph: Graph, *rules: LocalRule) -> int:
    changes = run_to_fixed_point([Simplify(rules), DeadCode()], graph, check=True)
    return sum(change.changes for change in changes if change.name == "simplify")


def _types(graph: Graph) -> str:
    return " ".join(op.op_type for op in graph.topological())


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case.rule} {case.left}")
def test_rule_fires_and_keeps_the_results(case: Case) -> None:
    graph = _graph(case.write)
    feeds = _feeds(graph)
    expected = interpret(graph, feeds)
    assert _apply(graph, _BY_NAME[case.rule]) > 0
    assert _types(graph) == case.left
    (actual,) = interpret(graph, feeds)
    rounds = _BY_NAME[case.rule].level == FAST_MATH
    if rounds or case.rule in {
        "lookups_of_bags",
        "pad_windows",
        "tied_gradients",
    }:  # sums are in another order
        np.testing.assert_allclose(actual, expected[0], rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(actual, expected[0])


@pytest.mark.parametrize("write", _QUIET.values(), ids=list(_QUIET))
def test_rules_leave_other_ops_alone(write: Callable[[SmallGraph], Tensor]) -> None:
    graph = _graph(write)
    before = _types(graph)
    assert Simplify(tuple(rule for rule in RULES if rule.level != "all")).run(graph) == 0
    assert _types(graph) == before


def test_every_rule_has_a_fixture() -> None:
    assert {case.rule for case in _CASES} == _BY_NAME.keys()
    assert len(_BY_NAME) == len(RULES)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case.rule} {case.left}")
def test_ops_exclude_a_rule(case: Case) -> None:
    graph = _graph(case.write)
    before = _types(graph)
    for op in graph.ops:
        op.settings = OpSettings(exclude_patterns=(case.rule,))
    assert Simplify((_BY_NAME[case.rule],)).run(graph) == 0
    for op in graph.ops:
        op.settings = OpSettings(exclude_patterns=("simplify",))
    assert Simplify((_BY_NAME[case.rule],)).run(graph) == 0
    assert _types(graph) == before


def test_a_neighbour_excludes_a_rule() -> None:
    small = SmallGraph()
    inner = small.op("Reshape", small.input(2, 3), shape=(6,))
    graph = small.output(small("Reshape", inner.output, shape=(3, 2)))
    inner.settings = OpSettings(exclude_patterns=("join_reshapes",))
    assert Simplify().run(graph) == 0
    inner.settings = OpSettings(exclude_patterns=("join_transposes",))
    assert Simplify().run(graph) == 1


class _Writer:
    """Ops on matrices that rules look for, one after the other."""

    def __init__(self, draw: DrawFn) -> None:
        self.draw = draw
        self.graph = Graph("main")
        small = SmallGraph()
        small.graph = self.graph
        self.small = small
        self.pool = [small.input(4, 3), small.input(4, 3), small.input(1, 3)]

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def any(self) -> Tensor:
        return self.draw(st.sampled_from(self.pool))

    def slice(self) -> Tensor:
        x = self.any()
        starts: list[int] = []
        sizes: list[int] = []
        steps: list[int] = []
        for dim in x.type.shape:
            step = self.number(-2, 2) or 1
            start = self.number(0, dim - 1)
            room = start // -step + 1 if step < 0 else (dim - start - 1) // step + 1
            starts, sizes, steps = [*starts, start], [*sizes, self.number(1, room)], [*steps, step]
        return self.small("Slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))

    def cast(self) -> Tensor:
        x = self.small("Cast", self.any(), to=self.draw(st.sampled_from(["float16", "float64"])))
        return self.small("Cast", x, to="float32")

    def expand(self) -> Tensor:
        x = self.any()
        shape = tuple(dim if dim > 1 else 2 for dim in x.type.shape)
        x = self.small("Expand", x, shape=shape)
        return self.small("Cast", self.small("Cast", x, to="float16"), to="float32")

    def gather(self) -> Tensor:
        x = self.any()
        axis = self.number(0, 1)
        dim = x.type.shape[axis]
        places = self.draw(st.lists(st.integers(-dim, dim - 1), min_size=1, max_size=3))
        return self.small("Gather", x, self.small.constant(places, DType.INT64), axis=axis)

    def pads(self) -> Tensor:
        x = self.any()
        rows, columns = x.type.shape
        cut = self.number(0, rows)
        parts = [
            self.small("Slice", x, starts=(a, 0), sizes=(b - a, columns), steps=(1, 1))
            for a, b in ((0, cut), (cut, rows))
        ]
        sums = [
            _padded(self.small, parts[0], 0, rows - cut),
            _padded(self.small, parts[1], cut, 0),
        ]
        more = [x] * self.number(0, 2)
        return self.small("Sum", *(sums if self.number(0, 1) else sums[::-1]), *more)

    def binary(self) -> Tensor:
        x = self.any()
        same = [item for item in self.pool if item.type == x.type]
        other = self.draw(st.sampled_from([*same, self.small.constant(-1), self.small.constant(1)]))
        return self.small(self.draw(st.sampled_from(["Add", "Mul", "Sub"])), x, other)

    def move(self) -> Tensor:
        x = self.any()
        if self.number(0, 1):
            return self.small("Transpose", x, perm=(1, 0))
        shape = x.type.shape[::-1] if self.number(0, 1) else (1, x.type.size)
        return self.small("Reshape", x, shape=shape)


@st.composite
def _graphs(draw: DrawFn) -> Graph:
    writer = _Writer(draw)
    kinds = [
        writer.slice, writer.slice, writer.cast, writer.expand, writer.gather, writer.pads,
        writer.binary, writer.move, writer.move,
    ]  # fmt: skip
    for _ in range(draw(st.integers(1, 12))):
        writer.pool.append(draw(st.sampled_from(kinds))())
    return writer.small.output(*{writer.pool[-1]: None, writer.any(): None})


@settings(deadline=None, max_examples=150)
@given(graph=_graphs(), chosen=st.sets(st.sampled_from(sorted(rule.name for rule in _EXACT))))
def test_rules_keep_the_results_of_random_graphs(graph: Graph, chosen: set[str]) -> None:
    """Any set of them, and all."""
    assert verify(graph) == []
    feeds = _feeds(graph)
    expected = interpret(graph, feeds)
    for rules in (tuple(_BY_NAME[name] for name in sorted(chosen)), _EXACT):
        _apply(graph, *rules)
        for ours, theirs in zip(interpret(graph, feeds), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_rule_fits_any_graph_around_it() -> None:
    """Results of unused parts of a rewrite do not stay."""
    graph = _graph(lambda g: g("Neg", g("Sum", *_pads(g))))
    _apply(graph, *RULES)
    assert _types(graph) == "Concat Neg"
