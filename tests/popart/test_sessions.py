"""Sessions: anchors, weights, runs, preconditions and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from popc import popart

_Array = np.ndarray[Any, Any]
_CPU = popart.DeviceManager().createCpuDevice()


def _doubled() -> tuple[bytes, str, str, str]:
    """y = x w for x of shape (2, 3): the model, x, w and y."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    w = builder.addInitializedInputTensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    y = builder.aiOnnx.matmul([x, w])
    builder.addOutputTensor(y)
    return builder.getModelProto(), x, w, y


def _with_loss() -> tuple[bytes, str, str, str]:
    """The sum of |x w|: the model, x, w and the loss."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    w = builder.addInitializedInputTensor(np.ones((3, 4), np.float32))
    loss = builder.aiGraphcore.l1loss(
        [builder.aiOnnx.matmul([x, w])], 1.0, reduction=popart.ReductionType.Sum
    )
    return builder.getModelProto(), x, w, loss


def _trainer(
    optimizer: popart.Optimizer,
    anchors: dict[str, popart.AnchorReturnType] | None = None,
    batches: int = 1,
    options: popart.SessionOptions | None = None,
) -> tuple[popart.TrainingSession, str, str, str]:
    model, x, w, loss = _with_loss()
    flow = popart.DataFlow(batches, anchors or {loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(
        model, flow, loss, optimizer, _CPU, userOptions=options or popart.SessionOptions()
    )
    session.prepareDevice()
    return session, x, w, loss


def _read(session: Any, name: str, shape: tuple[int, ...]) -> _Array:
    array = np.empty(shape, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({name: array}))
    return array


def test_inference_computes_what_numpy_does() -> None:
    model, x, _, y = _doubled()
    session = popart.InferenceSession(model, popart.DataFlow(3, [y, x]), _CPU)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.random.default_rng(0).random((3, 2, 3), np.float32)
    session.run(popart.PyStepIO({x: data}, anchors))
    np.testing.assert_allclose(anchors[y], data @ np.arange(12.0).reshape(3, 4), rtol=1e-5)
    np.testing.assert_array_equal(anchors[x], data)


@pytest.mark.parametrize(
    ("kind", "batches", "accumulation", "replicas", "dims"),
    [
        (popart.AnchorReturnType("All"), 1, 1, 1, ()),
        (popart.AnchorReturnType("All"), 4, 1, 1, (4,)),
        (popart.AnchorReturnType("All"), 4, 2, 3, (4, 2, 3)),
        (popart.AnchorReturnType("All"), 1, 2, 3, (2, 3)),
        (popart.AnchorReturnType("EveryN", 2), 4, 2, 3, (2, 2, 3)),
        (popart.AnchorReturnType("EveryN", 4), 4, 2, 1, (2,)),
        (popart.AnchorReturnType("Final"), 4, 2, 3, (3,)),
        (popart.AnchorReturnType("Sum"), 4, 2, 1, ()),
    ],
)
def test_shapes_of_anchor_arrays(
    kind: popart.AnchorReturnType,
    batches: int,
    accumulation: int,
    replicas: int,
    dims: tuple[int, ...],
) -> None:
    options = popart.SessionOptions()
    options.enableGradientAccumulation = accumulation > 1
    options.accumulationFactor = accumulation
    options.enableReplicatedGraphs = replicas > 1
    options.replicatedGraphCount = replicas
    model, x, w, loss = _with_loss()
    gradient = popart.reservedGradientPrefix() + w
    flow = popart.DataFlow(batches, dict.fromkeys((loss, w, x, gradient), kind))
    session = popart.TrainingSession(
        model, flow, loss, popart.ConstSGD(0.1), _CPU, userOptions=options
    )
    shapes = {name: array.shape for name, array in session.initAnchorArrays().items()}
    assert shapes == {loss: dims, w: (*dims, 3, 4), x: (*dims, 2, 3), gradient: (*dims, 3, 4)}


def test_training_updates_weights_in_each_batch() -> None:
    session, x, w, loss = _trainer(popart.ConstSGD(0.5), batches=2)
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.ones((2, 2, 3), np.float32)
    session.run(popart.PyStepIO({x: data}, anchors))
    # Each element of w has the gradient 2; the products are 3 and then 0.
    np.testing.assert_allclose(anchors[loss], [24, 0], atol=1e-6)
    np.testing.assert_allclose(_read(session, w, (3, 4)), np.zeros((3, 4)), atol=1e-6)


def test_optimizers_are_replaced_while_a_session_runs() -> None:
    session, x, w, _ = _trainer(popart.SGD({"defaultLearningRate": (0.25, False)}))
    session.weightsFromHost()
    step = popart.PyStepIO({x: np.ones((2, 3), np.float32)}, session.initAnchorArrays())
    session.run(step)
    np.testing.assert_allclose(_read(session, w, (3, 4)), 0.5)
    session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.125, False)}))
    session.run(step)
    np.testing.assert_allclose(_read(session, w, (3, 4)), 0.25)
    with pytest.raises(popart.popart_runtime_error, match="not a valid replacement"):
        session.updateOptimizerFromHost(popart.ConstSGD(0.1))


def test_weights_take_two_steps_to_the_device() -> None:
    session, x, w, _ = _trainer(popart.ConstSGD(0.5))
    session.weightsFromHost()
    session.run(popart.PyStepIO({x: np.ones((2, 3), np.float32)}, session.initAnchorArrays()))
    session.writeWeights(popart.PyWeightsIO({w: np.full((3, 4), 7, np.float32)}))
    np.testing.assert_allclose(_read(session, w, (3, 4)), 0, atol=1e-6)
    session.weightsFromHost()
    np.testing.assert_allclose(_read(session, w, (3, 4)), 7)


def test_models_carry_weights_and_state(tmp_path: Path) -> None:
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True), "defaultMomentum": (0.5, True)})
    session, x, w, _ = _trainer(optimizer)
    session.weightsFromHost()
    step = popart.PyStepIO({x: np.ones((2, 3), np.float32)}, session.initAnchorArrays())
    session.run(step)
    path = str(tmp_path / "model.onnx")
    session.modelToHost(path)
    written = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}
    assert set(written) == {w, f"Accl___{w}"}
    np.testing.assert_allclose(onnx.numpy_helper.to_array(written[w]), 0, atol=1e-6)
    session.run(step)
    session.resetHostWeights(path)
    with pytest.raises(popart.popart_runtime_error, match="Must call weightsFromHost before run"):
        session.run(step)
    session.weightsFromHost()
    np.testing.assert_allclose(_read(session, w, (3, 4)), 0, atol=1e-6)


def test_step_io_wraps_around() -> None:
    model, x, w, y = _doubled()
    session = popart.InferenceSession(model, popart.DataFlow(1, [y]), _CPU)
    session.prepareDevice()
    step = popart.PyStepIO(
        {x: np.ones((2, 2, 3), np.float32)}, {y: np.zeros((2, 2, 4), np.float32)}
    )
    step.enableRuntimeAsserts(False)  # noqa: FBT003 - PopART's form
    for _ in range(3):
        session.run(step)
    assert step.outputs[y].all()
    del w


@pytest.mark.parametrize(
    ("prefetches", "has_it", "expected_calls"),
    [
        (False, False, "in read out written in read out written"),
        (True, True, "in read ahead out written read out written"),
        (True, False, "in read ahead out written in read out written"),
    ],
)
def test_callbacks_are_called_for_each_sample(
    expected_calls: str, *, prefetches: bool, has_it: bool
) -> None:
    model, x, _, y = _doubled()
    options = popart.SessionOptions()
    options.enablePrefetchDatastreams = prefetches
    session = popart.InferenceSession(model, popart.DataFlow(2, [y]), _CPU, userOptions=options)
    session.prepareDevice()
    calls: list[tuple[str, str]] = []
    samples = iter(np.arange(12, dtype=np.float32).reshape(2, 2, 3))
    results: list[_Array] = []

    def give(name: str, prefetch: bool) -> _Array | None:  # noqa: FBT001 - PopART's form
        calls.append(("ahead" if prefetch else "in", name))
        sample: _Array | None = None if prefetch and not has_it else next(samples)
        return sample

    def take(name: str) -> _Array:
        calls.append(("out", name))
        results.append(np.empty((2, 4), np.float32))
        return results[-1]

    session.run(
        popart.PyStepIOCallback(
            give,
            lambda name: calls.append(("read", name)),
            take,
            lambda name: calls.append(("written", name)),
        )
    )
    assert " ".join(call for call, _ in calls) == expected_calls
    assert {name for call, name in calls if call in {"in", "ahead", "read"}} == {x}
    expected = np.arange(12.0).reshape(2, 2, 3) @ np.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(np.stack(results), expected)


@pytest.mark.parametrize(
    ("inputs", "error", "text"),
    [
        ({"input": np.ones(7, np.float32)}, popart.popart_exception, "Expected 6, but received 7"),
        ({"other": np.ones(6, np.float32)}, popart.popart_runtime_error, "no Tensor named other"),
        ({"input": np.ones(6, np.float64)}, Exception, "float64|Type discrepancy"),
        ({"input": np.ones(6, np.int32)}, popart.popart_runtime_error, "Type discrepancy"),
        ({}, popart.popart_runtime_error, "No tensor input provided in PyStepIO's inputs"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    inputs: dict[str, _Array], error: type[Exception], text: str
) -> None:
    model, _, _, y = _doubled()
    session = popart.InferenceSession(model, popart.DataFlow(1, [y]), _CPU)
    session.prepareDevice()
    with pytest.raises(error, match=text):
        session.run(popart.PyStepIO(inputs, session.initAnchorArrays()))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda s: s.run(popart.PyStepIO({}, {})), "prepare"),
        (lambda s: s.getCycleCount(), "Must call run before getCycleCount"),
        (lambda s: s.getSummaryReport(), "must have been prepared"),
        (lambda s: s.getRNGState(), "enableLoadAndOffloadRNGState must be set to True"),
        (lambda s: s.writeWeights(popart.PyWeightsIO({})), "constantWeights"),
        (lambda s: s.resetHostWeights(b""), "constantWeights"),
        (lambda s: s.compileAndExport("./x"), "device type cpu cannot be saved"),
        (lambda s: s.loadExecutable("/nowhere"), "Could not open file /nowhere"),
        (lambda s: s.getInfo("nothing"), "nothing"),
    ],
)
def test_calls_that_come_too_early_are_refused(call: Any, text: str) -> None:
    model, _, _, y = _doubled()
    session = popart.InferenceSession(model, popart.DataFlow(1, [y]), _CPU)
    with pytest.raises(popart.popart_exception, match=text):
        call(session)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dataFlow": popart.DataFlow(1, {})}, "must specify an anchor"),
        (
            {"dataFlow": popart.DataFlow(1, ["nothing"])},
            "Anchor tensor `nothing' not in Ir Tensors",
        ),
        ({"deviceInfo": None}, "Must pass a valid deviceInfo"),
        ({"fnModel": b"nothing"}, "Failed to load a ModelProto"),
        ({"patterns": popart.Patterns(["SplitOp"])}, "must be enabled"),
    ],
)
def test_sessions_that_cannot_be_are_refused(change: dict[str, Any], text: str) -> None:
    model, _, _, y = _doubled()
    made: dict[str, Any] = {
        "fnModel": model,
        "dataFlow": popart.DataFlow(1, [y]),
        "deviceInfo": _CPU,
        **change,
    }
    with pytest.raises(popart.popart_exception, match=text):
        popart.InferenceSession(**made)


def test_anchors_whose_size_data_decides() -> None:
    """The reason is told, not that there is no such tensor."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    y = builder.aiOnnx.nonzero([x])
    with pytest.raises(popart.popart_exception, match=f"data decides the size of output '{y}'"):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(2, [y]), _CPU)


