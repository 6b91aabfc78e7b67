"""What a session tells of its program: ops as JSON, costs, and what became of its options."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import popc.cost
from popc import popart


def _session(
    options: popart.SessionOptions | None = None,
    patterns: popart.Patterns | None = None,
    batches: int = 2,
) -> popart.TrainingSession:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 4, 4])
    w = builder.addInitializedInputTensor(np.ones((3, 2, 3, 3), np.float32), "w")
    b = builder.addInitializedInputTensor(np.ones(3, np.float32), "b")
    y = builder.aiOnnx.relu([builder.aiOnnx.conv([x, w, b])])
    y = builder.aiOnnx.exp([builder.aiOnnx.tanh([y])])
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    return popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(batches, [loss]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4}),
        userOptions=options,
        patterns=patterns,
    )


def _ops(session: popart.TrainingSession) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(session._serializeIr())
    return found


def test_ops_have_the_names_that_popart_gives_them() -> None:
    graphs = _ops(_session())
    assert list(graphs) == ["maingraph"]
    kinds = [op["type"] for op in graphs["maingraph"]]
    assert [kind for kind in kinds if kind in ("Conv", "AddBias", "Relu", "Tanh", "Exp")] == [
        *("Conv", "AddBias", "Relu", "Tanh", "Exp")
    ]
    assert {"CopyVarUpdate", "HostLoad", "HostStore", "Init", "Loop"}.isdisjoint(kinds)
    assert kinds.count("SGD0VarUpdate") == 2
    values = [*graphs["maingraph"][0]["attributes"].values(), *kinds]
    assert all(isinstance(value, str) for value in values)
    made = {result["name"] for op in graphs["maingraph"] for result in op["outputs"]}
    bias = next(op for op in graphs["maingraph"] if op["type"] == "AddBias")
    assert bias["inputs"][0]["name"] in made
    assert [operand["index"] for operand in bias["inputs"]] == ["0", "1"]


def test_transfers_and_loops_are_shown_where_popart_has_them() -> None:
    options = popart.SessionOptions()
    options.useHostCopyOps = True
    kinds = [op["type"] for op in _ops(_session(options))["maingraph"]]
    assert kinds.count("Init") == kinds.count("HostLoad") == 1
    options.enableExplicitMainLoops = True
    graphs = _ops(_session(options))
    assert [op["type"] for op in graphs["maingraph"]] == ["Loop"]
    assert "stepLoop" in graphs


def test_costs_as_text_and_as_data() -> None:
    session = _session()
    session.prepareDevice()
    report = session.getReport()
    assert f"Target: {report['target']['name']}" in session.getSummaryReport()
    assert json.loads(json.dumps(report)) == report
    assert "ipu2, 1 x 4 tiles" in session.getSummaryReport()


def test_costs_are_estimated_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing a device takes most of its time for that otherwise."""
    asked: list[object] = []

    def estimate(*arguments: object) -> None:
        asked.append(arguments)
        raise popart.popart_exception("asked")

    monkeypatch.setattr(popc.cost, "estimate_costs", estimate)
    session = _session()
    session.prepareDevice()
    assert not asked
    with pytest.raises(popart.popart_exception, match="asked"):
        session.getSummaryReport()


def test_steps_of_a_run() -> None:
    options = popart.SessionOptions()
    options.reportOptions = {"showExecutionSteps": "true"}
    session = _session(options)
    session.prepareDevice()
    lines = session.getSummaryReport().splitlines()
    steps = [line.strip() for line in lines[lines.index("  Switch") :]]
    assert steps.count("Repeat") == 1
    transfers = [step for step in steps if step.startswith("StreamCopy")]
    assert transfers == ["StreamCopy (from host)", "StreamCopy (to host)"]
    assert sum(step.startswith("OnTileExecute: Conv") for step in steps) == 3


