"""Sessions that share a compiled model, the cache, and what PopART's other interfaces call."""

from __future__ import annotations

import cProfile
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popc.compiler
import popc.popart.program
from popc import popart

_POPC = Path(popc.compiler.__file__).parent
_X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def _model(*, loss: bool = False) -> tuple[bytes, str, str]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3, 4], "x")
    w = builder.addInitializedInputTensor(np.arange(8, dtype=np.float32).reshape(4, 2), "w")
    y = builder.aiOnnx.matmul([x, w])
    if loss:
        y = builder.aiGraphcore.identityloss([y])
    return builder.getModelProto(), x, y


def _inference(device: popart.DeviceInfo, **options: Any) -> popart.InferenceSession:
    settings = popart.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    model, _, y = _model()
    return popart.InferenceSession(model, popart.DataFlow(1, [y]), device, userOptions=settings)


def _result(session: popart.InferenceSession) -> Any:
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": _X}, anchors))
    (found,) = anchors.values()
    return found


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One more entry for each program that is compiled."""
    found: list[int] = []
    transform = popc.compiler.transform_program

    def counted(*args: Any) -> Any:
        found.append(1)
        return transform(*args)

    monkeypatch.setattr(popc.popart.program, "transform_program", counted)
    return found


def test_sessions_share_a_compiled_model(compilations: list[int]) -> None:
    manager = popart.DeviceManager()
    first = _inference(manager.createIpuModelDevice({}), constantWeights=False)
    ir = first.getIr()
    second = popart.InferenceSession.fromIr(ir, manager.createIpuModelDevice({}))
    assert len(compilations) == 1
    for session in (first, second):
        session.prepareDevice()
        session.weightsFromHost()
    np.testing.assert_array_equal(_result(first), _result(second))
    second.writeWeights(popart.PyWeightsIO({"w": np.zeros((4, 2), np.float32)}))
    second.weightsFromHost()
    assert not _result(second).any()
    assert _result(first).any()
    popart.InferenceSession.fromIr(ir, manager.createIpuModelDevice({"tilesPerIPU": 8}))
    assert len(compilations) == 2


def test_training_is_not_shared() -> None:
    model, _, loss = _model(loss=True)
    device = popart.DeviceManager().createCpuDevice()
    optimizer = popart.ConstSGD(0.1)
    training = popart.TrainingSession(model, popart.DataFlow(1, {}), loss, optimizer, device)
    with pytest.raises(popart.popart_exception, match="cannot be used for inference"):
        popart.InferenceSession.fromIr(training.getIr(), device)


def test_a_cached_program_is_not_compiled_again(
    tmp_path: Path, compilations: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    popart.getLogger("session").setLevel("INFO")
    caching = {"enableEngineCaching": True, "cachePath": str(tmp_path / "cache")}
    results: list[Any] = []
    for _ in range(3):
        with popart.DeviceManager().acquireAvailableDevice() as device:
            session = _inference(device, **caching)
            session.prepareDevice()
            results.append(_result(session))
    popart.getLogger("session").setLevel("WARN")
    assert len(compilations) == 1
    assert capsys.readouterr().err.count("Using the cached program") == 2
    (entry,) = (tmp_path / "cache" / "entries").glob("*/program.popx")
    entry.write_bytes(b"half a file")
    with popart.DeviceManager().acquireAvailableDevice() as device:
        _inference(device, **caching).prepareDevice()
    assert len(compilations) == 2
    assert "Compiling again" in capsys.readouterr().err
    np.testing.assert_array_equal(results[0], results[2])


def test_a_start_from_the_cache_hashes_the_model_and_compiles_nothing(tmp_path: Path) -> None:
    """What is called is counted, by the folders of popc."""

    def start() -> Counter[str]:
        calls: Counter[str] = Counter()
        with popart.DeviceManager().acquireAvailableDevice() as device:
            profile = cProfile.Profile()
            with profile:
                session = _inference(device, enableEngineCaching=True, cachePath=str(tmp_path))
                session.prepareDevice()
        for entry in profile.getstats():
            if not isinstance(entry.code, str):
                file = Path(entry.code.co_filename)
                folder = file.relative_to(_POPC).parts[0] if file.is_relative_to(_POPC) else ""
                calls.update({folder: entry.callcount, entry.code.co_name: entry.callcount})
        return calls

    cold, warm = start(), start()
    stages = ("transforms", "schedule", "memory", "lowering", "archive")
    assert min(cold[stage] for stage in stages) > 0
    assert not any(warm[stage] for stage in stages)
    looks = ("_hash_of", "check_structure")
    assert [[calls[name] for name in looks] for calls in (cold, warm)] == [[1, 1], [1, 0]]


def test_sessions_that_share_a_cache_at_the_same_time_compile_once(
    tmp_path: Path, compilations: list[int]
) -> None:
    """The others wait for the first, and none of them sees half a file."""

    def start(_: int) -> Any:
        with popart.DeviceManager().acquireAvailableDevice() as device:
            session = _inference(device, enableEngineCaching=True, cachePath=str(tmp_path))
            session.prepareDevice()
            return _result(session)

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(start, range(4))
    assert len(compilations) == 1
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_an_exported_program_is_that_of_the_hardware(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = popart.DeviceManager()
    path = str(tmp_path / "program.popef")
    _inference(manager.createOfflineIPUDevice({})).compileAndExport(path)
    with manager.acquireAvailableDevice() as device:
        session = _inference(device)
        session.loadExecutable(path)
        session.prepareDevice()
        assert "another model" not in capsys.readouterr().err
        session.saveVariables(str(tmp_path / "variables"))
        assert (tmp_path / "variables").stat().st_size > 0


def test_external_data_move_to_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3, 4], "x")
    w = builder.addInitializedInputTensor(np.ones((4, 2), np.float32), "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.matmul([x, w])])
    builder.saveInitializersExternally([w], "old.bin")
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {}),
        loss,
        popart.ConstSGD(0.5),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({x: _X}, {}))
    for old, new, text in (
        ("old.bin", "old.bin", "already exists"),
        ("none.bin", "new.bin", "does not exist"),
    ):
        with pytest.raises(popart.popart_runtime_error, match=text):
            session.updateExternallySavedTensorLocations(old, new)
    session.updateExternallySavedTensorLocations("old.bin", "new.bin")
    session.modelToHost("trained.onnx")
    assert np.all(np.fromfile("old.bin", np.float32) == 1)
    read = {w: np.zeros((4, 2), np.float32)}
    session.readWeights(popart.PyWeightsIO(read))
    np.testing.assert_array_equal(np.fromfile("new.bin", np.float32), read[w].reshape(-1))
    assert np.any(read[w] != 1)


def test_every_third_sample_of_a_pipeline() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    with builder.virtualGraph(0), builder.pipelineStage(0):
        y = builder.aiOnnx.relu([x])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        y = builder.aiOnnx.exp([y])
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = True
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(6, {y: popart.AnchorReturnType("EveryN", 3)}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    samples = np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)
    session.run(popart.PyStepIO({"x": samples}, anchors))
    np.testing.assert_allclose(anchors[y], np.exp(samples[2::3]), rtol=1e-6)


def test_problems_of_the_schedule_are_written(tmp_path: Path) -> None:
    device = popart.DeviceManager().createCpuDevice()
    for _ in range(2):
        _inference(device, serializedPoprithmsShiftGraphsDir=str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "poprithms_shift_graph_0.json",
        "poprithms_shift_graph_1.json",
    ]
    problem = json.loads((tmp_path / "poprithms_shift_graph_0.json").read_text())
    assert [op["address"] for op in problem["ops"]] == list(range(len(problem["ops"])))
    assert all(place < later for place, op in enumerate(problem["ops"]) for later in op["outs"])
    known = {alloc["address"] for alloc in problem["allocs"]}
    assert all(known.issuperset(op["allocs"]) for op in problem["ops"])
    with pytest.raises(popart.popart_exception, match="Failed to open file"):
        _inference(device, serializedPoprithmsShiftGraphsDir=str(tmp_path / "none"))


def test_what_popxl_asks_for() -> None:
    session = _inference(popart.DeviceManager().createCpuDevice(), constantWeights=False)
    session.prepareDevice()
    assert not session.areHostWeightsInSync()
    session.weightsFromHost()
    session.copyDeviceWeightsToHost()
    assert session.areHostWeightsInSync()
    session.markHostWeightsOutOfSync()
    assert not session.areHostWeightsInSync()
    session.markHostWeightsInSync()
    session.setEngineIsLoaded(False)
    session._setDeviceInfo(popart.DeviceManager().createCpuDevice())
    assert _result(session).any()
    assert session.getAllTensorIds() == session.getTensorIds()
    with pytest.raises(popart.popart_exception, match="There is no stream gr_w"):
        session.connectStreamToCallback("gr_w", print, 0)


def _summing(model: bytes | str, loss: str, option: str) -> popart.TrainingSession:
    """A session that adds up the gradients of two micro-batches, apart from the momentum."""
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    if option:
        setattr(options, f"disable{option}TensorStreams", True)
    separate = popart.SGDAccumulatorAndMomentum.Separate
    session = popart.TrainingSession(
        model,
        popart.DataFlow(1, []),
        loss,
        popart.SGD({"defaultMomentum": (0.5, True)}, accumulatorAndMomentum=separate),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session


@pytest.mark.parametrize(
    ("option", "kept"), [("", 3), ("GradAccumulation", 2), ("OptimizerState", 2)]
)
def test_sums_of_gradients_are_variables_that_rest_at_zero(
    tmp_path: Path, option: str, kept: int
) -> None:
    model, x, loss = _model(loss=True)
    first = _summing(model, loss, option)
    first.run(popart.PyStepIO({x: np.ones((2, 3, 4), np.float32)}, {}))
    path = str(tmp_path / "trained.onnx")
    first.modelToHost(path)
    assert len(onnx.load(path).graph.initializer) == kept
    second = _summing(path, loss, option)
    sums = np.ones((4, 2), np.float32)
    second.readWeights(popart.PyWeightsIO({"Accum___w": sums}))
    assert sums.any() == (option == "GradAccumulation")
    second.resetHostWeights(path, ignoreWeightsInModelWithoutCorrespondingHostWeight=True)
    if not option:
        with pytest.raises(popart.popart_exception, match="begins as 0 here"):
            second.writeWeights(popart.PyWeightsIO({"Accum___w": np.ones((4, 2), np.float32)}))


@pytest.mark.parametrize(
    ("strategy", "names"),
    [
        ("Post", []),
        ("Running", ["Counter____VGraph0_PStage2", "Counter____VGraph1_PStage1"]),
    ],
)
def test_counters_of_running_means_can_be_anchored_and_rest_at_zero(
    strategy: str, names: list[str]
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 4], "x")
    for number in (0, 1):
        w = builder.addInitializedInputTensor(np.eye(4, dtype=np.float32))
        with builder.virtualGraph(number), builder.pipelineStage(number):
            x = builder.aiOnnx.matmul([x, w])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        loss = builder.aiGraphcore.l1loss([x], 0.1)
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = options.enableGradientAccumulation = True
    options.accumulationFactor = 3
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    options.meanAccumulationAndReplicationReductionStrategy = popart.MeanReductionStrategy(
        popart.MeanReductionStrategy.__members__[strategy]
    )
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, {name: popart.AnchorReturnType("All") for name in names}),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    assert sorted(name for name in session.getAllTensorIds() if "Counter" in name) == names
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((2, 3, 2, 4), np.float32)}, anchors))
    for name in names:
        np.testing.assert_array_equal(anchors[name], [[1, 2, 3], [1, 2, 3]])
    rest = {name: np.ones((), np.float32) for name in names}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(rest))
    assert not any(rest.values())
