"""Tables off chip of which rows are read and updated: results are those of a table on the chip."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.errors import DeviceError
from tests.support.compiling import CHECKED

_OFF: Final[dict[str, Any]] = {"tensor_location_override": {"t": "off_chip"}}
_SGD: Final[dict[str, Any]] = {"type": "sgd", "learning_rate": 0.1}
_ROWS, _WIDTH = 50, 6


def _model(rows: int, width: int, looked_up: int, *, tied: bool = False) -> onnx.ModelProto:
    """y = tanh(t[i] w); ``tied``: times the transposed table as well."""
    rng = np.random.default_rng(1)
    weights = {
        "t": rng.standard_normal((rows, width), np.float32),
        "w": rng.standard_normal((width, width), np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["t", "i"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["z" if tied else "y"]),
    ]
    if tied:
        nodes += [
            helper.make_node("Transpose", ["t"], ["u"]),
            helper.make_node("MatMul", ["z", "u"], ["y"]),
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT32, [looked_up])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _compiled(options: dict[str, Any], optimizer: dict[str, Any] | None, **model: Any) -> Any:
    """The program, and how often its transformed graph has each op."""
    artefacts: dict[str, str] = {}
    training: dict[str, Any] = {}
    if optimizer is not None:
        training = {"loss": {"type": "l1", "input": "y"}, "optimizer": optimizer}
    archive = popc.compile(
        _model(**({"rows": _ROWS, "width": _WIDTH, "looked_up": 7} | model)),
        options={**CHECKED, **options},
        on_artefact=lambda stage, text: artefacts.update({str(stage): text}),
        **training,
    )
    text = artefacts["transform"]
    ops = ("RemoteGather", "RemoteScatterAdd", "RemoteLoad", "RemoteStore", "GatherGrad")
    return archive.to_bytes(), {op: text.count(f"= {op}(") for op in ops}


def _trained(archive: bytes, given: np.ndarray[Any, Any], engine: str) -> dict[str, Any]:
    program = popc_runtime.load(archive, engine=engine)
    losses = [program.run(i=each)["loss"] for each in given]
    return {**program.state.read(), "losses": np.stack(losses)}


@pytest.mark.parametrize("engine", ["native", "numpy"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batches_per_step": 3},
        {"num_ipus": 2, "virtual_graph_mode": "auto"},
        {"enable_outlining": True, "outline_threshold": 0.0},
    ],
    ids=["plain", "steps", "chips", "outlined"],
)
def test_training(options: dict[str, Any], engine: str) -> None:
    """Rows that are named twice, and from the end, are among those looked up."""
    batches = options.get("batches_per_step", 1)
    given = np.random.default_rng(2).integers(-9, 9, (4, batches, 7)).astype(np.int32)
    given = given if batches > 1 else given[:, 0]
    far, ops = _compiled({**options, **_OFF}, _SGD)
    near, _ = _compiled(options, _SGD)
    assert ops["RemoteGather"] == ops["RemoteScatterAdd"] == 1
    assert ops["RemoteLoad"] == ops["RemoteStore"] == ops["GatherGrad"] == 0
    found, expected = _trained(far, given, engine), _trained(near, given, engine)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batches_per_step": 2},
        {"num_ipus": 2, "virtual_graph_mode": "auto", "enable_pipelining": True},
    ],
    ids=["plain", "steps", "pipeline"],
)
def test_rows_of_several_micro_batches(options: dict[str, Any]) -> None:
    """SGD with accumulated gradients, as TensorFlow's HostEmbeddingSGDGAOptimizerSpec."""
    several = {**options, "accumulation_factor": 3}
    shape = (4, *((2,) if "batches_per_step" in options else ()), 3, 7)
    given = np.random.default_rng(2).integers(-9, 9, shape).astype(np.int32)
    far, ops = _compiled({**several, **_OFF, "accumulate_lookup_rows": True}, _SGD)
    near, _ = _compiled(several, _SGD)
    if "num_ipus" not in options:
        assert ops["RemoteGather"] == ops["RemoteScatterAdd"] == 1
        assert ops["RemoteLoad"] == ops["RemoteStore"] == ops["GatherGrad"] == 0
    found, expected = _trained(far, given, "auto"), _trained(near, given, "auto")
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_more_rows_than_the_table_has_are_added_up() -> None:
    options = {"accumulation_factor": 8, "accumulate_lookup_rows": True}
    _, ops = _compiled({**options, **_OFF}, _SGD)
    assert (ops["RemoteScatterAdd"], ops["GatherGrad"]) == (0, 1)


