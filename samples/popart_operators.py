"""What PopART's reference says by example of its builder, run and held against numpy.

pip install ./facade; python samples/popart_operators.py

Slices at places that are known when the model runs, a shape that is given as numbers, and the three
operators that hold graphs: a call, a condition and a loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import popart

_Array = np.ndarray[Any, Any]
_TENSOR = np.arange(24, dtype=np.float32).reshape(6, 4)
_SLICE = np.full((2, 4), 100, np.float32)
_OFFSET = np.array([3], np.uint32)


def slices(builder: popart.Builder) -> tuple[dict[str, _Array], dict[str, _Array]]:
    """out = tensor[offset]; out[offset] = slice, += slice, = 0."""
    tensor, part = (builder.addInputTensor("FLOAT", value.shape) for value in (_TENSOR, _SLICE))
    offset = builder.addInputTensor("UINT32", [1])
    ops, where = builder.aiGraphcore, {"axes": [0], "sizes": [2]}
    updated, added, cleared = _TENSOR.copy(), _TENSOR.copy(), _TENSOR.copy()
    updated[3:5], cleared[3:5] = _SLICE, 0
    added[3:5] += _SLICE
    expected = {
        ops.dynamicslice([tensor, offset], **where): _TENSOR[3:5],
        ops.dynamicupdate([tensor, offset, part], **where): updated,
        ops.dynamicadd([tensor, offset, part], **where): added,
        ops.dynamiczero([tensor, offset], **where): cleared,
    }
    return {tensor: _TENSOR, part: _SLICE, offset: _OFFSET}, expected


def shapes(builder: popart.Builder) -> tuple[dict[str, _Array], dict[str, _Array]]:
    """A reshape whose shape is no tensor, in front of a call of a graph, twice."""
    tensor = builder.addInputTensor("FLOAT", _TENSOR.shape)
    twice = builder.createSubgraphBuilder()
    x = twice.addInputTensor(popart.TensorInfo("FLOAT", [4, 6]))
    twice.addOutputTensor(twice.aiOnnx.add([x, x]))
    y = builder.reshape_const(builder.aiOnnx, [tensor], [4, 6])
    for _ in range(2):
        [y] = builder.aiGraphcore.call([y], 1, twice)
    return {tensor: _TENSOR}, {y: _TENSOR.reshape(4, 6) * 4}


def condition(builder: popart.Builder) -> tuple[dict[str, _Array], dict[str, _Array]]:
    """One of two graphs, which read what is around them."""
    tensor = builder.addInputTensor("FLOAT", _TENSOR.shape)
    is_chosen = builder.addInputTensor("BOOL", [])
    branches = {}
    for name in ("neg", "exp"):
        branch = builder.createSubgraphBuilder()
        branch.addInputTensorFromParentGraph(tensor)
        branch.addOutputTensor(getattr(branch.aiOnnx, name)([tensor]))
        branches[name] = branch
    [y] = builder.aiOnnx.logical_if(
        [is_chosen], 1, else_branch=branches["exp"], then_branch=branches["neg"]
    )
    return {tensor: _TENSOR, is_chosen: np.ones((), np.bool_)}, {y: -_TENSOR}


def loop(builder: popart.Builder) -> tuple[dict[str, _Array], dict[str, _Array]]:
    """A body that runs five times, and reads a weight of the graph around it."""
    tensor = builder.addInputTensor("FLOAT", [4])
    weight = builder.addInitializedInputTensor(np.full(4, 2, np.float32))
    ops = builder.aiOnnxOpset11
    trips, goes_on = ops.constant(np.array(5)), ops.constant(np.ones((), np.bool_))
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    condition_inside = body.addInputTensor("BOOL", [])
    state = body.addInputTensor("FLOAT", [4])
    body.addInputTensorFromParentGraph(weight)
    body.addOutputTensor(condition_inside)
    body.addOutputTensor(body.aiOnnxOpset11.mul([state, weight]))
    [y] = ops.loop([trips, goes_on, tensor], 1, body)
    return {tensor: _TENSOR[0]}, {y: _TENSOR[0] * 32}


def run(builder: popart.Builder, feeds: Mapping[str, _Array], names: list[str]) -> dict[str, Any]:
    """The values of tensors of a model."""
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, names),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1}),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(feeds), anchors))
    return dict(anchors)


def main() -> int:
    """Run every example; 1 if a result is not what numpy gives."""
    examples: list[Callable[[popart.Builder], tuple[dict[str, _Array], dict[str, _Array]]]]
    examples = [slices, shapes, condition, loop]
    wrong = 0
    for example in examples:
        builder = popart.Builder()
        feeds, expected = example(builder)
        found = run(builder, feeds, list(expected))
        for name, value in expected.items():
            same = np.array_equal(found[name], value)
            print(f"{example.__name__:10} {name:20} {'equal' if same else 'NOT EQUAL'}")
            wrong += not same
    print("NOT EQUAL" if wrong else "equal")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