def test_programs_are_saved_and_loaded(tmp_path: Path) -> None:
    model, x, _, y = _doubled()
    device = popart.DeviceManager().createOfflineIPUDevice({})
    saved = popart.InferenceSession(model, popart.DataFlow(1, [y]), device)
    path = str(tmp_path / "new" / "program.popef")
    saved.compileAndExport(path)
    assert list((tmp_path / "new").iterdir()) == [Path(path)]
    with popart.DeviceManager().acquireAvailableDevice() as attached:
        session = popart.InferenceSession(model, popart.DataFlow(1, [y]), attached)
        session.loadExecutable(path)
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.ones((2, 3), np.float32)}, anchors))
    np.testing.assert_allclose(anchors[y], np.ones((2, 3)) @ np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("damage", [False, True])
def test_a_second_session_starts_from_the_cache(tmp_path: Path, *, damage: bool) -> None:
    options = popart.SessionOptions()
    options.enableEngineCaching, options.cachePath = True, str(tmp_path / "cache")
    model, x, _, y = _doubled()
    for number in range(2):
        with popart.DeviceManager().acquireAvailableDevice() as device:
            session = popart.InferenceSession(
                model, popart.DataFlow(1, [y]), device, userOptions=options
            )
            if number and not damage:
                with pytest.raises(popart.popart_runtime_error, match="no executatable"):
                    session.getInfo(y)
            session.prepareDevice()
            anchors = session.initAnchorArrays()
            session.run(popart.PyStepIO({x: np.ones((2, 3), np.float32)}, anchors))
        np.testing.assert_allclose(anchors[y], np.ones((2, 3)) @ np.arange(12.0).reshape(3, 4))
        (entry,) = (tmp_path / "cache" / "entries").glob("*/program.popx")
        if damage:
            entry.write_bytes(entry.read_bytes()[:-100])


def test_random_numbers_go_on_from_their_state() -> None:
    options = popart.SessionOptions()
    options.enableLoadAndOffloadRNGState = True
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64])
    y = builder.aiGraphcore.shapeddropout([x], [64], 0.5)
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        loss,
        popart.ConstSGD(0.1),
        device,
        userOptions=options,
    )
    session.prepareDevice()
    session.setRandomSeed(3)
    assert session.getRandomSeed() == 3
    state = session.getRNGState()
    assert len(state) == 2 * device.tilesPerIPU * device.numWorkerContexts * 4
    anchors = session.initAnchorArrays()
    step = popart.PyStepIO({x: np.ones(64, np.float32)}, anchors)
    session.run(step)
    first = anchors[y].copy()
    session.run(step)
    assert (first != anchors[y]).any()
    session.setRNGState(state)
    session.run(step)
    np.testing.assert_array_equal(first, anchors[y])
    with pytest.raises(popart.popart_runtime_error, match="received rngState of size 1; was"):
        session.setRNGState([1])


@pytest.mark.parametrize(
    ("checks", "files"),
    [("", []), ("FWD0:FINAL", ["final.dot", "fwd0.dot"]), ("MainLoops", ["main_loops.dot"])],
)
def test_graphs_are_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checks: str, files: list[str]
) -> None:
    monkeypatch.setenv("POPART_DOT_CHECKS", checks)
    options = popart.SessionOptions()
    options.logDir = str(tmp_path)
    model, _, _, y = _doubled()
    popart.InferenceSession(model, popart.DataFlow(1, [y]), _CPU, userOptions=options)
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_inference_passes_over_options_of_training() -> None:
    options = popart.SessionOptions()
    options.autoRecomputation = popart.RecomputationType.Standard
    options.mergeVarUpdate = popart.MergeVarUpdateType.All
    model, x, _, y = _doubled()
    flow = popart.DataFlow(1, [y])
    session = popart.InferenceSession(model, flow, _CPU, userOptions=options)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones((2, 3), np.float32)}, anchors))
    np.testing.assert_allclose(anchors[y][0], [12, 15, 18, 21])
