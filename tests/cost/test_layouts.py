"""What it takes to bring data where the next op wants it."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import popc
from popc.cost import CostReport
from popc.cost.formulas import movement


def _scores(columns: int, *, product: bool = True) -> CostReport:
    """Softmax over rows of ``columns`` that a product has made, or that come from the host."""
    half = TensorProto.FLOAT16
    nodes = [helper.make_node("Softmax", ["scores"], ["y"])]
    inputs = [helper.make_tensor_value_info("scores", half, [8, 400, columns])]
    if product:
        nodes.insert(0, helper.make_node("MatMul", ["a", "b"], ["scores"]))
        inputs = [
            helper.make_tensor_value_info("a", half, [8, 400, 64]),
            helper.make_tensor_value_info("b", half, [8, 64, columns]),
        ]
    output = helper.make_tensor_value_info("y", half, [8, 400, columns])
    graph = helper.make_graph(nodes, "scores", inputs, [output])
    opsets = [helper.make_opsetid("", 20)]
    return popc.estimate(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def _rows_cycles(report: CostReport) -> int:
    """Cycles of the copies that bring rows together."""
    softmax = next(op for op in report.ops if op.op_type == "Softmax")
    return sum(phase.compute for phase in softmax.phases if phase.name == "rows")


def test_rows_of_a_product_come_together_before_a_softmax() -> None:
    assert _rows_cycles(_scores(384)) > 587
    assert _rows_cycles(_scores(384, product=False)) == 0


def test_rows_that_begin_within_words_are_dear() -> None:
    """Of an odd number of halves: each store reads the word first, as a recorded profile shows."""
    even, odd = (_rows_cycles(_scores(columns)) - 587 for columns in (384, 385))
    assert 2 < odd / even < 2.3
    # 16 heads of SigLIP's 729 tokens, on the 1,458 tiles that have rows.
    assert movement.turn_cycles(8 * 729, 2, odd=True) == pytest.approx(126_283, rel=0.03)


def _chain(*names: str) -> CostReport:
    half = TensorProto.FLOAT16
    nodes = [helper.make_node(name, [f"v{i}"], [f"v{i + 1}"]) for i, name in enumerate(names)]
    value = helper.make_tensor_value_info
    ends = [value("v0", half, [64, 640])], [value(f"v{len(names)}", half, [64, 640])]
    graph = helper.make_graph(nodes, "chain", *ends)
    opsets = [helper.make_opsetid("", 20)]
    return popc.estimate(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def test_chains_are_fused_on_the_host_and_run_op_by_op_on_the_device() -> None:
    names = ("Tanh", "Sqrt", "Sigmoid")
    chain = _chain(*names)
    ops = [op for op in chain.ops if op.op_type == "FusedElementwise"]
    assert [phase.name for op in ops for phase in op.phases] == [name.lower() for name in names]
    assert ops[0].cycles.launch == 3 * chain.target.tile.vertex_launch_cycles
