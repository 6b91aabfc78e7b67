"""What PopART refuses though popc could compute it, and its words about that."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc import popart

Build = Callable[[Any, str], str]


def _constant(builder: Any, *values: float, dtype: type = np.float32) -> str:
    name: str = builder.aiOnnx.constant(np.array(values, dtype))
    return name


def _session(build: Build, **options: object) -> popart.InferenceSession:
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    result = build(builder, builder.addInputTensor("FLOAT", [1, 2, 4, 4], "x"))
    chosen = popart.SessionOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 4, "tilesPerIPU": 4})
    flow = popart.DataFlow(1, [result])
    return popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=chosen)


def _lstm(builder: Any, _: str) -> str:
    x = builder.addInputTensor("FLOAT", [2, 1, 3])
    weights = [builder.addInputTensor("FLOAT", [1, 8, size]) for size in (3, 2)]
    results = builder.aiOnnx.lstm([x, *weights], 3, clip=None)
    builder.addNodeAttribute("activations", ["Affine"] * 3, set(results))
    first: str = results[0]
    return first


def _called(graph: int | None) -> Build:
    def build(builder: Any, x: str) -> str:
        inner = builder.createSubgraphBuilder()
        y = inner.aiOnnx.abs([inner.addInputTensor(popart.TensorInfo("FLOAT", [1, 2, 4, 4]))])
        if graph is not None:
            inner.virtualGraph(y, graph)
        inner.addOutputTensor(y)
        with builder.virtualGraph(0), builder.pipelineStage(0):
            result: str = builder.aiGraphcore.call([x], 1, inner)[0]
        return result

    return build


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda b, x: b.aiOnnx.clip([x, b.addInputTensor("FLOAT", []), _constant(b, 1)], "C"),
            (r"^Op C\(ai.onnx.Clip:11\), inputs=\[x\] currently only supports constant min/max "
             r"parameters. Input 'min' \(input\) has no data.$"),
        ),
        (
            lambda b, x: b.aiGraphcore.reverse([x], [1, -1]),
            "invalid dimension '-1'. Only positive dimensions are supported",
        ),
        (lambda b, x: b.aiGraphcore.reverse([x], [1, 1]), "Dimension 1 appears multiple times"),
        (
            lambda b, x: b.aiGraphcore.reverse([x], [4]),
            "invalid dimension '4' for input tensor of rank 4",
        ),
        (
            lambda b, x: b.aiOnnx.averagepool([x], [2, 2], count_include_pad=1),
            "^`count_include_pad` is not supported",
        ),
        (
            lambda b, x: b.aiOnnx.maxpool([x], 1, [2, 2], dilations=[2, 2])[0],
            "Dilations of value other than 1 are currently not supported.",
        ),
        (
            lambda b, x: b.aiOnnx.randomnormallike([x], seed=1.0),
            "Optional seed attribute is not supported. Use session::setRandomSeed instead.$",
        ),
        (
            lambda b, x: b.aiOnnx.randomuniform([2], dtype=11),
            "The data type DOUBLE is not supported in Poplar",
        ),
        (
            lambda b, x: b.aiOnnx.randomuniformlike([b.addInputTensor("DOUBLE", [2])]),
            "Unsupported data type requested",
        ),
        (_lstm, "Affine of LSTM is not supported"),
        (
            lambda b, x: b.aiOnnx.resize(
                [
                    *(x, _constant(b), _constant(b, 1, 1, 2, 2)),
                    _constant(b, 1, 2, 8, 8, dtype=np.int64),
                ]
            ),
            "^Resize op has inputs for `sizes` and `scales`. Only one of these",
        ),
        (
            lambda b, x: _cut(b, b.aiOnnx.matmul([x, b.addInputTensor("FLOAT", [4, 6])]), 4),
            ("^Invalid serialisation factor 4 for output channels dim 6. output_channels dim "
             "should be a multiple of the serialisation factor"),
        ),
    ],
)  # fmt: skip
def test_nodes(build: Build, text: str) -> None:
    with pytest.raises(popart.popart_exception, match=text):
        _session(build)


def _cut(builder: Any, product: str, factor: int) -> str:
    builder.setSerializeMatMul({product}, "output_channels", factor)
    return product


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (None, r"Op Op\(.*\) in subgraph \".*\" does not have a virtual graph id."),
        (1, "The virtual graph id 1 for Op Op.* does not match the virtual graph id 0 of the call"),
    ],
)
def test_calls_in_pipelines(graph: int | None, text: str) -> None:
    manual = popart.VirtualGraphMode.Manual
    with pytest.raises(popart.popart_exception, match=text):
        _session(_called(graph), enablePipelining=True, virtualGraphMode=manual)


def test_an_op_on_an_ipu_that_there_is_not() -> None:
    def build(builder: Any, x: str) -> str:
        y = builder.aiOnnx.abs([x])
        builder.virtualGraph(y, 0)
        z: str = builder.aiOnnx.neg([y])
        builder.virtualGraph(z, 9)
        return z

    session = _session(build, virtualGraphMode=popart.VirtualGraphMode.Manual)
    text = re.escape("inputs=[Abs:0_c9], outputs=[Neg:0]) has been assigned to an invalid virtual ")
    with pytest.raises(popart.popart_exception, match=text + "graph 9. numIPUs = 4"):
        session.prepareDevice()


def test_fewer_ops_than_ipus() -> None:
    with pytest.raises(popart.popart_exception, match=r"^\[AutoVirtualGraph\] Couldn't find enoug"):
        _session(lambda b, x: str(b.aiOnnx.abs([x])), virtualGraphMode=popart.VirtualGraphMode.Auto)


def test_tensors_that_no_ipu_has_room_for(tmp_path: Path) -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [1000, 1000])])
    options = popart.SessionOptions()
    options.engineOptions = {
        "debug.allowOutOfMemory": "true",
        "autoReport.outputGraphProfile": "true",
        "autoReport.directory": str(tmp_path / "reports"),
    }
    with popart.DeviceManager().acquireAvailableDevice(1, 4) as device:
        flow = popart.DataFlow(1, [y])
        session = popart.InferenceSession(
            builder.getModelProto(), flow, device, userOptions=options
        )
        with pytest.raises(
            popart.OutOfMemoryException, match=r"^Out of memory: Cannot fit"
        ) as info:
            session.prepareDevice()
    assert "tile" in info.value.getSummaryReport()
    assert info.value.getProfilePath() == str(tmp_path / "reports" / "profile.json")
    assert (tmp_path / "reports" / "profile.json").is_file()


def _trained(
    places: list[tuple[int, int | None]], *, loss: bool = True, **options: Any
) -> popart.TrainingSession:
    """Products, each on a virtual graph and in a stage; the last one is the loss without one."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [2, 2], "x")
    for number, (chip, stage) in enumerate(places):
        w = builder.addInitializedInputTensor(np.ones((2, 2), np.float32))
        in_stage = nullcontext() if stage is None else builder.pipelineStage(stage)
        with builder.virtualGraph(chip), in_stage:
            y = builder.aiOnnx.matmul([y, w], f"product{number}")
            if number + 1 == len(places) and loss:
                y = builder.aiGraphcore.l1loss([y], 0.1)
    chosen = popart.SessionOptions()
    chosen.virtualGraphMode = popart.VirtualGraphMode.Manual
    for name, value in options.items():
        setattr(chosen, name, value)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    flow, optimizer = popart.DataFlow(2, []), popart.ConstSGD(0.1)
    model = builder.getModelProto()
    return popart.TrainingSession(model, flow, y, optimizer, device, userOptions=chosen)


