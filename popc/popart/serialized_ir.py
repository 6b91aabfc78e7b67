"""The ops of a program as PopART's JSON shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from popc.ir import Graph, Op, TensorType
from popc_runtime.format import DType

__all__ = ["serialized_ir"]

# Ops of popc that PopART calls otherwise; of those without an entry the names are the same.
_TYPES: Final = {
    "Conv": "Conv",
    "CopyVarUpdate": "CopyVarUpdate",
    "IpuCopy": "IpuCopy",
    "Inverse": "Reciprocal",
    "Negative": "Neg",
    "Relu": "Relu",
    "SGD0VarUpdate": "SGD0VarUpdate",
}


def serialized_ir(orders: Mapping[Graph, Sequence[Op]], main: Graph) -> str:
    """All graphs as JSON; every value is text."""
    graphs: dict[str, list[Any]] = {}
    for graph, order in orders.items():
        name = "maingraph" if graph is main else graph.name
        graphs[name] = [_op(op) for op in order]
    return json.dumps(graphs)


def _op(op: Op) -> dict[str, Any]:
    return {
        "type": _TYPES.get(op.op_type, op.op_type),
        "name": op.settings.origin,
        "inputs": [
            {
                "name": tensor.name,
                "shape": _shape(tensor.type),
                "type": _kind(tensor.type.dtype),
                "index": str(index),
            }
            for index, tensor in enumerate(op.inputs)
            if tensor is not None
        ],
        "outputs": [
            {"name": tensor.name, "index": str(index)} for index, tensor in enumerate(op.outputs)
        ],
        "attributes": _attributes(op),
    }


def _shape(type_: TensorType) -> str:
    return f"[{' '.join(map(str, type_.shape))}]"


def _kind(dtype: DType) -> str:
    names = {DType.FLOAT32: "FLOAT", DType.FLOAT64: "DOUBLE"}
    return names.get(dtype, dtype.value.upper())


def _attributes(op: Op) -> dict[str, str]:
    settings = op.settings
    recomputed = bool(getattr(settings, "recomputed", False))
    found = {name: _text(value) for name, value in op.attributes.items()}
    found |= {
        "recompute": "YES" if recomputed else "NO",
        "recomputetype": "Recomputed" if recomputed else "Checkpoint",
        "__execution_context": "ExecutionContext::Normal",
        "scope": "",
        "schedulePriority": f"{float(getattr(settings, 'schedule_priority', 0.0) or 0.0):.6f}",
    }
    for name, key in (
        ("virtual_graph", "__ipu_number"),
        ("pipeline_stage", "__pipeline_stage"),
        ("execution_phase", "__execution_phase"),
    ):
        value = getattr(settings, name, None)
        if value is not None:
            found[key] = str(value)
    for key, nested in op.subgraphs.items():
        found["callee" if len(op.subgraphs) == 1 else key] = nested.name
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, tuple | list):
        return f"[{' '.join(_text(item) for item in value)}]"
    return str(value)
