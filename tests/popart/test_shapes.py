"""Shapes and types that a builder tells, against ONNX's inference of the finished model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import shape_inference

from popc.frontend.importer import GraphImporter
from popc.popart import Builder, DataType, InitType, ReductionType, popart_exception

_F: Final = "FLOAT"
Call = Callable[[Any, list[str]], Any]

# Of ai.onnx: the opset, the shapes of the inputs, and what is added.
_ONNX: Final[dict[str, tuple[int, list[list[int]], Call]]] = {
    "add": (10, [[2, 3], [3]], lambda o, i: o.add(i)),
    "and": (10, [[2, 3], [1]], lambda o, i: o.logical_and(i)),
    "argmax": (11, [[2, 3, 4]], lambda o, i: o.argmax(i, -1, 0)),
    "averagepool": (10, [[1, 2, 9, 9]], lambda o, i: o.averagepool(i, [2, 2], ceil_mode=1)),
    "batchnorm": (9, [[2, 3, 4]] + [[3]] * 4, lambda o, i: o.batchnormalization(i, 1)),
    "cast": (9, [[2, 3]], lambda o, i: o.cast(i, "FLOAT16")),
    "concat": (11, [[2, 3], [2, 5]], lambda o, i: o.concat(i, 1)),
    "conv": (10, [[1, 4, 8, 8], [6, 2, 3, 3], [6]], lambda o, i: o.conv(i, group=2, pads=[1] * 4)),
    "constant": (11, [], lambda o, i: o.constant(np.zeros([2, 5], np.int64))),
    "convtranspose": (11, [[1, 4, 8], [4, 2, 3]], lambda o, i: o.convtranspose(i, strides=[2])),
    "flatten": (9, [[2, 3, 4]], lambda o, i: o.flatten(i, 2)),
    "gather": (11, [[5, 3], [2, 2]], lambda o, i: o.gather([i[0], o.cast([i[1]], "INT32")], 1)),
    "gemm": (7, [[2, 3], [4, 3], [4]], lambda o, i: o.gemm(i, transB=1)),
    "lstm": (9, [[5, 2, 3], [1, 16, 3], [1, 16, 4]], lambda o, i: o.lstm(i, 3, hidden_size=4)),
    "matmul": (9, [[2, 1, 3, 4], [5, 4, 6]], lambda o, i: o.matmul(i)),
    "maxpool": (8, [[1, 2, 9]], lambda o, i: o.maxpool(i, 2, [3], strides=[2])),
    "onehot": (
        11,
        [[2, 3]],
        lambda o, i: o.onehot(
            [
                o.cast(i, "INT32"),
                o.constant(np.array(7)),
                o.constant(np.array([0, 1], np.float32)),
            ]
        ),
    ),
    "pad": (10, [[2, 3]], lambda o, i: o.pad(i, [1, 2, 3, 4])),
    "reducesum": (10, [[2, 3, 4]], lambda o, i: o.reducesum(i, [1], 0)),
    "reducesum of all": (10, [[2, 3, 4]], lambda o, i: o.reducesum(i)),
    "reshape": (10, [[2, 3]], lambda o, i: o.reshape([i[0], o.constant(np.array([3, -1]))])),
    "shape": (10, [[2, 3]], lambda o, i: o.shape(i)),
    "slice-1": (9, [[5, 6]], lambda o, i: o.slice(i, [4, 5], [1, 2], axes=[0, 1])),
    "split": (10, [[6, 4]], lambda o, i: o.split(i, 3, split=[1, 2, 3])),
    "squeeze": (10, [[1, 2, 1]], lambda o, i: o.squeeze(i)),
    "topk": (10, [[2, 9]], lambda o, i: o.topk([i[0], o.constant(np.array([4]))])),
    "transpose": (10, [[2, 3, 4]], lambda o, i: o.transpose(i, [2, 0, 1])),
    "unsqueeze": (10, [[2, 3]], lambda o, i: o.unsqueeze(i, [0, 3])),
    "where": (10, [[2, 1], [3]], lambda o, i: o.where([o.cast([i[0]], "BOOL"), i[1], i[1]])),
}


@pytest.mark.parametrize("name", _ONNX)
def test_shapes_are_those_of_onnx(name: str) -> None:
    opset, shapes, call = _ONNX[name]
    builder = Builder(opsets={"ai.onnx": opset, "ai.graphcore": 1})
    inputs = [builder.addInputTensor(_F, shape) for shape in shapes]
    made = call(builder.aiOnnx, inputs)
    outputs = made if isinstance(made, list) else [made]
    for output in outputs:
        builder.addOutputTensor(output)
    model = onnx.load_model_from_string(builder.getModelProto())
    told = {info.name: info.type for info in model.graph.value_info}
    del model.graph.value_info[:]
    for info in model.graph.output:
        info.ClearField("type")
    inferred = shape_inference.infer_shapes(model)
    known = {info.name: info.type for info in (*inferred.graph.value_info, *inferred.graph.output)}
    for output in outputs:
        assert told[output] == known[output]
        dims = [dim.dim_value for dim in known[output].tensor_type.shape.dim]
        assert builder.getTensorShape(output) == dims
    onnx.checker.check_model(inferred)


# Of ai.graphcore, by the sheet of the interface: inputs, call, shape, element type.
_GRAPHCORE: Final[list[tuple[list[list[int]], Call, list[int], str]]] = [
    ([[2, 3]], lambda g, i: g.gelu(i), [2, 3], "float32"),
    ([[2, 3]], lambda g, i: g.scale(i, 2.0), [2, 3], "float32"),
    ([[2, 3]], lambda g, i: g.reshape(i[0], [3, 2]), [3, 2], "float32"),
    ([[2, 3]], lambda g, i: g.identityloss(i), [], "float32"),
    ([[2, 3]], lambda g, i: g.identityloss(i, ReductionType.NoReduction), [2, 3], "float32"),
    ([[2, 3]], lambda g, i: g.l1loss(i, 0.5, reduction=ReductionType.Sum), [], "float32"),
    ([[2, 3]], lambda g, i: g.l1loss(i, **{"lambda": 0.5}), [], "float32"),
    ([[4, 3, 2]] * 3, lambda g, i: g.groupnormalization(
        [i[0], *_constants(g, 3)], 3)[1], [12], "float32"),
    ([[2, 3]], lambda g, i: g.nop(i), [2, 3], "float32"),
    ([[2, 3]], lambda g, i: g.printtensor(i, title="t"), [2, 3], "float32"),
    ([[2, 3]], lambda g, i: g.reducemedian(i, [1], 0)[0], [2], "float32"),
    ([[2, 3]], lambda g, i: g.slice(i, [2], [1], [1]), [2, 1], "float32"),
    ([[2, 3]], lambda g, i: g.shapeddropout(i, [2, 1]), [2, 3], "float32"),
    ([[9, 4]], lambda g, i: g.subsample(i, [2, 2]), [4, 2], "float32"),
    ([], lambda g, i: g.init([5], int(DataType.FLOAT16), int(InitType.Zero)), [5], "float16"),
    ([], lambda g, i: g.init([5], int(DataType.INT32), int(InitType.Zero), 0), [5], "int32"),
    ([[2, 4]], lambda g, i: g.sort(i, descending=1)[1], [2, 4], "int32"),
    ([[1, 2, 9, 9], [4, 2, 3, 3]], lambda g, i: g.multiconv(
        [i, i], pads=[[1] * 4, [0] * 4])[1], [1, 4, 7, 7], "float32"),
]  # fmt: skip


def _constants(g: Any, size: int) -> list[str]:
    """Scale and bias of a normalisation."""
    core = g._impl._core
    ones = np.ones([size], np.float32)
    return [core.addInitializedInputTensor(ones) for _ in range(2)]


@pytest.mark.parametrize(("shapes", "call", "shape", "kind"), _GRAPHCORE)
def test_shapes_of_ai_graphcore(
    shapes: list[list[int]], call: Call, shape: list[int], kind: str
) -> None:
    builder = Builder()
    inputs = [builder.addInputTensor(_F, item) for item in shapes]
    output = call(builder.aiGraphcore, inputs)
    assert (builder.getTensorShape(output), builder.getTensorDtypeString(output)) == (shape, kind)


def test_what_is_not_known_has_no_shape() -> None:
    builder = Builder()
    x = builder.addInputTensor(_F, [2])
    [y] = builder.customOp("Mine", 1, "com.acme", [x], {"a": 1, "b": [1.0], "c": "d"})
    z = builder.aiOnnx.relu([y])
    for name in (y, z):
        assert (builder.getTensorShape(name), builder.getTensorDtypeString(name)) == (
            [],
            "undefined",
        )
    assert builder.getValueTensorIds() == [y, z]
    with pytest.raises(popart_exception, match="nothing is not an known tensor"):
        builder.getTensorShape("nothing")


def test_every_node_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[int] = []
    original = GraphImporter.import_nodes

    def counted(self: GraphImporter, nodes: list[onnx.NodeProto]) -> None:
        imported.append(len(nodes))
        original(self, nodes)

    monkeypatch.setattr(GraphImporter, "import_nodes", counted)
    builder = Builder()
    last = x = builder.addInputTensor(_F, [2])
    for _ in range(200):
        last = builder.aiOnnx.add([last, x])
        assert builder.getTensorShape(last) == [2]
    assert imported == [1] * 200


def test_a_loaded_model_is_gone_on_from() -> None:
    first = Builder()
    x = first.addInputTensor(_F, [2, 3])
    shape = first.addInitializedInputTensor(np.array([3, 2]), "shape")
    y = first.aiOnnx.reshape([x, shape])
    second = Builder(first.getModelProto())
    assert second.getModelProto() == first.getModelProto()
    assert second.getTensorShape(y) == [3, 2]
    z = second.aiOnnx.transpose([y])
    assert second.getTensorShape(z) == [2, 3]
