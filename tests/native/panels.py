"""Weights in panels: as an archive would have them, and archives that have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import popc
from popc_runtime.format import Array, Packing, pack_panels
from popc_runtime.native import NativeBinding
from popc_runtime.native.views import PackedView, as_view

__all__ = ["in_panels", "model_of", "saved", "with_panels"]


def in_panels(weights: Array, packing: Packing) -> Array:
    """Its panels, on lines of the cache; what lies behind them is no number."""
    packed = pack_panels(weights, packing)
    memory = np.full(packed.size + 32, np.nan, np.float32)
    address: int = memory.__array_interface__["data"][0]
    start = -(address // 4) % 16
    memory[start : start + packed.size] = packed
    return memory[start : start + packed.size]


def with_panels(binding: NativeBinding, packed: Array, packing: Packing) -> NativeBinding:
    """What an encoder is given if input 1 is stored in ``packed``, which nobody may unpack."""

    def unpack() -> int:
        raise AssertionError("the weights are unpacked")

    view = PackedView(as_view(packed).of_memory(binding.input(1).shape), packing, unpack)
    inputs = (binding.inputs[0], view, *binding.inputs[2:])
    return replace(binding, inputs=inputs)


def model_of(nodes: list[onnx.NodeProto], weights: dict[str, Array], *shape: int) -> bytes:
    """Nodes that read x [*shape] and ``weights``, float32; the last gives the result."""
    graph = helper.make_graph(
        nodes,
        "panels",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    serialized: bytes = model.SerializeToString()
    return serialized


def saved(model: bytes, folder: Path, **options: Any) -> Path:
    """The archive of ``model``, compiled anew."""
    return popc.compile(model, options=options).save(folder / "a.popx", force=True)
