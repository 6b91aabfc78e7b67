"""Which op overwrites an operand: preferences, and the check for what the order alone decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, parser

import popc
import popc_runtime
from popc.ir import Graph, Op, OpSettings, TensorType, VariableRole
from popc.memory import check_plan, plan_memory
from popc.ops import OPS
from popc.ops.build import build
from popc.options import Options
from popc.schedule import build_schedule, check_schedule
from popc.transforms.inplace_order import InplaceOrder
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import DType
from tests.support.compiling import planned_model
from tests.support.random_graphs import graphs
from tests.support.small_graphs import SmallGraph, plan_as_written


def _model(
    first: dict[str, Any] | None = None, second: dict[str, Any] | None = None
) -> onnx.ModelProto:
    """Two ops, either of which could overwrite e."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[40] x) => (float[40] y, float[40] z) '
        "{ e = Exp (x) [one] y = Relu (e) [two] z = Neg (e) }"
    )
    for node, attributes in zip(model.graph.node[1:], (first, second), strict=True):
        node.attribute.extend(
            helper.make_attribute(name, value) for name, value in (attributes or {}).items()
        )
    return model


def _wish(priority: float, name: str) -> dict[str, Any]:
    return {"__inplace_op_names": [name], "__inplace_op_priorities": [priority]}


def _overwriting(model: onnx.ModelProto, **options: Any) -> list[str]:
    plan = planned_model(model, options).plan
    return [op.settings.origin for op in plan.inplace if op.op_type in ("Relu", "Neg")]


@pytest.mark.parametrize(("chosen", "other"), [("one", "two"), ("two", "one")])
def test_the_preferred_op_overwrites(chosen: str, other: str, tmp_path: Path) -> None:
    wishes = {"one": _wish(1.0, "ReluInplace"), "two": _wish(1.0, "NegInplace")}
    model = _model(**{{"one": "first", "two": "second"}[chosen]: wishes[chosen]})
    assert _overwriting(model) == [chosen]
    stronger = {"one": _wish(2.0, "ReluInplace"), "two": _wish(2.0, "NegInplace")}[chosen]
    both = {"one": "first", "two": "second"}
    model = _model(**{both[chosen]: stronger, both[other]: wishes[other]})
    assert _overwriting(model, enable_inplace_ambiguity_checking=True) == [chosen]
    rule = {"nodes": chosen, "inplace_op_names": ["XInplace"], "inplace_op_priorities": [3]}
    assert _overwriting(_model(), annotate=[rule]) == [chosen]
    x = np.linspace(-1, 1, 40, dtype=np.float32)
    path = popc.compile(model).save(tmp_path / "m.popx")
    results = popc_runtime.load(path).run({"x": x})
    np.testing.assert_allclose(results["z"], -np.exp(x), rtol=1e-6)


def test_zero_forbids_it() -> None:
    model = _model(_wish(0.0, "ReluInplace"), _wish(-1.0, "NegInplace"))
    assert _overwriting(model) == []
    assert _overwriting(model, enable_inplace=False) == []


def test_ambiguities_are_listed() -> None:
    with pytest.raises(OptionError, match="in 1 places") as caught:
        planned_model(_model(), {"enableInplaceAmbiguityChecking": True})
    (detail,) = caught.value.details
    assert detail == (
        "%e (float32[40]) can be overwritten by Relu (%y, node one) or Neg (%z, node two)"
    )
    planned_model(_model(), {"enableInplaceAmbiguityChecking": True, "enable_inplace": False})


def test_data_flow_settles_it() -> None:
    small = SmallGraph()
    a = small("Exp", small.input(4))
    b = small("Neg", a)
    graph = small.output(small("Add", a, b))  # the last to read a
    assert InplaceOrder(check=True).run(graph) == 0


def test_operands_have_priorities() -> None:
    """Of two operands that die, the one with the higher priority is overwritten."""
    for index in (0, 1):
        small = SmallGraph()
        a, b = small("Exp", small.input(4)), small("Neg", small.input(4))
        op = small.op("Add", a, b)
        op.settings = OpSettings(inplace=((index, 1.0),))
        assert plan_as_written(small.output(op.output)).inplace[op] == index
        op.settings = OpSettings(inplace=((index, -1.0),))
        graph = small.graph
        assert plan_as_written(graph).inplace[op] == 1 - index


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"__inplace_op_names": ["ReluInplace"]}, "needs __inplace_op_priorities"),
        ({"__inplace_op_priorities": [1.0]}, "needs __inplace_op_names"),
        (_wish(1.0, "Relu"), "such as ReluInplace"),
        ({**_wish(1.0, "ReluInplace"), "__inplace_op_priorities": [1.0, 2.0]}, "has 1 entries"),
    ],
)
def test_mistakes_are_reported(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        popc.compile(_model(attributes))
    assert message in "\n".join(caught.value.details)


def _annotate(graph: Graph, draw: st.DataObject) -> list[Op]:
    ops = [
        op
        for nested in graph.walk()
        for op in nested.ops
        if op.op_type in OPS and OPS[op.op_type].inplace
    ]
    for op in ops:
        wishes = draw.draw(st.dictionaries(st.integers(0, 1), st.integers(-1, 3), max_size=2))
        op.settings = OpSettings(inplace=tuple((i, float(p)) for i, p in sorted(wishes.items())))
    return ops


@settings(deadline=None, max_examples=80)
@given(graph=graphs(), draw=st.data())
def test_any_wishes_give_valid_plans(graph: Graph, draw: st.DataObject) -> None:
    """Required orders never contradict each other, and what is forbidden does not happen."""
    ops = _annotate(graph, draw)
    InplaceOrder()(graph, check=True)
    schedule = build_schedule(graph, Options(scheduler_work_limit=500))
    assert check_schedule(graph, schedule) == []
    plan = plan_memory(graph, schedule)
    assert check_plan(graph, schedule, plan) == []
    for op in ops:
        if op in plan.inplace:
            assert dict(op.settings.inplace).get(plan.inplace[op], 1.0) > 0


def test_readers_of_a_variable_come_before_its_update() -> None:
    """The update reads the tensor too, but cannot run before the op that would overwrite it."""
    small = SmallGraph()
    variable = small.graph.add_variable("v", TensorType(DType.FLOAT32, (4,)), VariableRole.WEIGHT)
    value = small("Exp", small.input(4))
    op = small.op("Add", value, small("Reshape", variable, shape=(4,)))
    op.settings = OpSettings(inplace=((0, 1.0),))
    build(small.graph, "CopyVarUpdate", [variable, value])
    graph = small.output(op.output)
    assert InplaceOrder().run(graph) == 0
    assert check_schedule(graph, build_schedule(graph, Options())) == []
