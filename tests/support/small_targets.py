"""Targets with few tiles and little memory, so that small programs do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["small_target", "tower"]


def small_target(folder: Path, *, kilobytes: int, tiles: int = 16) -> str:
    """The path of a target like the GC200, but small."""
    path = folder / f"small{kilobytes}.toml"
    path.write_text(
        f'based_on = "ipu2"\nname = "small{kilobytes}"\n[tile]\ncount = {tiles}\n'
        f"memory_bytes = {1024 * kilobytes}\ninterleaved_bytes = 0\n",
        encoding="utf-8",
    )
    return str(path)


def tower(
    layers: int = 3,
    width: int = 64,
    dtype: type[np.generic] = np.float32,
    batch: int | str = "batch",
) -> bytes:
    """Products and activations one after another: x [batch, width] -> y [batch, width]."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for layer in range(layers):
        weight = (rng.standard_normal((width, width)) / width**0.5).astype(dtype)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"], f"mul{layer}"))
        value = f"a{layer}" if layer < layers - 1 else "y"
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [value], f"tanh{layer}"))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "tower",
        [helper.make_tensor_value_info("x", kind, [batch, width])],
        [helper.make_tensor_value_info("y", kind, [batch, width])],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    data: bytes = model.SerializeToString()
    return data
