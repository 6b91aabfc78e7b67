"""Every rewrite keeps the results of any graph: of operands of all ranks, and extreme constants.

The tables of rules and passes are those of the compiler: one without graphs fails by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import isabstract
from typing import Any, Final, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popc.ir import Graph, verify
from popc.transforms.base import Pass, RewritePass, run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.rules import RULES
from popc.transforms.rules.fast_math import FAST_MATH
from popc.transforms.simplify import Simplify
from popc_runtime.format import Array, DType
from tests.support.random_graphs import interpret
from tests.transforms.drawing import Drawing, feeds
from tests.transforms.drawn_passes import DRAWN_PASSES
from tests.transforms.drawn_rules import GRAPHS_OF_RULES

_BY_NAME: Final = {rule.name: rule for rule in RULES}
_EXAMPLES = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _subclasses(kind: type[Any]) -> Iterator[type[RewritePass]]:
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("popc.") and not isabstract(subclass):
            yield subclass
        yield from _subclasses(subclass)


def test_every_rule_and_pass_has_graphs() -> None:
    assert sorted(GRAPHS_OF_RULES) == sorted(_BY_NAME)
    names = {subclass.__name__ for subclass in _subclasses(RewritePass)}
    applying = {"LateSimplify", "Simplify"}  # these apply the rules
    assert names - {drawn.__name__ for drawn in DRAWN_PASSES} == applying


def _values(graph: Graph, given: Sequence[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return interpret(graph, given)


def _rewritten(graph: Graph, change: Pass, *, again: bool = True) -> None:
    assert verify(graph) == []
    if again:
        run_to_fixed_point([change, DeadCode()], graph, check=True)
    else:
        change(graph, check=True)


def _same_bits(ours: Array, theirs: Array, *, zeros: bool) -> None:
    """The same numbers; NaNs may be any, and zeros of either sign unless ``zeros`` says so."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_array_equal(ours, theirs)
    if zeros and ours.dtype.kind == "f":
        are_zero = theirs == 0
        np.testing.assert_array_equal(np.signbit(ours[are_zero]), np.signbit(theirs[are_zero]))


@pytest.mark.parametrize("name", sorted(GRAPHS_OF_RULES))
def test_rules_keep_results(name: str) -> None:
    rule = _BY_NAME[name]

    @(settings(_EXAMPLES, max_examples=6) if name == "split_gathers" else _EXAMPLES)  # of 1 MiB
    @given(data=st.data(), seed=st.integers(0, 99))
    def check(data: st.DataObject, seed: int) -> None:
        drawing = Drawing(cast(DrawFn, data.draw))
        graph = drawing.small.output(GRAPHS_OF_RULES[name](drawing))
        # Zeros may or may not meet infinity.
        rounded = rule.level == FAST_MATH or rule.results == "equal up to rounding"
        order = rounded or rule.results.startswith("rows")
        inputs = feeds(graph, seed, limits=not order, extremes=not rounded)
        (theirs,) = _values(graph, inputs)
        _rewritten(graph, Simplify((rule,)))
        (ours,) = _values(graph, inputs)
        if order:
            _close(ours, theirs, 8.0, theirs.dtype)
        else:
            _same_bits(ours, theirs, zeros="-0" not in rule.results)

    check()


@pytest.mark.parametrize("kind", DRAWN_PASSES, ids=lambda kind: kind.name)
def test_passes_keep_results(kind: type[RewritePass]) -> None:
    drawn = DRAWN_PASSES[kind]

    @_EXAMPLES
    @given(data=st.data(), seed=st.integers(0, 99))
    def check(data: st.DataObject, seed: int) -> None:
        drawing = Drawing(cast(DrawFn, data.draw))
        graph = drawing.small.output(drawn.write(drawing))
        inputs = feeds(graph, seed, limits=drawn.bits, extremes=drawn.extremes)
        (theirs,) = _values(graph, inputs)
        largest, overflows = _behaviour(graph, inputs)
        _rewritten(graph, drawn.make, again=drawn.again)
        _without_replicas(graph)
        (ours,) = _values(graph, inputs)
        if drawn.bits:
            _same_bits(ours, theirs, zeros=drawn.zeros)
        else:
            kept = ~np.isfinite(theirs) if overflows else np.zeros(theirs.shape, np.bool_)
            ours, theirs = np.where(kept, 0, ours), np.where(kept, 0, theirs)
            _close(ours, theirs, largest, (drawn.type or DType.of(ours.dtype)).storage)

    check()


def _behaviour(graph: Graph, inputs: Sequence[Array]) -> tuple[float, bool]:
    """The largest finite number on the way to the results, and whether finite numbers overflow."""
    names, outputs = graph.output_names, graph.outputs
    tensors = [tensor for tensor in graph.tensors.values() if tensor.type.dtype.is_float]
    graph.output_names, graph.outputs = [tensor.name for tensor in tensors], tensors
    values = dict(zip(tensors, _values(graph, inputs), strict=True))
    graph.output_names, graph.outputs = names, outputs
    finite = {tensor: bool(np.isfinite(value).all()) for tensor, value in values.items()}
    overflows = any(
        not finite.get(result, True) and all(finite.get(x, True) for x in op.present_inputs)
        for op in graph.ops
        for result in op.outputs
    )
    largest = max(
        (float(np.abs(value[np.isfinite(value)]).max(initial=0)) for value in values.values()),
        default=0.0,
    )
    return largest, overflows


def _without_replicas(graph: Graph) -> None:
    """Let replicas exchange data as if all had the same: means are what they are means of."""
    for op in graph.ops:
        if op.op_type == "ReplicatedAllReduce":
            graph.replace_op(op, [op.operand(0)])


def _close(ours: Array, theirs: Array, largest: float, dtype: np.dtype[Any]) -> None:
    """Up to some roundings of numbers of ``dtype`` that are as large as ``largest``."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if ours.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs)
        return
    limits = np.finfo(dtype)
    bound = 64 * (float(limits.eps) * largest + float(limits.smallest_subnormal))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            ours.astype(np.float64), theirs.astype(np.float64), 64 * limits.eps, bound
        )
