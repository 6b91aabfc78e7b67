"""Time of single ops beside onnxruntime: convolutions, pools and matrix products of real models.

python -m benchmarks.kernels [REGULAR_EXPRESSION]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from benchmarks.timing import geometric_mean, seconds_of_turn
from popc.frontend import Bindings, import_model, load_model
from popc_runtime.device.blas import settings_of_numpy
from popc_runtime.format import Array
from popc_runtime.kernels import KERNELS, Binding, Call, RandomState, Scratch, prepare

_THREADS = 2
_ROUNDS = 5
_TURN = 0.02  # seconds


@dataclass(frozen=True)
class Case:
    """One op: its input, its constant operands and its attributes."""

    model: str
    op_type: str
    x: tuple[int, ...]
    constants: Sequence[tuple[int, ...]] = ()
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Model, op, shapes and attributes (by their initials)."""
        shapes = " ".join("x".join(map(str, shape)) for shape in (self.x, *self.constants[:1]))
        marks = " ".join(f"{k[0]}{v}" for k, v in self.attributes.items() if k != "kernel_shape")
        return f"{self.model:12} {self.op_type:17} {shapes} {marks}"


def conv(model: str, channels: int, size: Sequence[int], outputs: int, kernel: int, stride: Any = 1,
         group: int = 1, op_type: str = "Conv", pad: int | None = None) -> Case:  # fmt: skip
    """A convolution with "same" padding and a bias."""
    strides = (stride, stride) if isinstance(stride, int) else stride
    w = (outputs, channels // group, kernel, kernel)
    if op_type == "ConvTranspose":
        w = (channels, outputs // group, kernel, kernel)
    attributes = {"strides": strides, "group": group}
    attributes["pads"] = [kernel // 2 if pad is None else pad] * 4
    return Case(model, op_type, (1, channels, *size), (w, (outputs,)), attributes)


def depthwise(model: str, channels: int, size: Sequence[int], kernel: int, stride: Any = 1) -> Case:
    """A depthwise convolution."""
    return conv(model, channels, size, channels, kernel, stride, channels)


def pool(model: str, op_type: str, x: tuple[int, ...], kernel: int, stride: int, pad: int) -> Case:
    """A pool over a square window."""
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return Case(model, op_type, x, (), attributes)


CASES = [
    conv("lcnet", 3, (224, 224), 16, 3, 2),
    depthwise("lcnet", 16, (112, 112), 3),
    conv("lcnet", 16, (112, 112), 32, 1),
    depthwise("lcnet", 32, (112, 112), 3, 2),
    conv("lcnet", 32, (56, 56), 64, 1),
    depthwise("lcnet", 64, (56, 56), 3),
    conv("lcnet", 64, (56, 56), 64, 1),
    depthwise("lcnet", 64, (56, 56), 3, 2),
    conv("lcnet", 64, (28, 28), 128, 1),
    depthwise("lcnet", 128, (28, 28), 3),
    conv("lcnet", 128, (28, 28), 128, 1),
    depthwise("lcnet", 128, (28, 28), 3, 2),
    conv("lcnet", 128, (14, 14), 256, 1),
    depthwise("lcnet", 256, (14, 14), 5),
    conv("lcnet", 256, (14, 14), 256, 1),
    depthwise("lcnet", 256, (14, 14), 5, 2),
    conv("lcnet", 256, (1, 1), 64, 1),
    conv("lcnet", 256, (7, 7), 512, 1),
    depthwise("lcnet", 512, (7, 7), 5),
    conv("lcnet", 512, (7, 7), 512, 1),
    conv("lcnet", 512, (1, 1), 1280, 1),
    Case("lcnet", "GlobalAveragePool", (1, 512, 7, 7)),
    conv("det", 3, (640, 640), 16, 3, 2),
    depthwise("det", 16, (320, 320), 3),
    conv("det", 16, (320, 320), 32, 1),
    depthwise("det", 32, (320, 320), 3, 2),
    conv("det", 32, (160, 160), 48, 1),
    depthwise("det", 48, (160, 160), 3),
    conv("det", 48, (160, 160), 48, 1),
    depthwise("det", 48, (160, 160), 3, 2),
    conv("det", 48, (80, 80), 96, 1),
    depthwise("det", 96, (80, 80), 3),
    conv("det", 96, (80, 80), 96, 1),
    depthwise("det", 96, (80, 80), 3, 2),
    conv("det", 96, (40, 40), 192, 1),
    depthwise("det", 192, (40, 40), 5),
    conv("det", 192, (40, 40), 192, 1),
    depthwise("det", 192, (40, 40), 5, 2),
    conv("det", 192, (20, 20), 384, 1),
    depthwise("det", 384, (20, 20), 5),
    conv("det", 384, (20, 20), 384, 1),
    conv("det", 12, (160, 160), 96, 1),
    conv("det", 96, (160, 160), 24, 3),
    conv("det", 96, (80, 80), 24, 3),
    conv("det", 96, (40, 40), 24, 3),
    conv("det", 24, (160, 160), 24, 2, 2, op_type="ConvTranspose", pad=0),
    conv("det", 24, (320, 320), 1, 2, 2, op_type="ConvTranspose", pad=0),
    depthwise("rec", 16, (24, 160), 3),
    depthwise("rec", 32, (24, 160), 3),
    depthwise("rec", 64, (24, 160), 3, (2, 1)),
    conv("rec", 64, (24, 160), 64, 1),
    depthwise("rec", 128, (12, 160), 3),
    conv("rec", 128, (12, 160), 128, 1),
    depthwise("rec", 128, (12, 160), 3, (1, 2)),
    depthwise("rec", 240, (12, 80), 5),
    conv("rec", 240, (12, 80), 240, 1),
    depthwise("rec", 240, (12, 80), 5, (2, 1)),
    depthwise("rec", 480, (6, 80), 5),
    conv("rec", 480, (6, 80), 480, 1),
    depthwise("rec", 480, (3, 80), 5),
    Case("rec", "AveragePool", (1, 480, 3, 80), (), {"kernel_shape": (3, 2), "strides": (3, 2)}),
    Case("rec", "MatMul", (1, 40, 120), ((120, 360),)),
    Case("rec", "MatMul", (1, 40, 120), ((120, 6625),)),
    conv("resnet", 3, (224, 224), 64, 7, 2),
    pool("resnet", "MaxPool", (1, 64, 112, 112), 3, 2, 1),
    conv("resnet", 64, (56, 56), 64, 1),
    conv("resnet", 64, (56, 56), 64, 3),
    conv("resnet", 64, (56, 56), 256, 1),
    conv("resnet", 256, (56, 56), 64, 1),
    conv("resnet", 256, (56, 56), 512, 1, 2),
    conv("resnet", 128, (56, 56), 128, 3, 2),
    conv("resnet", 128, (28, 28), 128, 3),
    conv("resnet", 128, (28, 28), 512, 1),
    conv("resnet", 512, (28, 28), 128, 1),
    conv("resnet", 256, (14, 14), 256, 3),
    conv("resnet", 1024, (14, 14), 256, 1),
    conv("resnet", 512, (7, 7), 512, 3),
    conv("resnet", 2048, (7, 7), 512, 1),
    Case("resnet", "GlobalAveragePool", (1, 2048, 7, 7)),
    Case("resnet", "Gemm", (1, 2048), ((2048, 1000), (1000,))),
    depthwise("mobilenet", 144, (56, 56), 3),
    depthwise("mobilenet", 144, (56, 56), 3, 2),
    depthwise("mobilenet", 384, (14, 14), 3),
    depthwise("mobilenet", 960, (7, 7), 3),
    conv("resnext", 256, (28, 28), 256, 3, 1, 32),
    pool("googlenet", "MaxPool", (1, 192, 28, 28), 3, 1, 1),
    pool("googlenet", "AveragePool", (1, 768, 17, 17), 3, 1, 1),
    Case("conformer", "Conv", (1, 256, 1000), ((256, 1, 31),), {"pads": (15, 15), "group": 256}),
    Case("whisper", "Conv", (1, 80, 800), ((384, 80, 3), (384,)), {"pads": (1, 1)}),
    Case("whisper", "Conv", (1, 384, 800), ((384, 384, 3), (384,)), {"pads": (1, 1), "strides": (2,)}),  # noqa: E501
    Case("bert", "MatMul", (1, 128, 768), ((768, 768),)),
    Case("bert", "MatMul", (1, 128, 768), ((768, 3072),)),
    Case("bert", "MatMul", (1, 128, 3072), ((3072, 768),)),
    Case("mlp", "MatMul", (1, 768), ((768, 3072),)),
    Case("mlp", "MatMul", (4, 768), ((768, 3072),)),
]  # fmt: skip


def main(pattern: str = "") -> None:
    """Print a line for each case that matches, and the geometric mean of the ratios."""
    ratios = []
    for case in CASES:
        if re.search(pattern, case.name):
            ours, theirs = compare(case)
            ratios.append(ours / theirs)
            print(f"{case.name:66}{1e6 * ours:9.0f} us{1e6 * theirs:9.0f} us{ours / theirs:7.2f}")
    if ratios:
        print(f"{'geometric mean':66}{geometric_mean(ratios):31.2f}")


def compare(case: Case) -> tuple[float, float]:
    """Seconds per call of popc's numpy kernels and of onnxruntime; also checks the result."""
    model, x = _model(case)
    calls, out = _bound(model, x)
    session = _session(model)
    turns: list[Callable[[], object]] = [lambda: _run(calls), lambda: session.run(None, {"x": x})]
    _run(calls)
    (wanted,) = session.run(None, {"x": x})
    np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-3 * float(np.abs(wanted).max()))
    times: list[list[float]] = [[], []]
    with settings_of_numpy():
        for _ in range(_ROUNDS):
            for turn, seconds in zip(turns, times, strict=True):
                seconds.append(_time(turn))
    return min(times[0]), min(times[1])


def _run(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _time(turn: Callable[[], object]) -> float:
    """Seconds of a call that nothing disturbed: the first decile of those during one turn."""
    return float(np.quantile(seconds_of_turn(turn, _TURN), 0.1))


def _model(case: Case) -> tuple[onnx.ModelProto, Array]:
    random = np.random.default_rng(0)
    names = [f"c{i}" for i in range(len(case.constants))]
    constants = [
        numpy_helper.from_array(random.standard_normal(shape, np.float32), name)
        for name, shape in zip(names, case.constants, strict=True)
    ]
    node = helper.make_node(case.op_type, ["x", *names], ["y"], **case.attributes)
    graph = helper.make_graph(
        [node],
        "kernel",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, case.x)],
        [onnx.ValueInfoProto(name="y")],
        constants,
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, random.standard_normal(case.x, np.float32)


def _session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _bound(model: onnx.ModelProto, x: Array) -> tuple[tuple[Call, ...], Array]:
    """The calls of the one op of ``model`` on ``x``, and the array that they fill."""
    graph = import_model(load_model(model), Bindings(shapes={"x": x.shape})).graph
    (op,) = graph.topological()
    out = np.empty(op.outputs[0].type.shape, np.float32)
    binding = Binding(
        inputs=tuple(None if t is None else x if t.data is None else t.data for t in op.inputs),
        outputs=(out,),
        input_dtypes=tuple(None if t is None else t.type.dtype for t in op.inputs),
        output_dtypes=(op.outputs[0].type.dtype,),
        attributes=op.attributes,
        constant=tuple(t is not None and t.data is not None for t in op.inputs),
        scratch=Scratch(_THREADS),
        random=RandomState(),
    )
    return prepare(KERNELS[op.op_type], binding), out


if __name__ == "__main__":
    main(*sys.argv[1:2])
