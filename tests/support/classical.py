"""Models of one node of ai.onnx.ml, through popc and through onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import popc
from popc_runtime.format import Array, LabelKind, TensorSpec

__all__ = ["check", "colours_model", "ml_model", "plain", "typed"]

_STRING = onnx.TensorProto.STRING


def ml_model(
    op_type: str,
    attributes: Mapping[str, Any],
    outputs: int,
    *,
    inputs: Sequence[int] = (0,),
    version: int = 3,
) -> onnx.ModelProto:
    """A model of one node over inputs ``x0``, ... of any types, with outputs ``y0``, ...

    Types of inputs are set when arrays are given, see `check`.
    """
    names = [f"x{index}" for index in inputs]
    node = helper.make_node(
        op_type, names, [f"y{index}" for index in range(outputs)], domain="ai.onnx.ml", **attributes
    )
    graph = helper.make_graph(
        [node],
        "one_node",
        [onnx.ValueInfoProto(name=name) for name in names],
        [onnx.ValueInfoProto(name=name) for name in node.output],
    )
    return _whole(graph, version)


def colours_model(rows: int | str = 2) -> onnx.ModelProto:
    """A classifier of words ``colour``: a ``label``, which is a word, and ``scores``, maps."""
    trees = ["ash", "fir tree", "oak"]
    numbers = [3.0, 0, 0, 0, 2, 0, 0, 0, 1]
    nodes = [
        _ml("OneHotEncoder", "colour", "hot", cats_strings=["red", "green", "blue"]),
        _ml("LinearClassifier", "hot", "label", "rows", coefficients=numbers,
            intercepts=[0.25, 0.5, 0.0], classlabels_strings=trees, post_transform="SOFTMAX"),
        _ml("ZipMap", "rows", "scores", classlabels_strings=trees),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("colour", _STRING, [rows])],
        [onnx.ValueInfoProto(name="label"), onnx.ValueInfoProto(name="scores")],
    )
    return _whole(graph, 3)


def _ml(op_type: str, x: str, *results: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, [x], results, domain="ai.onnx.ml", **attributes)


def _whole(graph: onnx.GraphProto, version: int) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def typed(model: onnx.ModelProto, arrays: Sequence[Array]) -> onnx.ModelProto:
    """The model with the types of its inputs."""
    for info, array in zip(model.graph.input, arrays, strict=True):
        kind = _STRING if array.dtype.kind in "UO" else helper.np_dtype_to_tensor_dtype(array.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, array.shape))
    return model


def plain(wanted: Any, spec: TensorSpec) -> Array:
    """A result of onnxruntime as popc gives it: places of labels, a column for each key."""
    if isinstance(wanted, list):
        return np.array([[row[label] for label in spec.labels] for row in wanted])
    if spec.label_kind is LabelKind.ELEMENTS:
        places = {label: place for place, label in enumerate(spec.labels)}
        return np.array([places[word] for word in wanted.reshape(-1)]).reshape(wanted.shape)
    return np.asarray(wanted)


def check(
    model: onnx.ModelProto, arrays: Sequence[Array], *, rtol: float = 1e-5, atol: float = 1e-6
) -> popc.Archive:
    """Compare results with onnxruntime's; the archive."""
    import onnxruntime as ort

    typed(model, arrays)
    feeds = dict(zip((info.name for info in model.graph.input), arrays, strict=True))
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), settings)
    wanted = session.run(None, feeds)
    archive = popc.compile(model)
    executable = archive.load()
    got = executable.run(feeds)
    for spec, expected in zip(executable.outputs, wanted, strict=True):
        other = plain(expected, spec)
        assert got[spec.name].dtype == other.dtype or spec.labels
        np.testing.assert_allclose(got[spec.name], other, rtol=rtol, atol=atol)
    return archive