_OFF = popart.VirtualGraphMode.Off


@pytest.mark.parametrize(
    ("places", "options", "text"),
    [
        ([(0, 0), (1, 1)], {"virtualGraphMode": _OFF}, "Pipelining requires the 'virtualGraphMode"),
        ([(0, 0), (1, None)], {}, "Only some ops have had their pipeline stage set."),
        ([(0, 0), (1, 0)], {}, r"Ops \[product0.* have the same pipeline stage 0, but different"),
        (
            [(0, 0), (1, 1)],
            {},
            r"For pipelining, depth \(batchesPerStep\) must equal at least .* stages \(3\)",
        ),
        ([(0, None), (1, None)], {}, r"For pipelining, depth \(batchesPerStep\)"),
        (
            [(0, 0), (1, 1)],
            {"enableGradientAccumulation": True, "accumulationFactor": 2},
            r"For pipelining, depth \(gradient accumulation factor\) must equal at least",
        ),
    ],
    ids=["no virtual graphs", "some stages", "a stage twice", "batches", "graphs", "accumulation"],
)
def test_stages_of_pipelines(
    places: list[tuple[int, int | None]], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(popart.popart_exception) as caught:
        _trained(places, **{"enablePipelining": True, **options})
    assert re.match(text, caught.value.args[0])


def test_options_about_loops_and_phases() -> None:
    phases = popart.ExecutionPhaseSettings()
    phases.phases = 2
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("> 1 execution phases requires", {"executionPhaseSettings": phases}),
        ("enableExplicitMainLoops requires useHostCopyOps", {"enableExplicitMainLoops": True}),
    )
    for text, options in cases:
        with pytest.raises(popart.popart_exception, match=text):
            _trained([(0, None)], **options)


def test_a_loss_of_several_elements() -> None:
    with pytest.raises(popart.popart_exception, match="Loss tensor, 'MatMul:0', must be"):
        _trained([(0, None)], loss=False)
