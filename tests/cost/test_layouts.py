"""What it takes to bring data where the next op wants it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
from popc.cost import CostReport
from popc.cost.formulas import movement
from samples.network_builder import NetworkBuilder


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
    assert 24 < odd / even < 26
    # 16 heads of SigLIP's 729 tokens, on the 1,458 tiles that have rows.
    assert movement.row_cycles(8 * 729, 729, 2) == pytest.approx(126_283, rel=0.03)


@pytest.mark.parametrize(
    ("length", "element_bytes", "each"),
    [(384, 2, 0.88), (388, 2, 0.88), (386, 2, 6.25), (385, 2, 22), (384, 4, 1.76), (385, 4, 12.5)],
)
def test_rows_move_in_pieces_that_they_are_multiples_of(
    length: int, element_bytes: int, each: float
) -> None:
    cycles = movement.row_cycles(64 * length, length, element_bytes) - 587
    assert cycles / (64 * length) == pytest.approx(each, rel=0.01)


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


@pytest.mark.parametrize("outlined", [False, True])
def test_operands_of_gradients_are_transposed_by_vertices(*, outlined: bool) -> None:
    """Of calls of a function, too; the same products in the forward pass copy elements."""
    b = NetworkBuilder("layers", "float16", training=True)
    x = "x"
    for layer in range(8):
        x = b("Relu", b.linear(x, f"layer{layer}", 256, 256))
    x = b("MatMul", x, b("Transpose", b.weight("last", 128, 256), perm=[1, 0]))
    b("Identity", x, name="y")
    report = popc.estimate(
        b.model([b.floats("x", 64, 256)], [b.floats("y", 64, 128)]),
        options={"enable_outlining": outlined},
        loss={"type": "l1", "input": "y"},
        optimizer={"type": "sgd", "learning_rate": 0.1},
    )
    assert any(op.op_type == "Call" for op in report.ops) == outlined
    products = [op for op in report.ops if op.op_type in {"MatMul", "Gemm"}]
    transposing = [op for op in products if any(part.name == "transpose" for part in op.phases)]
    # Gradients of all weights, and of what all layers but the first have read; the transposed
    # weight is read as it lies by its gradient.
    assert len(products) == 9 + 17
    assert len(transposing) == 9 + 7


def _gradients(rows: int) -> CostReport:
    """The gradients of a product of two variables, by both of them."""
    b = NetworkBuilder("layer", "float16", training=True)
    y = b("MatMul", b.weight("x", rows, 768), b.weight("w", 768, 2304))
    b("ReduceSum", b("Mul", y, b.weight("dy", rows, 2304)), name="loss", keepdims=0)
    return popc.estimate(
        b.model([], [b.floats("loss")]),
        options={"target": "ipu2"},
        loss={"type": "identity", "input": "loss"},
        optimizer={"type": "sgd", "learning_rate": 0.1},
    )


def _steps(report: CostReport, name: str) -> list[str]:
    op = next(op for op in report.ops if op.op_type == "MatMul" and str(op.name) == name)
    return [phase.name for phase in op.phases]


def test_weights_are_transposed_straight_into_the_order_of_a_gradient() -> None:
    """poplin's fullyConnectedWeightTranspose, where weights are the field of the convolution."""
    report = _gradients(128)
    plan = next(op.plans[0] for op in report.ops if str(op.name) == "Gradient___x")
    steps = _steps(report, "Gradient___x")
    assert "transpose" in steps
    assert ("transform" in steps) == ("swapped" not in plan)


def test_gradients_by_weights_copy_what_another_product_has_as_it_wants() -> None:
    """Both operands lie with their features side by side, and here rows are the channels."""
    steps = _steps(_gradients(128), "Gradient___w")
    assert steps[:2] == ["transpose", "transform"]


def _kernel_copies(*nodes: onnx.NodeProto, held: bool) -> int:
    """Cycles of copies before the last convolution; its kernel is a weight, or comes from the host.

    Without such copies the input, which comes from the host, is copied alone.
    """
    half, field = TensorProto.FLOAT16, [2, 64, 14, 14]
    inputs = [helper.make_tensor_value_info("x", half, field)]
    kernel = numpy_helper.from_array(np.ones((64, 64, 3, 3), np.float16), "w")
    if not held:
        inputs.append(helper.make_tensor_value_info("w", half, [64, 64, 3, 3]))
    output = helper.make_tensor_value_info("y", half, field)
    graph = helper.make_graph(nodes, "kernels", inputs, [output], [kernel] if held else [])
    opsets = [helper.make_opsetid("", 20)]
    report = popc.estimate(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    last = [op for op in report.ops if op.op_type in {"Conv", "ConvTranspose"}][-1]
    return sum(phase.compute for phase in last.phases if phase.name == "transform")


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_kernels_lie_as_the_convolution_wants_them_that_reads_them_first(op_type: str) -> None:
    node = helper.make_node(op_type, ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    assert _kernel_copies(node, held=True) < _kernel_copies(node, held=False)
    other = {"Conv": "ConvTranspose", "ConvTranspose": "Conv"}[op_type]
    first = helper.make_node(other, ["x", "w"], ["z"], pads=[1, 1, 1, 1])
    second = helper.make_node(op_type, ["z", "w"], ["y"], pads=[1, 1, 1, 1])
    assert _kernel_copies(first, second, held=True) == _kernel_copies(first, second, held=False)
