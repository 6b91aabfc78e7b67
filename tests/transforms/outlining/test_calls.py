"""Calls of the model stay calls of one graph; and what parting an exchange costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.errors import OptionError
from popc_runtime.format import (
    ArchiveFile,
    Array,
    CallBlock,
    decode_program,
)
from samples.networks import sorting_transformer
from tests.support.programs import items_of

_RNG = np.random.default_rng(4)
_X = _RNG.standard_normal((3, 4)).astype(np.float32)
_WEIGHTS = [_RNG.standard_normal((4, 4)).astype(np.float32) / 2 for _ in range(3)]


def _tensor(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, 1, shape)


def _called(count: int, *, single: bool = False) -> onnx.ModelProto:
    """``count`` calls of relu(x w) + x, one behind the other; or of x w only."""
    nodes = [
        helper.make_node("MatMul", ["a", "v"], ["m"]),
        *([] if single else [helper.make_node("Relu", ["m"], ["r"])]),
        *([] if single else [helper.make_node("Add", ["r", "a"], ["s"])]),
    ]
    callee = helper.make_graph(
        nodes,
        "layer",
        [_tensor("a", 3, 4), _tensor("v", 4, 4)],
        [_tensor("m" if single else "s", 3, 4)],
    )
    values = ["x", *(f"y{number}" for number in range(count - 1)), "y"]
    calls = [
        helper.make_node(
            "Call", [values[n], f"w{n}"], [values[n + 1]], domain="ai.graphcore", callee=callee
        )
        for n in range(count)
    ]
    weights = [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(_WEIGHTS[:count])]
    graph = helper.make_graph(calls, "calls", [_tensor("x", 3, 4)], [_tensor("y", 3, 4)], weights)
    opsets = [helper.make_opsetid("", 11), helper.make_opsetid("ai.graphcore", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _expected(count: int, *, single: bool = False) -> Array:
    y: Array = _X
    for w in _WEIGHTS[:count]:
        y = y @ w if single else np.maximum(y @ w, 0) + y
    return y


def _counts(archive: bytes) -> tuple[int, int, int]:
    """Programs beside main, calls and other instructions."""
    with ArchiveFile.open(archive) as opened:
        image = decode_program(opened.read("program"))
    items = items_of(image)
    calls = sum(isinstance(item, CallBlock) for item in items)
    programs = image.programs.keys() - {"main", "weights_from_host"}
    return len(programs), calls, len(items) - calls


@pytest.mark.parametrize("outlining", [False, True])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_calls_share_one_graph(count: int, *, single: bool, outlining: bool) -> None:
    options = {
        "enable_outlining": outlining,
        "outline_threshold": 1e9,  # which is not asked about calls of the model
        "verify_ir": True,
    }
    archive = popc.compile(_called(count, single=single), options=options).to_bytes()
    assert _counts(archive)[:2] == (1, count)
    found = popc_runtime.load(archive).run(x=_X)["y"]
    np.testing.assert_allclose(found, _expected(count, single=single), rtol=1e-5, atol=1e-6)


def test_one_call_stays_a_call() -> None:
    archive = popc.compile(_called(1)).to_bytes()
    assert _counts(archive)[:2] == (1, 1)
    found = popc_runtime.load(archive).run(x=_X)["y"]
    np.testing.assert_allclose(found, _expected(1), rtol=1e-5)


def test_calls_are_differentiated_and_their_gradients_shared() -> None:
    model = _called(3)
    trained: list[dict[str, Any]] = []
    for written_out in (False, True):
        if written_out:  # the same layers as nodes of the model
            nodes = [
                node
                for n, (x, y) in enumerate((("x", "y0"), ("y0", "y1"), ("y1", "y")))
                for node in (
                    helper.make_node("MatMul", [x, f"w{n}"], [f"m{n}"]),
                    helper.make_node("Relu", [f"m{n}"], [f"r{n}"]),
                    helper.make_node("Add", [f"r{n}", x], [y]),
                )
            ]
            del model.graph.node[:]
            model.graph.node.extend(nodes)
        archive = popc.compile(
            model,
            loss={"type": "identity", "input": "y"},
            optimizer={"type": "sgd", "learning_rate": 0.1},
        ).to_bytes()
        programs, calls, _ = _counts(archive)
        assert (programs > 1, calls > 3) == (not written_out, not written_out)
        program = popc_runtime.load(archive)
        for _ in range(3):
            program.run(x=_X)
        trained.append(program.state.read())
    for name, value in trained[0].items():
        np.testing.assert_allclose(value, trained[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outlining", [False, True])
def test_calls_in_calls_side_by_side(*, outlining: bool) -> None:
    """Of two calls of a graph with two calls in it no op waits for one of the other call."""
    model = _called(2)
    inner = helper.make_graph(
        list(model.graph.node),
        "two layers",
        [_tensor(name, *shape) for name, shape in (("x", (3, 4)), ("w0", (4, 4)), ("w1", (4, 4)))],
        [_tensor("y", 3, 4)],
    )
    del model.graph.node[:]
    for result, operands in (("u", ["x", "w0", "w1"]), ("v", ["x", "w1", "w0"])):
        node = helper.make_node("Call", operands, [result], domain="ai.graphcore", callee=inner)
        model.graph.node.append(node)
    model.graph.node.append(helper.make_node("Add", ["u", "v"], ["y"]))
    options = {"enable_outlining": outlining, "verify_ir": True}
    archive = popc.compile(model, options=options).to_bytes()
    assert _counts(archive)[:2] == (2, 4)
    expected = np.zeros_like(_X)
    for weights in (_WEIGHTS[:2], _WEIGHTS[1::-1]):
        y = _X
        for w in weights:
            y = np.maximum(y @ w, 0) + y
        expected += y
    found = popc_runtime.load(archive).run(x=_X)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def _of_functions() -> onnx.ModelProto:
    """Three calls of a function relu(x w) + x, and one of another, of the model."""
    model = _called(3)
    opsets = [helper.make_opsetid("", 11)]
    for call in model.graph.node:
        callee = call.attribute[0].g
        call.domain, call.op_type = "local", "layer"
        del call.attribute[:]
        body = list(callee.node)
    functions = [
        helper.make_function("local", name, ["a", "v"], ["s"], body, opsets)
        for name in ("layer", "other")
    ]
    model.graph.node.append(helper.make_node("other", ["y", "w0"], ["z"], domain="local"))
    model.graph.output.append(_tensor("z", 3, 4))
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.extend(functions)
    return model


@pytest.mark.parametrize(
    ("pattern", "calls"), [("layer", 3), ("local.lay*", 3), ("other", 1), ("*", 4)]
)
def test_functions_that_are_wanted_as_calls(pattern: str, calls: int) -> None:
    options = {"outlined_functions": [pattern], "verify_ir": True}
    archive = popc.compile(_of_functions(), options=options).to_bytes()
    assert _counts(archive)[1] == calls
    plain = popc_runtime.load(popc.compile(_of_functions()).to_bytes()).run(x=_X)
    found = popc_runtime.load(archive).run(x=_X)
    for name, value in plain.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["y"], _expected(3), rtol=1e-5, atol=1e-6)


def test_functions_that_there_are_not() -> None:
    with pytest.raises(OptionError) as error:
        popc.compile(_of_functions(), options={"outlined_functions": ["leyer", "layer"]})
    assert error.value.details == ("there is no function 'leyer'; did you mean 'layer'?",)
    with pytest.raises(OptionError) as error:
        popc.compile(_called(2), options={"outlined_functions": ["layer"]})
    assert error.value.hint == "it has none"


def test_breaks_cost_what_is_said() -> None:
    """With I/O tiles, parts beside a transfer would keep it from overlapping."""
    model = sorting_transformer(length=4, size=16, heads=2, layers=3)
    counts = [
        _counts(
            popc.compile(
                model,
                dims={"batch": 3},
                options={
                    "enable_outlining": True,
                    "outline_sequence_break_cost": cost,
                    "num_io_tiles": 32,
                    "batches_per_step": 4,
                    "exchange_strategies": {"*": "overlap_inner_loop"},
                },
            ).to_bytes()
        )
        for cost in (0.0, 1e9)
    ]
    assert counts[0][1] > counts[1][1]
    assert counts[0][2] < counts[1][2]
