"""The native kernels of training give what numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, find_library
from tests.native.bindings import numpy_results
from tests.native.convolutions import convolution
from tests.native.families.test_optimizer import STEPS
from tests.native.gradients import GRADIENTS
from tests.native.test_kernels import _compare, _numbers


def _library() -> Library:
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    return library


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_gradients_of_weights_of_convolutions(data: st.DataObject) -> None:
    x, w, dy, attributes = convolution(data)
    _compare(_library(), "ConvWeightsGrad", [dy, x], [w], attributes, rtol=1e-4, atol=1e-2)


_MANY_PIXELS = [
    *((8, 8, 30, 16, 3), (2, 3, 28, 64, 5), (32, 32, 8, 32, 3), (9, 1, 8, 16, 3)),
    *((9, 16, 4, 16, 3), (3, 48, 17, 20, 3), (70, 32, 2, 5, 2), (1, 64, 40, 33, 4)),
]


@pytest.mark.parametrize("shape", _MANY_PIXELS)
def test_gradients_of_weights_from_many_pixels(
    library: Library, shape: tuple[int, int, int, int, int]
) -> None:
    batch, channels, size, filters, taps = shape
    x, w = _numbers(batch, channels, size, size), _numbers(filters, channels, taps, taps)
    before, after = taps // 2, (taps - 1) // 2
    pads = (before, before, after, after)
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": pads, "group": 1}
    dy = _numbers(batch, filters, size, size, seed=1)
    _compare(library, "ConvWeightsGrad", [dy, x], [w], attributes, rtol=1e-4, atol=1e-2)


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_transposed_convolutions(data: st.DataObject) -> None:
    x, w, dy, attributes = convolution(data)
    bias = _numbers(x.shape[1], seed=3) if data.draw(st.booleans(), label="bias") else None
    attributes["activation"] = data.draw(st.sampled_from(["", "Relu"]), label="activation")
    out = np.empty(x.shape, np.float32)
    _compare(_library(), "ConvTranspose", [dy, w, bias], [out], attributes, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize(
    ("dy", "taps", "strides"),
    [
        ((2, 70, 4, 4), (3, 3), (1, 1)),
        ((1, 40, 2, 3), (3, 3), (2, 2)),
        ((2, 33, 12, 12), (3, 3), (1, 1)),
        ((2, 64, 5, 4), (2, 4), (1, 3)),
        ((1, 48, 7), (5,), (2,)),
        ((1, 36, 2, 3, 2), (1, 3, 2), (2, 1, 1)),
    ],
)
def test_mirrored_weights_of_many_channels(
    library: Library,
    dy: tuple[int, ...],
    taps: tuple[int, ...],
    strides: tuple[int, ...],
    constant: tuple[int, ...],
) -> None:
    rank = len(taps)
    pads = tuple(tap // 2 for tap in taps) * 2
    pairs = zip(dy[2:], strides, taps, pads[:rank], strict=True)
    sizes = [(n - 1) * stride + tap - 2 * pad for n, stride, tap, pad in pairs]
    w, out = _numbers(dy[1], 37, *taps, seed=1), np.empty((dy[0], 37, *sizes), np.float32)
    attributes = {"strides": strides, "dilations": (1,) * rank, "pads": pads, "group": 1}
    attributes["activation"] = ""
    _compare(library, "ConvTranspose", [_numbers(*dy), w], [out], attributes, constant, 1e-4, 1e-3)


_POOLS: list[tuple[tuple[int, ...], ...]] = [
    ((17,), (3,), (2,), (1, 1), (1,)),
    ((16, 19), (3, 2), (2, 1), (1, 0, 1, 1), (1, 1)),
    ((16, 19), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((16, 36), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((4, 4), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((16, 19), (2, 2), (2, 3), (0, 0, 0, 0), (2, 1)),
    ((5, 6, 7), (2, 2, 3), (2, 1, 2), (0, 1, 1, 1, 0, 1), (1, 1, 1)),
]


@pytest.mark.parametrize("opcode", ["MaxPoolGrad", "AveragePoolGrad"])
@pytest.mark.parametrize(("size", "taps", "stride", "pads", "dilation"), _POOLS)
def test_gradients_of_pools(
    library: Library,
    opcode: str,
    size: tuple[int, ...],
    taps: tuple[int, ...],
    stride: tuple[int, ...],
    pads: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:
    rank = len(size)
    results = [
        (size[i] + pads[i] + pads[i + rank] - (taps[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i in range(rank)
    ]
    x, dy = np.rint(_numbers(2, 3, *size)), _numbers(2, 3, *results, seed=1)
    attributes: dict[str, Any] = {
        "kernel_shape": taps, "strides": stride, "pads": pads, "dilations": dilation
    }  # fmt: skip
    if opcode == "AveragePoolGrad":
        for more in ({"count_include_pad": 0}, {"count_include_pad": 1}, {"sum": 1}):
            _compare(library, opcode, [dy], [x], {**attributes, **more})
        return
    (y,) = numpy_results("MaxPool", [x], [dy], attributes)
    _compare(library, "MaxPool", [x], [y], attributes)
    _compare(library, opcode, [dy, x, y], [x], attributes)


SLOPES: list[tuple[str, dict[str, Any]]] = [
    ("CeluGrad", {"alpha": 1.5}),
    ("ClipGrad", {"min": -0.5, "max": 0.75}),
    ("ClipGrad", {"min": -0.5}),
    ("ClipGrad", {}),
    ("EluGrad", {"alpha": 1.5}),
    ("ErfGrad", {}),
    ("FakeQuantizeGrad", {"scale": 0.1, "low": -5.0, "high": 7.0}),
    ("GeluGrad", {}),
    ("GeluGrad", {"approximate": "tanh"}),
    ("HardSigmoidGrad", {"alpha": 0.3}),
    ("HardSwishGrad", {}),
    ("LeakyReluGrad", {"alpha": 0.1}),
    ("MishGrad", {}),
    ("ReluGrad", {}),
    ("SeluGrad", {}),
    ("ShrinkGrad", {"lambd": 0.4}),
    ("SigmoidGrad", {}),
    ("SoftplusGrad", {}),
    ("SoftsignGrad", {}),
    ("SwishGrad", {"alpha": 1.2}),
    ("TanhGrad", {}),
    ("ThresholdedReluGrad", {"alpha": 0.7}),
]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("opcode", "attributes"), SLOPES)
@np.errstate(all="ignore")
def test_slopes(library: Library, opcode: str, attributes: dict[str, Any], *, turned: bool) -> None:
    g, v = _numbers(19, 37), _numbers(19, 37, seed=1)
    v.flat[:8] = [0.0, -0.0, np.nan, 1e-40, 88.5, -88.5, 3e18, -3e18]
    if opcode in ("ReluGrad", "ClipGrad", "LeakyReluGrad", "HardSigmoidGrad", "HardSwishGrad"):
        v.flat[8:10] = [np.inf, -np.inf]
    operands = [np.asfortranarray(g), np.asfortranarray(v)] if turned else [g, v]
    _compare(library, opcode, operands, [g], attributes, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("more", [{}, {"ignore_index": 2}, {"ignore_index": -100}])
@pytest.mark.parametrize("shape", [(1, 1), (70, 10), (5, 7, 3, 2), (3, 1000)])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(
    library: Library,
    shape: tuple[int, ...],
    more: dict[str, int],
    reduction: str,
    *,
    weighted: bool,
) -> None:
    x, places = _numbers(*shape), (shape[0], *shape[2:])
    labels = np.random.default_rng(0).integers(0, shape[1], places, np.int32)
    if more.get("ignore_index") == -100:
        labels.flat[0] = -100
    weights = np.abs(_numbers(shape[1], seed=1)) if weighted else None
    loss = np.empty(places if reduction == "none" else (), np.float32)
    attributes: dict[str, Any] = {"reduction": reduction, **more}
    inputs = [x, labels.astype(np.int64), weights]
    wanted = {**attributes, "softmax": 1, "log_prob": 1}
    _compare(library, "SoftmaxCrossEntropyLoss", inputs, [loss, x, x], wanted, rtol=1e-5, atol=1e-5)
    softmax = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    grad = np.abs(_numbers(*loss.shape, seed=2)) if loss.shape else np.float32(0.7).reshape(())
    for result, logarithm in ((softmax, 0), (np.log(softmax), 1)):
        operands = [grad, result, labels, weights]
        more_attributes = {**attributes, "log_probability": logarithm}
        _compare(library, "SoftmaxCrossEntropyLossGrad", operands, [x], more_attributes,
                 rtol=1e-5, atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (70, 33), (4, 257), (900, 64), (2, 5000)])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("opcode", ["LayerNormalizationGrad", "RMSNormalizationGrad"])
def test_gradients_of_normalisation(
    library: Library, opcode: str, shape: tuple[int, int], *, known: bool
) -> None:
    dy, x, scale = _numbers(*shape), _numbers(*shape, seed=1) + 1, _numbers(shape[1], seed=2)
    inputs: list[Array | None] = [dy, x, scale]
    centred = opcode.startswith("L")
    if known and centred:
        mean = x.mean(1, keepdims=True)
        inputs += [mean, 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-3)]
    sums = [np.empty_like(scale) for _ in range(1 + centred)]
    _compare(library, opcode, inputs, [x, *sums], {"axis": 1, "epsilon": 1e-3},
             rtol=1e-3, atol=1e-3)  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gradients_of_gather(library: Library, axis: int) -> None:
    out, indices = np.empty((4, 5, 6), np.float32), np.array([[0, -1], [3, -4]], np.int64)
    shape = (*out.shape[:axis], 2, 2, *out.shape[axis + 1 :])
    attributes = {"axis": axis, "size": out.shape[axis]}
    _compare(library, "GatherGrad", [_numbers(*shape), indices], [out], attributes)


def test_cross_entropy_of_scores_with_classes_last(library: Library) -> None:
    x = np.moveaxis(_numbers(6, 5, 4, 9), -1, 1)
    labels = np.random.default_rng(0).integers(0, 9, (6, 5, 4))
    outputs = [np.empty((), np.float32), np.empty(x.shape, np.float32)]
    attributes = {"reduction": "mean", "softmax": 1}
    _compare(library, "SoftmaxCrossEntropyLoss", [x, labels, None], outputs, attributes,
             rtol=1e-5, atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (9, 70, 8, 8), (1, 2, 300, 7)])
def test_sums_of_channels(library: Library, shape: tuple[int, ...]) -> None:
    out = np.empty((1, shape[1], 1, 1), np.float32)
    attributes = {"axes": (0, 2, 3), "keepdims": 1}
    _compare(library, "ReduceSum", [_numbers(*shape)], [out], attributes, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("heads_last", [0, 1])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("batch", "kv_heads", "group", "rows", "keys", "depth", "width"),
    [
        (1, 1, 1, 1, 1, 1, 1),
        (3, 2, 2, 5, 7, 16, 9),
        (2, 4, 1, 10, 10, 16, 16),
        (1, 1, 2, 70, 2100, 33, 8),
    ],
)
def test_gradients_of_attention(
    library: Library,
    batch: int,
    kv_heads: int,
    group: int,
    rows: int,
    keys: int,
    depth: int,
    width: int,
    causal: int,
    heads_last: int,
    *,
    masked: bool,
) -> None:
    heads = kv_heads * group
    q = np.moveaxis(_numbers(batch, rows, heads, depth), 2, 1) / 9
    k = _numbers(batch, kv_heads, keys, depth, seed=1) / 9
    v = np.moveaxis(_numbers(batch, kv_heads, width, keys, seed=2), 2, 3)
    mask = None
    if masked and not causal:
        mask = _numbers(1, heads, rows, keys, seed=3)
        mask[..., -1] = -np.inf if keys > 1 else 0
    shape = (batch, rows, heads, width) if heads_last else (batch, heads, rows, width)
    attributes = {"scale": 0.3, "causal": causal, "heads_last": heads_last}
    inputs: list[Array | None] = [q, k, v, mask, None]
    (out,) = numpy_results("Attention", inputs, [np.empty(shape, np.float32)], attributes)
    inputs += [_numbers(*shape, seed=4), out]
    outputs = [np.empty(item.shape, np.float32) for item in (q, k, v)]
    _compare(library, "AttentionGrad", inputs, outputs, attributes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (9, 70, 8, 8), (1, 2, 300, 7), (40, 6)])
@pytest.mark.parametrize("training", [0, 1])
def test_batch_normalisation(library: Library, shape: tuple[int, ...], training: int) -> None:
    x, dy = _numbers(*shape) + 5, _numbers(*shape, seed=1)
    scale, bias = _numbers(shape[1], seed=2), _numbers(shape[1], seed=3)
    outputs = [x, scale, scale]
    _compare(library, "BatchNormalizationTraining", [x, scale, bias], outputs, {"epsilon": 1e-3},
             rtol=1e-4, atol=1e-4)  # fmt: skip
    axes = (0, *range(2, x.ndim))
    inputs = [dy, x, scale, x.mean(axes), x.var(axes)]
    attributes = {"epsilon": 1e-3, "training_mode": training}
    _compare(library, "BatchNormalizationGrad", inputs, outputs, attributes, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (1, 6, 1), (9, 12, 8, 8), (3, 6, 300, 7)])
@pytest.mark.parametrize("groups", [1, 3, 0])
def test_gradients_of_group_normalisation(
    library: Library, shape: tuple[int, ...], groups: int
) -> None:
    x, dy = _numbers(*shape) + 5, _numbers(*shape, seed=1)
    scale = _numbers(shape[1], seed=2)
    opcode = "GroupNormalizationGrad" if groups else "InstanceNormalizationGrad"
    attributes = {"epsilon": 1e-2} | ({"num_groups": groups} if groups else {})
    outputs = [x, scale, scale]
    _compare(library, opcode, [dy, x, scale], outputs, attributes, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (70, 33), (4, 257), (9, 1000)])
@pytest.mark.parametrize("opcode", ["SoftmaxGrad", "LogSoftmaxGrad"])
def test_gradients_of_softmax(library: Library, opcode: str, shape: tuple[int, int]) -> None:
    x, dy = _numbers(*shape), _numbers(*shape, seed=1)
    (y,) = numpy_results(opcode.removesuffix("Grad"), [x], [x], {"axis": 1})
    _compare(library, opcode, [dy, y], [x], {"axis": 1}, rtol=1e-4, atol=1e-5)


def test_every_gradient_is_tested_here() -> None:
    here = {
        *(opcode for opcode, _ in SLOPES),
        *(opcode for opcode, *_ in STEPS),
        *("AttentionGrad", "AveragePoolGrad", "BatchNormalizationGrad"),
        *("GroupNormalizationGrad", "InstanceNormalizationGrad"),
        *("BatchNormalizationTraining", "ConvTranspose", "ConvWeightsGrad", "GatherGrad"),
        *("LayerNormalizationGrad", "LogSoftmaxGrad", "MaxPoolGrad", "RMSNormalizationGrad"),
        *("SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad", "SoftmaxGrad"),
    }
    assert here == GRADIENTS


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("opcode", ["SoftmaxGrad", "LogSoftmaxGrad"])
def test_gradients_of_softmax_along_any_axis(library: Library, opcode: str, axis: int) -> None:
    x, dy = _numbers(5, 6, 7), _numbers(5, 6, 7, seed=1)
    (y,) = numpy_results(opcode.removesuffix("Grad"), [x], [x], {"axis": axis})
    _compare(library, opcode, [dy, y], [x], {"axis": axis}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "filters", "taps"),
    [(1, 64, 24, (4, 4)), (5, 7, 3, (2, 3)), (2, 16, 1, (1, 5)), (3, 9, 20, (1, 1))],
)
def test_transposed_convolutions_of_single_pixels(
    library: Library,
    batch: int,
    channels: int,
    filters: int,
    taps: tuple[int, int],
    constant: tuple[int, ...],
    *,
    bias: bool,
) -> None:
    x, w = _numbers(batch, channels, 1, 1), _numbers(channels, filters, *taps, seed=1)
    added = _numbers(filters, seed=2) if bias else None
    attributes = {"strides": (2, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1}
    attributes["activation"] = "Relu"
    out = np.empty((batch, filters, *taps), np.float32)
    _compare(library, "ConvTranspose", [x, w, added], [out], attributes, constant, 1e-4, 1e-4)
