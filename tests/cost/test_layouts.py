"""What it takes to bring data where the next op wants it."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

import popc
from popc.cost import CostReport


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


@pytest.mark.parametrize(("columns", "times"), [(386, 3), (385, 6)])
def test_rows_that_do_not_end_with_words_are_dear(columns: int, times: int) -> None:
    even, odd = (_rows_cycles(_scores(item)) - 587 for item in (384, columns))
    assert odd > times * even


def test_calls_of_shared_code_take_memory() -> None:
    def code(layers: int) -> int:
        half = TensorProto.FLOAT16
        nodes: list[onnx.NodeProto] = []
        values: list[onnx.TensorProto] = []
        x = "x"
        for layer in range(layers):
            weight = helper.make_tensor(f"w{layer}", half, [64, 64], [0] * 4096)
            values.append(weight)
            nodes.append(helper.make_node("MatMul", [x, f"w{layer}"], [f"y{layer}"]))
            x = f"y{layer}"
        graph = helper.make_graph(
            nodes,
            "layers",
            [helper.make_tensor_value_info("x", half, [8, 64])],
            [helper.make_tensor_value_info(x, half, [8, 64])],
            values,
        )
        opsets = [helper.make_opsetid("", 20)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        busiest = popc.estimate(model).memory[0].busiest
        return busiest.control_code

    assert code(12) - code(6) == 6 * 16