@pytest.mark.parametrize(
    ("options", "optimizer", "model"),
    [
        ({}, {**_SGD, "momentum": 0.9}, {}),
        ({}, {**_SGD, "weight_decay": 0.1}, {}),
        ({"accumulation_factor": 2}, _SGD, {}),
        ({"replicated_graph_count": 2}, _SGD, {}),
        ({}, _SGD, {"tied": True}),
        ({}, _SGD, {"looked_up": _ROWS}),
    ],
    ids=["momentum", "decay", "accumulated", "replicas", "tied", "most rows"],
)
def test_what_needs_the_whole_table_fetches_it(
    options: dict[str, Any], optimizer: dict[str, Any], model: dict[str, Any]
) -> None:
    far, ops = _compiled({**options, **_OFF}, optimizer, **model)
    near, _ = _compiled(options, optimizer, **model)
    assert ops["RemoteScatterAdd"] == 0
    assert ops["RemoteStore"] == 1
    assert ops["RemoteGather"] == (0 if model else 1)
    shape = (*((2,) if options else ()), model.get("looked_up", 7))
    given = np.random.default_rng(2).integers(0, _ROWS, (3, *shape)).astype(np.int32)
    found, expected = _trained(far, given, "auto"), _trained(near, given, "auto")
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("constant", ["constants", "variables"])
def test_inference_costs_what_its_rows_cost(constant: str) -> None:
    """Ten times the table is the same for the host, and a tenth of the rows is less."""
    options = {**_OFF, "constant_weights": constant == "constants"}
    costs = {
        (rows, count): popc.estimate(_model(rows, 64, count), options=options).cycles.host
        for rows, count in [(5_000, 8), (50_000, 8), (50_000, 800)]
    }
    assert costs[5_000, 8] == costs[50_000, 8] < costs[50_000, 800]
    archive, ops = _compiled(options, None)
    assert ops["RemoteGather"] == 1
    assert ops["RemoteLoad"] == 0
    given = np.array([0, 3, 3, -1, 49, 7, -50], np.int32)
    near, _ = _compiled({}, None)
    expected = popc_runtime.load(near).run(i=given)["y"]
    np.testing.assert_array_equal(popc_runtime.load(archive).run(i=given)["y"], expected)


def test_rows_that_the_table_does_not_have() -> None:
    archive, _ = _compiled(_OFF, _SGD)
    with pytest.raises(DeviceError, match=r"RemoteGather.*an index is out of range"):
        popc_runtime.load(archive).run(i=np.full(7, 50, np.int32))


@pytest.mark.slow
def test_ten_million_rows() -> None:
    """1,000 steps equal those of a table on the chip, of the rows that are looked up at all."""
    rows, width, count, steps = 10_000_000, 4, 64, 1000
    rng = np.random.default_rng(5)
    used = np.sort(rng.choice(rows, 3000, replace=False))
    places = rng.integers(0, used.size, (steps, count)).astype(np.int32)
    large, small = _model(rows, width, count), _model(used.size, width, count)
    table = numpy_helper.to_array(large.graph.initializer[0])
    small.graph.initializer[0].CopyFrom(numpy_helper.from_array(table[used], "t"))
    small.graph.initializer[1].CopyFrom(large.graph.initializer[1])
    tables: list[Any] = []
    for model, options, given in ((large, _OFF, used[places]), (small, {}, places)):
        archive = popc.compile(
            model, options=options, loss={"type": "l1", "input": "y"}, optimizer=_SGD
        )
        program = popc_runtime.load(archive.to_bytes())
        for each in given.astype(np.int32):
            program.run(i=each)
        tables.append(program.state.read()["t"])
        del program
    np.testing.assert_array_equal(tables[0][used], tables[1])
    rest = np.ones(rows, bool)
    rest[used] = False
    np.testing.assert_array_equal(tables[0][rest], table[rest])