@pytest.mark.parametrize(
    ("member", "value", "kind", "text"),
    [
        ("engineOptions", {"option": "value"}, popart.poplar_exception, "option 'option'$"),
        ("gclOptions", {"x": "1"}, popart.popart_exception, "'x' is not a valid gcl option"),
    ],
)
def test_options_that_poplar_does_not_know(
    member: str, value: dict[str, str], kind: type[Exception], text: str
) -> None:
    options = popart.SessionOptions()
    setattr(options, member, value)
    with pytest.raises(kind, match=text):
        _session(options).prepareDevice()


def test_engine_options_that_popc_has_too() -> None:
    options = popart.SessionOptions()
    options.engineOptions = {"debug.floatPointOpException": "true", "autoReport.all": "true"}
    session = _session(options)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.full((2, 1, 2, 4, 4), np.inf, np.float32)
    data[0, 0, 0] = -np.inf
    with pytest.raises(popart.popart_runtime_error, match="Conv"):
        session.run(popart.PyStepIO({"input": data}, anchors))


def test_patterns_switch_rules() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.identity([builder.aiOnnx.identity([x])])
    kinds: list[list[str]] = []
    for patterns in (popart.Patterns(), popart.Patterns(popart.PatternsLevel.Minimal)):
        session = popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, [y]),
            popart.DeviceManager().createCpuDevice(),
            patterns=patterns,
        )
        kinds.append([op["type"] for op in json.loads(session._serializeIr())["maingraph"]])
    assert len(kinds[0]) <= len(kinds[1])


def test_ops_that_share_their_code_are_called() -> None:
    """As by PopART, which numbers what is added up before what is not."""
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.ones((6, 2), np.float32))
    w = builder.addInitializedInputTensor(np.ones((2, 4), np.float32))
    y = builder.aiOnnx.matmul([x, w])
    builder.setSerializeMatMul({y}, "input_channels", 3)
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    graphs = []
    for outlines in (True, False):
        options = popart.SessionOptions()
        options.enableOutlining = outlines
        session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, [y]),
            loss,
            popart.ConstSGD(0.1),
            popart.DeviceManager().createCpuDevice(),
            userOptions=options,
        )
        graphs.append(_ops(session))
    shared, plain = graphs
    assert sum(op["type"] == "Call" for op in shared["maingraph"]) == 9
    assert sum(op["type"] == "MatMul" for op in plain["maingraph"]) == 9
    assert any(y in [result["name"] for result in op["outputs"]] for op in shared["maingraph"])
    assert sorted(shared) == [*(f"call_subgraph({number})" for number in range(3)), "maingraph"]
    shapes = [
        [operand["shape"] for operand in shared[f"call_subgraph({number})"][0]["inputs"]]
        for number in range(3)
    ]
    assert shapes == [
        ["[1 2 2]", "[1 2 4]"],
        ["[1 2 2]", "[1 2 4]"],
        ["[1 2 4]", "[1 4 2]"],
    ]


def _calls_of_graphs(builder: popart.Builder, x: str, w: str) -> str:
    """A graph that calls another and one with a loop, called twice; the other one once more."""
    info = popart.TensorInfo("FLOAT", [2, 2])

    def graph(name: str, inputs: int) -> tuple[popart.Builder, list[str]]:
        inner = builder.createSubgraphBuilder()
        inner.setGraphName(name)
        return inner, [inner.addInputTensor(info) for _ in range(inputs)]

    scaled, (a,) = graph("scaled", 1)
    scaled.addOutputTensor(scaled.aiGraphcore.scale([scaled.aiOnnx.tanh([a])], 2.0))
    body = builder.createSubgraphBuilder()
    body.setGraphName("body")
    body.addInputTensor(popart.TensorInfo("INT64", []))
    kept = body.addInputTensor(popart.TensorInfo("BOOL", []))
    state = body.addInputTensor(info)
    for result in (kept, body.aiGraphcore.call([state], 1, scaled, "in loop")[0]):
        body.addOutputTensor(result)
    outer, (a, b) = graph("outer", 2)
    trips, goes_on = map(outer.aiOnnx.constant, (np.array(2, np.int64), np.ones((), bool)))
    (c,) = outer.aiOnnx.loop([trips, goes_on, a], 1, body)
    outer.addOutputTensor(outer.aiOnnx.dropout([outer.aiOnnx.matmul([c, b])], 1, 0.0)[0])
    y: str = builder.aiGraphcore.call([x, w], 1, outer, "first")[0]
    y = builder.aiGraphcore.call([builder.aiOnnx.exp([y])], 1, scaled, "second")[0]
    last: str = builder.aiGraphcore.call([y, w], 1, outer, "third")[0]
    return last


