"""Settings of other systems have the effects here that they have there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

import popc
import popc_runtime
from popc_runtime.format import Array
from tests.support.compiling import planned_model


def _model(text: str, **weights: Array) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return model


def _op_types(model: onnx.ModelProto, options: Mapping[str, Any]) -> list[str]:
    graphs = planned_model(model, options).graph.walk()
    return [op.op_type for graph in graphs for op in graph.ops]


def _cycles(model: onnx.ModelProto, options: Mapping[str, Any]) -> int:
    return popc.estimate(model, options=options).cycles.total


def test_copies_between_chips_wait_for_each_other() -> None:
    """maximum_inter_ipu_copies_buffer_size: one sync for several."""
    text = """agraph (float[64] x) => (float[192] y) {
        [a0] a = Exp (x) [b0] b = Cos (a) [c0] c = Sin (b)
        [y1] y = Concat <axis = 0> (a, b, c)
    }"""
    rules = [{"nodes": f"*{chip}", "virtual_graph": chip} for chip in (0, 1)]
    own = {"auto_select_ipus": 2, "virtual_graph_mode": "manual", "annotate": rules}
    name = "optimizations.maximum_inter_ipu_copies_buffer_size"
    cycles = [_cycles(_model(text), {**own, name: most}) for most in (0, 512, 1 << 20)]
    assert cycles[0] > cycles[1] > cycles[2]


def test_what_io_tiles_have_no_room_for_is_not_placed_on_them() -> None:
    model = _model("agraph (float[1000] x) => (float[1000] y) { y = Exp (x) }")
    io = {"num_io_tiles": 32, "place_ops_on_io_tiles": True}
    enough = popc.compile(model, options={"io_tiles": io})
    assert enough.notes == ()
    few = popc.compile(model, options={"io_tiles": {**io, "available_memory_proportion": 1e-4}})
    (note,) = few.notes
    assert "io tiles would hold 8,000 bytes" in note
    assert "2 transfers run on the tiles that compute" in note


def test_parts_share_code_whatever_buffer_they_read() -> None:
    """merge_remote_buffers: pairs of layers that differ in what they fetch alone are outlined."""
    layers = "\n".join(f"h{i} = MatMul (a{i}, w{i}) a{i + 1} = Softmax (h{i})" for i in range(4))
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(size=(8, 8)).astype(np.float32) for i in range(4)}
    model = _model(f"agraph (float[2, 8] a0) => (float[2, 8] a4) {{ {layers} }}", **weights)
    options = {
        "optimizations": {"merge_remote_buffers": "MERGE", "enable_graph_outlining": True},
        "tensor_location_override": {"w*": "off_chip"},
        "constant_weights": False,
    }
    archive = popc.compile(model, options=options)
    image = popc_runtime.load(archive.to_bytes())
    x = rng.normal(size=(2, 8)).astype(np.float32)
    expected = x
    for weight in weights.values():
        scores = np.exp(expected @ weight)
        expected = scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(image.run(a0=x)["a4"], expected, rtol=1e-5)
    op_types = _op_types(model, options)
    assert [op_types.count(name) for name in ("RemoteLoad", "Call", "MatMul")] == [2, 2, 0]


def _exported(name: str, module: str, op_type: str, inputs: list[str]) -> onnx.NodeProto:
    """A node as torch.onnx writes it with dynamo=True."""
    node = helper.make_node(op_type, inputs, [f"{name}_out"], name=f"node_{name}")
    path = module.split(".")
    scopes = ["", *(".".join(path[: end + 1]) for end in range(len(path))), name]
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(scopes))
    return node


def test_modules_of_pytorch_tell_layers_and_tables() -> None:
    """A model of transformers, exported with dynamo=True, and an ipu_config.json as published."""
    nodes = [_exported("embedding", "bert.embeddings.word_embeddings", "Gather", ["words", "ids"])]
    for layer in range(2):
        module = f"bert.encoder.layer.{layer}"
        before = nodes[-1].output[0]
        nodes.append(_exported(f"linear_{layer}", f"{module}.dense", "MatMul", [before, "w"]))
        nodes.append(_exported(f"gelu_{layer}", f"{module}.act", "Tanh", [nodes[-1].output[0]]))
    nodes.append(_exported("linear_2", "lm_head.decoder", "MatMul", [nodes[-1].output[0], "v"]))
    rng = np.random.default_rng(0)
    sizes = {"words": (11, 4), "w": (4, 4), "v": (4, 11)}
    graph = helper.make_graph(
        nodes,
        "bert",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [3])],
        [helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, [3, 11])],
        [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
         for name, shape in sizes.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    config = {
        "inference_layers_per_ipu": [1, 1],
        "sharded_execution_for_inference": True,
        "inference_device_iterations": 4,
        "inference_embedding_serialization_factor": 3,
        "inference_serialized_projection_splits_per_ipu": [1, 2],
        "enable_half_partials": True,
    }
    ids = np.arange(12).reshape(4, 3) % 11
    plain = popc_runtime.load(popc.compile(model).to_bytes())
    archive = popc.compile(model, options=config)
    (found,) = popc_runtime.load(archive.to_bytes()).run(ids=ids).values()
    expected = np.stack([next(iter(plain.run(ids=row).values())) for row in ids])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found_types = _op_types(model, config)
    assert (found_types.count("Gather"), found_types.count("MatMul")) == (3, 5)
