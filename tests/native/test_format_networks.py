"""Networks whose images lie pixel by pixel: every op that may write them does, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.format import ArchiveFile, decode_program
from popc_runtime.native import variants
from tests.support.oracles import run_onnxruntime

pytestmark = pytest.mark.skipif(not variants(), reason="there are no native kernels")
_UNARY = ("Relu", "Sigmoid", "HardSwish", "Tanh", "Abs", "Sqrt", "Softplus", "Elu", "Clip", "Erf")
_MODES: Final = ("linear", "cubic", "nearest")
_TOLERANCE = 2e-5  # sums of products in another order


class _Net:
    """A network of convolutions that grows node by node."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.random = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = shape

    def constant(self, *shape: int) -> str:
        name = f"c{len(self.weights)}"
        values = self.random.normal(size=shape).astype(np.float32) / 4
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def numbers(self, values: list[float], dtype: type) -> str:
        name = f"n{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def conv(
        self, x: str, inputs: int, outputs: int, size: int = 3, group: int = 1, stride: int = 1
    ) -> str:
        w, b = self.constant(outputs, inputs // group, size, size), self.constant(outputs)
        pads, strides = [size // 2] * 4, [stride] * 2
        return self.node("Conv", x, w, b, group=group, pads=pads, strides=strides)

    def check(self, folder: Path, *outputs: str) -> int:
        """Compare both engines with onnxruntime; how many images are no planes."""
        float32 = onnx.TensorProto.FLOAT
        x = helper.make_tensor_value_info("x", float32, self.shape)
        results = [helper.make_tensor_value_info(name, float32, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", [x], results, self.weights)
        opset = helper.make_opsetid("", 20)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
        feeds = {"x": self.random.normal(size=self.shape).astype(np.float32)}
        counts: list[int] = []
        runs = [run_onnxruntime(model, feeds)]
        for memory_format in ("channels_first", "channels_last"):
            options = {"memory_format": memory_format, "verify_ir": True}
            archive = popc.compile(model.SerializeToString(), options=options)
            path = archive.save(folder / f"{memory_format}.popx")
            counts.append(_images_by_pixel(path))
            for engine in ("numpy", "native"):
                loaded = popc_runtime.load(path, engine=engine, threads=1)
                results_of_run = loaded.run(feeds)
                runs.append([np.array(results_of_run[name]) for name in outputs])
        for run in runs[1:]:
            for got, want in zip(run, runs[0], strict=True):
                np.testing.assert_allclose(got, want, _TOLERANCE, _TOLERANCE * np.abs(want).max())
        return counts[1] - counts[0]


def _images_by_pixel(path: Path) -> int:
    """Slots of the program in which the channels of a pixel lie side by side."""
    with ArchiveFile.open(path) as archive:
        slots = decode_program(archive.read("program")).slots
    return sum(
        slot.strides is not None
        and len(slot.shape) == 4
        and slot.shape[1] >= 8
        and slot.strides[1] == slot.dtype.itemsize
        for slot in slots
    )


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_random_networks(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    batch, channels = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([8, 12, 16, 24]))
    side = data.draw(st.integers(3, 12))
    net = _Net((batch, 3, side, side + 2))
    pool = [net.conv("x", 3, channels)]
    for _ in range(data.draw(st.integers(2, 8))):
        x = pool[-1] if data.draw(st.booleans()) else data.draw(st.sampled_from(pool))
        pool.append(_grow(net, data, x, pool, channels))
    outputs = {pool[-1], data.draw(st.sampled_from(pool))}
    net.check(tmp_path_factory.mktemp("net"), *sorted(outputs))


def _grow(net: _Net, data: st.DataObject, x: str, pool: list[str], channels: int) -> str:
    kind = data.draw(st.sampled_from(["map", "binary", "pool", *_BLOCKS]))
    if kind == "map":
        return net.node(data.draw(st.sampled_from(["Relu", "Sigmoid", "HardSwish", "Abs"])), x)
    if kind == "binary":
        op_type = data.draw(st.sampled_from(["Add", "Mul", "Sub", "Max"]))
        return net.node(op_type, x, data.draw(st.sampled_from(pool)))
    if kind == "pool":
        op_type = data.draw(st.sampled_from(["MaxPool", "AveragePool"]))
        return net.node(op_type, x, kernel_shape=[3, 3], pads=[1] * 4)
    return _BLOCKS[kind](net, x, channels)


def _scale(net: _Net, x: str, channels: int) -> str:
    mean = net.node("GlobalAveragePool", x)
    return net.node("Mul", x, net.node("Sigmoid", net.conv(mean, channels, channels, 1)))


def _turn(net: _Net, x: str, channels: int) -> str:
    del channels
    turned = net.node("Relu", net.node("Transpose", x, perm=[0, 2, 3, 1]))
    return net.node("Transpose", turned, perm=[0, 3, 1, 2])


def _join(net: _Net, x: str, channels: int) -> str:
    half = net.conv(x, channels, channels // 2, 1)
    return net.node("Concat", half, net.node("Neg", half), axis=1)


def _pyramid(net: _Net, x: str, channels: int) -> str:
    """Smaller, larger again, and joined with what it was: the step of a U-Net."""
    batch, _, *sizes = net.shape
    small = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    wanted = net.numbers([batch, channels, *sizes], np.int64)
    large = net.node("Resize", small, "", "", wanted, mode=_MODES[len(net.nodes) % len(_MODES)])
    joined = [large, x] if len(net.nodes) % 2 else [x, large]
    return net.conv(
        net.node("Relu", net.node("Concat", *joined, axis=1)), 2 * channels, channels, 1
    )


def _shuffle(net: _Net, x: str, channels: int) -> str:
    batch, _, *sizes = net.shape
    apart = net.numbers([batch, 4, channels // 4, *sizes], np.int64)
    turned = net.node("Transpose", net.node("Reshape", x, apart), perm=[0, 2, 1, 3, 4])
    return net.node("Reshape", turned, net.numbers([batch, channels, *sizes], np.int64))


def _resize(net: _Net, x: str, channels: int) -> str:
    del channels
    larger, smaller = (net.numbers([1, 1, by, by], np.float32) for by in (2, 0.5))
    return net.node("Resize", net.node("Resize", x, "", larger), "", smaller, mode="linear")


_BLOCKS: Final[dict[str, Callable[[_Net, str, int], str]]] = {
    "dense": lambda net, x, channels: net.conv(x, channels, channels),
    "depthwise": lambda net, x, channels: net.conv(x, channels, channels, 3, channels),
    "grouped": lambda net, x, channels: net.conv(x, channels, channels, 1, 2),
    "join": _join,
    "pyramid": _pyramid,
    "resize": _resize,
    "scale": _scale,
    "shuffle": _shuffle,
    "turn": _turn,
}


@pytest.mark.parametrize("op_type", _UNARY)
@pytest.mark.parametrize("batch", [1, 3])
def test_maps(op_type: str, batch: int, tmp_path: Path) -> None:
    net = _Net((batch, 4, 40, 41))
    positive = net.node("Abs", net.conv("x", 4, 24, 1)) if op_type == "Sqrt" else ""
    y = net.node(op_type, positive or net.conv("x", 4, 24, 1))
    assert net.check(tmp_path, net.conv(y, 24, 16)) >= 1


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("group", [1, 4, 16])
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("side", [5, 40])  # narrow images are computed otherwise if depthwise
def test_convolutions(side: int, size: int, group: int, stride: int, tmp_path: Path) -> None:
    net = _Net((2, 4, side, side + 1))
    first = net.conv("x", 4, 16)
    second = net.node("Relu", net.conv(first, 16, 16, size, group, stride))
    third = net.conv(second, 16, 16, 1)
    residual = net.node("Add", net.conv(second, 16, 16, 1), third)
    assert net.check(tmp_path, net.conv(residual, 16, 16)) >= 1


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_pools(op_type: str, size: int, stride: int, tmp_path: Path) -> None:
    net = _Net((2, 4, 18, 19))
    pooled = net.node(
        op_type,
        net.conv("x", 4, 16),
        kernel_shape=[size] * 2,
        strides=[stride] * 2,
        pads=[size // 2] * 4,
    )
    assert net.check(tmp_path, net.conv(pooled, 16, 16, 1)) >= 2


_CHANNELS: Final = 16
# What may compute a part of a joined image: a name, and how it is made of another image.
_PARTS: Final[dict[str, Callable[[_Net, str], str]]] = {
    "map": lambda net, x: net.node("HardSwish", x),
    "chain": lambda net, x: net.node("Sigmoid", net.node("Mul", x, net.node("Neg", x))),
    "sum": lambda net, x: net.node("Add", x, net.node("Abs", x)),
    "prelu": lambda net, x: net.node("PRelu", x, net.constant(_CHANNELS, 1, 1)),
    "bias": lambda net, x: net.node("Sub", x, net.constant(_CHANNELS, 1, 1)),
    "1x1": lambda net, x: net.conv(x, _CHANNELS, _CHANNELS, 1),
    "3x3": lambda net, x: net.conv(x, _CHANNELS, _CHANNELS, 3),
    "5x5": lambda net, x: net.conv(x, _CHANNELS, _CHANNELS, 5),
    "grouped": lambda net, x: net.conv(x, _CHANNELS, _CHANNELS, 3, 2),
    "depthwise": lambda net, x: net.conv(x, _CHANNELS, _CHANNELS, 3, _CHANNELS),
    "residual": lambda net, x: net.node("Add", net.conv(x, _CHANNELS, _CHANNELS, 3), x),
    "maxima": lambda net, x: net.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4),
    "means": lambda net, x: net.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4),
    "normed": lambda net, x: net.node(
        "InstanceNormalization", x, net.constant(_CHANNELS), net.constant(_CHANNELS)
    ),
    "turned": lambda net, x: net.node(
        "Transpose",
        net.node("Softmax", net.node("Transpose", x, perm=[0, 2, 3, 1])),
        perm=[0, 3, 1, 2],
    ),
    "mirrored": lambda net, x: net.node(
        "Slice", x, *(net.numbers([n], np.int64) for n in (-1, -99, 3, -1))
    ),
    "rolled": lambda net, x: net.node("CumSum", x, net.numbers([3], np.int64)),
    "twice": lambda net, x: net.node("Concat", *[net.conv(x, _CHANNELS, 4, 1)] * 4, axis=1),
    "joined": lambda net, x: net.node(
        "Concat", net.conv(x, _CHANNELS, 8, 3), net.conv(x, _CHANNELS, 8, 1), axis=1
    ),
}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("part", _PARTS)
def test_parts_of_joined_images(part: str, batch: int, tmp_path: Path) -> None:
    """Read by a map, by a convolution, and as they are; the other part is read elsewhere too."""
    net = _Net((batch, 3, 9, 10))
    skip = net.conv("x", 3, _CHANNELS)
    own = _PARTS[part](net, net.node("Relu", net.conv(skip, _CHANNELS, _CHANNELS, 1)))
    joined = net.node("Concat", own, skip, axis=1)
    after = net.conv(net.node("Tanh", joined), 2 * _CHANNELS, 8, 1)
    net.check(tmp_path, after, net.conv(joined, 2 * _CHANNELS, 8), net.conv(skip, _CHANNELS, 8))


@pytest.mark.parametrize("channels", [4, 12])
@pytest.mark.parametrize(("batch", "sizes"), [(1, (4, 4)), (2, (6, 10)), (1, (1, 8))])
@pytest.mark.parametrize(
    "settings_of_resize",
    [
        {"mode": "nearest"},
        {
            "mode": "nearest",
            "nearest_mode": "floor",
            "coordinate_transformation_mode": "asymmetric",
        },
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "cubic"},
        {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
        {"mode": "linear", "antialias": 1},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_feature_pyramids(
    settings_of_resize: dict[str, Any],
    batch: int,
    sizes: tuple[int, int],
    channels: int,
    tmp_path: Path,
) -> None:
    """Each level is enlarged, and joined with the level above, before it, behind it, or both."""
    net = _Net((batch, 3, 4 * sizes[0], 4 * sizes[1]))
    levels = [net.conv("x", 3, channels)]
    for _ in range(2):
        pooled = net.node("MaxPool", levels[-1], kernel_shape=[2, 2], strides=[2, 2])
        levels.append(net.conv(pooled, channels, channels))
    by = {number: net.numbers([1, 1, number, number], np.float32) for number in (2, 4)}
    large = net.node("Resize", levels[2], "", by[4], **settings_of_resize)
    middle = net.node("Resize", levels[1], "", by[2], **settings_of_resize)
    joined = net.node("Relu", net.node("Concat", large, levels[0], middle, axis=1))
    small = net.node("Resize", levels[2], "", by[2], **settings_of_resize)
    other = net.node("Concat", levels[1], small, axis=1)
    net.check(tmp_path, joined, net.conv(other, 2 * channels, 8))