@pytest.mark.parametrize("outlines", [True, False])
def test_calls_are_shown_as_the_model_has_them(*, outlines: bool) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2])
    weights = np.array([[1, 2], [-1, 0.5]], np.float32)
    w = builder.addInitializedInputTensor(weights)
    y = _calls_of_graphs(builder, x, w)
    options = popart.SessionOptions()
    options.enableOutlining = outlines
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    shown = json.loads(session._serializeIr())
    calls = {
        graph: {op["name"]: op["attributes"]["callee"] for op in ops if op["type"] == "Call"}
        for graph, ops in shown.items()
    }
    assert calls["maingraph"] == {"first": "outer", "second": "scaled", "third": "outer"}
    assert calls["body"] == {"in loop": "scaled"}
    assert [op["type"] for op in shown["scaled"]] == ["Tanh", "Mul"]
    assert {op["attributes"].get("callee") for op in shown["outer"]} >= {"body"}
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    given = np.array([[1, -2], [0.5, 0]], np.float32)
    session.run(popart.PyStepIO({x: given}, anchors))
    expected = given
    expected = 2 * np.tanh(np.exp(2 * np.tanh(2 * np.tanh(expected)) @ weights))
    expected = 2 * np.tanh(2 * np.tanh(expected)) @ weights
    np.testing.assert_allclose(anchors[y], expected, rtol=1e-5, atol=1e-5)


def test_gradients_of_calls_are_calls() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2])
    w = builder.addInitializedInputTensor(np.ones((2, 2), np.float32))
    loss = builder.aiGraphcore.l1loss([_calls_of_graphs(builder, x, w)], 1.0)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
    )
    shown = json.loads(session._serializeIr())
    called = [op["attributes"]["callee"] for op in shown["maingraph"] if op["type"] == "Call"]
    forward = ["outer", "scaled", "outer"]
    assert [name.split("_")[0] for name in called] == forward + forward[::-1]
    assert ["_bwd" in name for name in called] == [False] * 3 + [True] * 3
    assert set(called) < set(shown)
    assert {"body", "body(1)"} < set(shown)


def test_what_is_returned_under_another_name() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    names = [builder.aiOnnx.identity([x]), builder.aiOnnx.identity([builder.aiOnnx.exp([x])])]
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, names),
        popart.DeviceManager().createCpuDevice(),
    )
    shown = json.loads(session._serializeIr())["maingraph"]
    found = {op["outputs"][0]["name"]: op["type"] for op in shown}
    assert found == {names[0]: "Identity", names[1]: "Exp"}


def test_the_norm_of_all_gradients() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    weights = [builder.addInitializedInputTensor(np.ones(2, np.float32)) for _ in range(2)]
    y = builder.aiOnnx.mul([builder.aiOnnx.add([x, weights[0]]), weights[1]])
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    clip = [popart.ClipNormSettings.clipAllWeights(0.1)]
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        loss,
        popart.SGD({"defaultLearningRate": (0.1, True)}, clip),
        popart.DeviceManager().createCpuDevice(),
    )
    assert [op["type"] for op in _ops(session)["maingraph"]].count("ReduceSumSquare") == 2


@pytest.mark.parametrize("drops", [True, False])
def test_losses_that_only_have_another_name(*, drops: bool) -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.ones(2, np.float32))
    loss = builder.aiGraphcore.identityloss([builder.aiGraphcore.l1loss([x], 1.0)])
    patterns = popart.Patterns()
    patterns.OpToIdentity = drops
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
        patterns=patterns,
    )
    kinds = [op["type"] for op in _ops(session)["maingraph"] if "IdentityLoss" in op["type"]]
    assert kinds == ([] if drops else ["IdentityLoss", "IdentityLossGrad"])
