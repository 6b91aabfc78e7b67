"""Names of tensors and nodes, scopes, and annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from popc.popart import (
    Builder,
    DebugContext,
    DebugInfo,
    RecomputeType,
    TensorLocation,
    TensorStorage,
    popart_exception,
)


def _nodes(builder: Builder) -> list[onnx.NodeProto]:
    return list(onnx.load_model_from_string(builder.getModelProto()).graph.node)


def _attribute(builder: Builder, name: str, index: int = -1) -> Any:
    found = [attribute for attribute in _nodes(builder)[index].attribute if attribute.name == name]
    return onnx.helper.get_attribute_value(found[0]) if found else None


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def x(builder: Builder) -> str:
    return str(builder.addInputTensor("FLOAT", [2, 3]))


def test_names_of_inputs(builder: Builder) -> None:
    weight = np.zeros([2], np.float32)
    parent = DebugInfo(DebugContext("layer"), "test")
    assert [
        builder.addInputTensor("FLOAT", [2]),
        builder.addInputTensor("FLOAT", [2]),
        builder.addInputTensor("FLOAT", [2], "x"),
        builder.addInputTensor("FLOAT", [2], debugPrefix="x"),
        builder.addInitializedInputTensor(weight),
        builder.addInitializedInputTensor(weight, "w"),
        builder.addInputTensor("FLOAT", [2], DebugContext(parent, "y")),
    ] == ["input", "input/1", "x", "x/1", "init_input", "w", "layer/y"]


def test_names_of_results_are_of_operators(builder: Builder, x: str) -> None:
    with builder.nameScope("a"), builder.nameScope("b"):
        assert builder.getNameScope("c") == "a/b/c"
        first = builder.aiOnnx.add([x, x], "mine")
    assert first == "a/b/Add:0"
    assert builder.aiOnnx.add([x, x]) == "Add:0"
    assert builder.aiOnnx.add([x, x]) == "Add:0/1"
    assert builder.aiOnnx.topk([x, builder.aiOnnx.constant(np.array([1]))]) == [
        "TopK:0",
        "TopK:1",
    ]
    assert [node.name for node in _nodes(builder)][:3] == ["a/b/mine", "", ""]


def test_a_name_is_taken_above_and_below_but_not_beside(builder: Builder, x: str) -> None:
    builder.aiOnnx.relu([x])
    left, right = builder.createSubgraphBuilder(), builder.createSubgraphBuilder()
    assert left.aiOnnx.relu([x]) == "Relu:0/1"
    assert right.aiOnnx.relu([x]) == "Relu:0/1"
    assert builder.aiOnnx.relu([x]) == "Relu:0/2"


def test_a_failed_call_uses_up_a_name(builder: Builder, x: str) -> None:
    with pytest.raises(popart_exception):
        builder.aiOnnx.relu(["nothing"])
    assert builder.aiOnnx.relu([x]) == "Relu:0/1"


def test_scopes_annotate_every_op(builder: Builder, x: str) -> None:
    with builder.virtualGraph(1), builder.pipelineStage(2), builder.schedulePriority(1.5):
        with builder.virtualGraph(3), builder.schedulePriority(2.5):
            builder.aiOnnx.relu([x])
        builder.aiOnnx.relu([x])
    builder.aiOnnx.relu([x])
    names = ("__ipu_number", "__pipeline_stage", "__schedule_priority")
    found = [[_attribute(builder, name, index) for name in names] for index in range(3)]
    assert found == [[3, 2, 2.5], [1, 2, 1.5], [None, None, None]]
    assert not builder.hasVirtualGraph()
    with pytest.raises(popart_exception, match="Execution phase not set in current scope"):
        builder.getExecutionPhase()


def test_outline_attributes_of_outer_scopes_win(builder: Builder, x: str) -> None:
    with (
        builder.outlineAttributes({"b": 1, "a": "x"}),
        builder.outlineAttributes({"b": 2, "c": 3}),
    ):
        builder.aiOnnx.relu([x])
    assert _attribute(builder, "__outline") == [b"a", b"x", b"b", b"1", b"c", b"3"]


def test_annotations_of_one_node(builder: Builder, x: str) -> None:
    product = builder.aiOnnx.matmul([x, builder.aiOnnx.transpose([x])])
    builder.virtualGraph({product}, 4)
    builder.executionPhase(product, 5)
    builder.recomputeOutput(product, RecomputeType.Checkpoint)
    builder.outputTensorLocation(product, TensorLocation(TensorStorage.OffChip))
    builder.setPartialsType(product, "HALF")
    builder.setAvailableMemoryProportion(product, 0.5)
    builder.setAvailableMemoryProportion({product}, 1)
    builder.setSerializeMatMul({product}, "output_channels", 3, keep_precision=True)
    builder.setInplacePreferences(product, {"B": 2, "A": 1.5})
    builder.excludePatterns(product, ["PreUniRepl"])
    found = {
        attribute.name: onnx.helper.get_attribute_value(attribute)
        for attribute in _nodes(builder)[-1].attribute
    }
    found.pop("__debug_info_id")
    assert found == {
        "__ipu_number": 4,
        "__execution_phase": 5,
        "__recompute_output_in_backward_pass": 1,
        "__output_tensor_location": [1, 0, 0, 0, 0, 0],
        "__partials_type": b"HALF",
        "__available_memory": 1.0,
        "__serialize_matmul_mode": b"output_channels",
        "__serialize_matmul_factor": 3,
        "__serialize_matmul_precision": 1,
        "__inplace_op_names": [b"A", b"B"],
        "__inplace_op_priorities": [1.5, 2.0],
        "__exclude_patterns": [b"PreUniRepl"],
    }
    assert builder.getVirtualGraph([product]) == 4
    assert builder.getRecomputeOutputInBackwardPass(product)
    assert builder.getPartialsType(product) == "HALF"


def test_checkpoints_are_copies(builder: Builder, x: str) -> None:
    assert builder.checkpointOutput([x]) == ["Identity:0"]
    assert _nodes(builder)[-1].name == "Checkpoint"
    assert _attribute(builder, "__recompute_output_in_backward_pass") == 1
    assert _attribute(builder, "__exclude_patterns") == [b"PreUniRepl", b"PostNRepl"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, y: b.virtualGraph(y, 1) or b.virtualGraph(y, 1), "already has attribute __ipu"),
        (lambda b, y: b.virtualGraph("z", 1), "Could not find a node with outputs"),
        (lambda b, y: b.setPartialsType(y, "HALF"), "Conv, MatMul; but was given: Relu"),
        (lambda b, y: b.setAvailableMemoryProportion(y, 1.1), r"must be in \(0,1\]"),
        (lambda b, y: b.setEnableConvDithering(y, 2), "must be a bool value"),
        (lambda b, y: b.setSerializeMatMul({y}, "none"), "MatMul; but was given: Relu"),
        (lambda b, y: b.getInt64NodeAttribute("a", {y}), "Node does not have an attribute a."),
        (lambda b, y: b.removeNodeAttribute("a", {y}), "Cannot remove attribute a as it does not"),
        (lambda b, y: b.getFloatNodeAttribute("__debug_info_id", {y}), "is not a float."),
        (lambda b, y: b.getRecomputeOutputInBackwardPass(y), "Node does not have an attribute"),
    ],
)
def test_what_cannot_be_said_of_a_node(builder: Builder, x: str, call: Any, message: str) -> None:
    y = builder.aiOnnx.relu([x])
    with pytest.raises(popart_exception, match=message):
        call(builder, y)


def test_an_annotation_of_a_scope_clashes_with_an_attribute(builder: Builder, x: str) -> None:
    from popc.popart import CommGroup, CommGroupType

    with (
        builder.commGroup(CommGroupType.Consecutive, 2),
        pytest.raises(popart_exception, match="Node already has attribute __collectiveCommGroup"),
    ):
        builder.aiGraphcore.replicatedallreduce([x], commGroup=CommGroup())
