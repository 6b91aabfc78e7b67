"""Small networks whose nodes say on which chip, and in which stage, they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.format import Array
from tests.support.remembered import remembered

__all__ = [
    "ADAM",
    "CLIPPED",
    "SGD",
    "Results",
    "assert_equal",
    "layered",
    "on_chips",
    "plain_program",
    "run_program",
]

_WIDTH = 8
_LOSS = {"type": "identity", "input": "square", "reduction": "mean"}
SGD: dict[str, Any] = {
    "loss": _LOSS,
    "optimizer": {"type": "sgd", "learning_rate": 0.05, "momentum": 0.9},
}
ADAM: dict[str, Any] = {
    "loss": _LOSS,
    "optimizer": {
        "type": "adam",
        "learning_rate": 0.01,
        "weight_decay": 0.1,
    },
}
CLIPPED: dict[str, Any] = {
    "loss": _LOSS,
    "optimizer": {
        "type": "sgd",
        "learning_rate": 0.05,
        "clip_norm": [{"max_norm": 0.01}],
    },
}

# The outputs of each run, and the variables in the end.
Results = tuple[list[dict[str, Array]], Mapping[str, Array]]


def layered(
    places: Sequence[tuple[int, int | None] | None],
    *,
    skips: bool = False,
    tied: bool = False,
    dropout: bool = False,
) -> onnx.ModelProto:
    """x [2, 8]; a layer tanh(x w + b) per place, which is (chip, stage); and y^2 at the end.

    ``skips``: each layer adds the result of the first one; ``tied``: the last layer has the weight
    of the first; ``dropout``: every layer drops values.
    """
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    arrays: dict[str, Array] = {
        "ratio": np.asarray(0.25, np.float32),
        "yes": np.asarray(1, np.bool_),
    }

    def add(op_type: str, inputs: Sequence[str], place: tuple[int, int | None] | None) -> str:
        name = f"{op_type.lower()}{len(nodes)}"
        said = dict(zip(("__ipu_number", "__pipeline_stage"), place or (), strict=False))
        given: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
        nodes.append(helper.make_node(op_type, inputs, [name], name=name, **given))
        return name

    x, first = "x", ""
    for index, place in enumerate(places):
        source = 0 if tied and index == len(places) - 1 else index
        arrays[f"w{source}"] = rng.standard_normal((_WIDTH, _WIDTH)).astype(np.float32) * 0.3
        arrays[f"b{index}"] = rng.standard_normal(_WIDTH).astype(np.float32) * 0.1
        x = add("Add", [add("MatMul", [x, f"w{source}"], place), f"b{index}"], place)
        if dropout:
            x = add("Dropout", [x, "ratio", "yes"], place)
        x = add("Tanh", [x], place)
        if skips and first:
            x = add("Add", [x, first], place)
        first = first or x
    nodes.append(helper.make_node("Mul", [x, x], ["square"], name="square", **_said(places[-1])))
    floats = onnx.TensorProto.FLOAT
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", floats, [2, _WIDTH])],
        [helper.make_tensor_value_info(name, floats, [2, _WIDTH]) for name in (x, "square")],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _said(place: tuple[int, int | None] | None) -> dict[str, Any]:
    if place is None:
        return {}
    return {"__ipu_number": place[0]} | ({} if place[1] is None else {"__pipeline_stage": place[1]})


def on_chips(layers: int, chips: int, **more: Any) -> onnx.ModelProto:
    """`layered`, with as many layers on each chip."""
    return layered([(index * chips // layers, None) for index in range(layers)], **more)


def run_program(
    folder: Path,
    model: onnx.ModelProto,
    train: Mapping[str, Any] | None = None,
    *,
    runs: int = 2,
    **options: Any,
) -> Results:
    """Compile with all checks, and run on random data, always the same."""
    archive = popc.compile(model, train=train, options={"verify_ir": True, **options})
    program = popc_runtime.load(archive.save(folder / "program.popx", force=True))
    program.set_seed(5)
    outputs: list[dict[str, Array]] = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        feeds: dict[str, Array] = {}
        for spec in program.inputs:
            dtype = spec.dtype.storage
            if spec.dtype.is_float:
                feeds[spec.name] = rng.standard_normal(spec.shape).astype(dtype)
            else:
                feeds[spec.name] = rng.integers(0, 10, spec.shape).astype(dtype)
        outputs.append(program.run(feeds))
    return outputs, {} if train is None else program.state.read()


def assert_equal(results: Results, expected: Results) -> None:
    """Every bit of what runs have given, and of the variables, is the same."""
    for found, wanted in zip(results[0], expected[0], strict=True):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert results[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_array_equal(results[1][name], value, err_msg=name)


plain_program = remembered(run_program)  # what other programs are compared with
