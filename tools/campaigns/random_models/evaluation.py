"""Single nodes, and whole models, as onnxruntime computes them without optimisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper

from popc.frontend import with_unsigned_weights
from popc_runtime.format import Array

__all__ = ["IR_VERSION", "RefusedError", "run_model", "run_node"]

IR_VERSION = 10


class RefusedError(Exception):
    """onnxruntime does not run a node or a model, or what it gives is no use for a comparison."""


@cache
def _settings() -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    return settings


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """All outputs of ``model``.

    Raises:
        RefusedError: onnxruntime cannot load or run it.
    """
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(
            with_unsigned_weights(model).SerializeToString(),
            _settings(),
            providers=["CPUExecutionProvider"],
        )
        results = session.run(None, dict(feeds))
    except Exception as error:  # its errors have no common class
        raise RefusedError(str(error)) from error
    return [np.asarray(result) for result in results]


def run_node(
    node: onnx.NodeProto, operands: Sequence[Array | None], opset: int
) -> dict[str, Array]:
    """The results of one node by their names; operands that are absent are ``None``.

    Raises:
        RefusedError: onnxruntime cannot load or run it.
    """
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    given = [(f"x{i}", array) for i, array in enumerate(operands) if array is not None]
    plain.input[:] = ["" if array is None else f"x{i}" for i, array in enumerate(operands)]
    graph = helper.make_graph(
        [plain],
        "node",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in given
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
    )
    opsets = [helper.make_opsetid("", opset)]
    if node.domain:
        opsets.append(helper.make_opsetid(node.domain, 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    results = run_model(model, dict(given))
    return dict(zip([name for name in node.output if name], results, strict=True))
