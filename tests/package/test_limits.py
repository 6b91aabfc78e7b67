"""What the compiler accepts the reader loads; what it would not load is refused when compiling."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import popc
import popc_runtime
from popc_runtime.errors import ModelError

_LONG = "n" * 70_000


def _relus(count: int, *, prefix: str = "", node: str = "") -> onnx.ModelProto:
    inputs, outputs = (
        [
            helper.make_tensor_value_info(f"{prefix}{kind}{number}", TensorProto.FLOAT, [2])
            for number in range(count)
        ]
        for kind in "xy"
    )
    nodes = [
        helper.make_node("Relu", [a.name], [b.name], name=node and f"{node}{number}")
        for number, (a, b) in enumerate(zip(inputs, outputs, strict=True))
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("limits", ["default", "strict"])
def test_long_names_of_nodes(limits: str) -> None:
    archive = popc.compile(_relus(2, node=_LONG), options={"enable_outlining": True})
    model = popc_runtime.load(archive.to_bytes(), limits=limits)
    results = model.run({"x0": np.array([-1, 2], "f4"), "x1": np.array([3, -4], "f4")})
    assert results["y0"].tolist() == [0, 2]
    assert results["y1"].tolist() == [3, 0]


@pytest.mark.slow
def test_many_inputs_and_outputs() -> None:
    names = [[f"{kind}{number}" for number in range(5000)] for kind in "xy"]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in several]
        for several in names
    )
    nodes = [
        helper.make_node("Concat", names[0], ["all"], axis=0),
        helper.make_node("Split", ["all"], names[1], axis=0, num_outputs=5000),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    archive = popc.compile(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    model = popc_runtime.load(archive.to_bytes())
    assert len(model.inputs) == len(model.outputs) == 5000


def test_names_that_no_reader_would_take() -> None:
    with pytest.raises(ModelError, match="too large for an archive") as caught:
        popc.compile(_relus(1, prefix=_LONG))
    assert [line.split(" ")[3] for line in caught.value.details] == ["input", "output"]
    assert "70,002 bytes, and 65,536 are possible" in caught.value.details[0]
