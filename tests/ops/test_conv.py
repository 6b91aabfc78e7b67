from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from popc.ir import TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_kernel, run_op

_RNG = np.random.default_rng(11)


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def _integers(
    attributes: Mapping[str, Attribute], name: str, default: tuple[int, ...]
) -> tuple[int, ...]:
    value = attributes.get(name, default)
    assert isinstance(value, tuple)
    return tuple(int(item) for item in value)


def _naive(x: Array, w: Array, attributes: Mapping[str, Attribute]) -> Array:
    """Convolution by its definition, in float64."""
    rank = x.ndim - 2
    strides = _integers(attributes, "strides", (1,) * rank)
    dilations = _integers(attributes, "dilations", (1,) * rank)
    pads = _integers(attributes, "pads", (0,) * 2 * rank)
    padding = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(x.astype(np.float64), padding)
    extent = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    windows: Array = sliding_window_view(padded, extent, axis=tuple(range(2, 2 + rank)))
    taps: tuple[Any, ...] = tuple(slice(None, None, step) for step in dilations)
    places: tuple[Any, ...] = tuple(slice(None, None, step) for step in strides)
    windows = windows[(slice(None), slice(None), *places, *taps)]
    group = int(attributes.get("group", 1))  # type: ignore[arg-type]
    per_group = x.shape[1] // group
    parts = [
        np.tensordot(
            windows[:, g * per_group : (g + 1) * per_group],
            part.astype(np.float64),
            axes=([1, *range(2 + rank, 2 + 2 * rank)], list(range(1, 2 + rank))),
        )
        for g, part in enumerate(np.split(w, group))
    ]
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)


def _check(x: Array, w: Array, **attributes: Attribute) -> None:
    """The kernel agrees with the definition, whether it may pack the weights or not."""
    wanted = _naive(x, w, attributes)
    types = [TensorType(DType.of(a.dtype), a.shape) for a in (x, w)]
    for constant in (True, False):
        (actual,) = run_kernel("Conv", [x, w], types, attributes, [False, constant])
        scale = float(np.abs(wanted).max(initial=1))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=2e-6 * scale)


# Channels, size, kernel, and attributes; each row takes another way through the kernels.
_CASES: list[tuple[int, int, tuple[int, ...], tuple[int, ...], dict[str, Attribute]]] = [
    (3, 8, (20, 20), (1, 1), {}),
    (16, 20, (300, 300), (1, 1), {}),
    (6, 5, (13, 14), (1, 1), {"strides": (2, 2)}),
    (64, 8, (30, 30), (3, 3), {"pads": (1, 1, 1, 1)}),
    (64, 8, (61, 63), (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    (64, 8, (17, 19), (3, 5), {"pads": (0, 3, 4, 1), "strides": (3, 2), "dilations": (2, 1)}),
    (40, 4, (200, 200), (3, 3), {"pads": (1, 1, 1, 1)}),
    (3, 16, (40, 41), (7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    (8, 4, (20, 30), (5, 1), {}),
    (8, 4, (20, 30), (5, 1), {"pads": (2, 0, 2, 0)}),
    (8, 4, (20, 30), (5, 1), {"dilations": (3, 1)}),
    (8, 6, (20, 30), (1, 5), {"pads": (0, 2, 0, 2)}),
    (12, 8, (15, 15), (3, 3), {"group": 4, "pads": (1, 1, 1, 1)}),
    (12, 8, (15, 15), (1, 1), {"group": 4}),
    (32, 32, (40, 40), (3, 3), {"group": 32, "pads": (1, 1, 1, 1)}),
    (8, 16, (40, 40), (3, 3), {"group": 8, "pads": (1, 1, 1, 1), "strides": (2, 2)}),
    (8, 8, (40, 33), (5, 5), {"group": 8, "pads": (2, 2, 2, 2), "dilations": (2, 2)}),
    (2, 2, (600, 610), (3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    (48, 48, (14, 14), (5, 5), {"group": 48, "pads": (2, 2, 2, 2)}),
    (48, 96, (7, 9), (5, 3), {"group": 48, "pads": (2, 1, 1, 0), "strides": (2, 1)}),
    (6, 6, (12, 16), (3, 3), {"group": 6, "pads": (2, 3, 2, 3), "dilations": (2, 3)}),
    (6, 6, (6, 40), (5, 5), {"group": 6, "pads": (2, 2, 2, 2)}),
    (6, 6, (10, 40), (3, 3), {"group": 6, "strides": (3, 3)}),
    (4, 4, (60, 60), (2, 3), {"group": 4, "dilations": (50, 1)}),
    (4, 6, (50,), (3,), {"pads": (1, 1)}),
    (4, 4, (50,), (5,), {"pads": (2, 2), "group": 4, "strides": (2,)}),
    (8, 8, (100,), (31,), {"pads": (15, 16), "group": 8}),
    (4, 8, (131,), (5,), {"pads": (0, 3), "group": 4, "strides": (2,), "dilations": (2,)}),
    (4, 4, (1, 90), (1, 3), {"group": 4}),
    (40, 4, (40_000,), (7,), {"pads": (3, 3), "strides": (2,)}),
    (3, 4, (6, 7, 8), (3, 3, 3), {"pads": (1, 1, 1, 1, 1, 1)}),
    (4, 4, (6, 7, 8), (3, 1, 2), {"pads": (1, 0, 1, 1, 0, 0), "strides": (2, 1, 2), "group": 2}),
    (4, 4, (5, 6, 7), (3, 3, 3), {"group": 4, "pads": (4, 1, 1, 4, 1, 1), "dilations": (2, 1, 1)}),
    (2, 3, (3, 4, 5, 6), (2, 2, 2, 2), {}),
    (2, 2, (4, 4), (3, 3), {"pads": (5, 5, 5, 5)}),
]


@pytest.mark.parametrize(("channels", "outputs", "size", "kernel", "attributes"), _CASES)
def test_conv_by_definition(
    channels: int,
    outputs: int,
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    attributes: dict[str, Attribute],
) -> None:
    x = _random(2 if np.prod(size) < 10_000 else 1, channels, *size)
    group = int(attributes.get("group", 1))  # type: ignore[arg-type]
    _check(x, _random(outputs, channels // group, *kernel), **attributes)


def test_negative_padding_crops() -> None:
    for group in (1, 4):
        x, w = _random(1, 4, 9, 10), _random(4, 4 // group, 3, 3)
        cropped, attributes = x[:, :, 1:, 2:-1], {"pads": (0, 0, 1, 0), "group": group}
        (actual,) = run_ir("Conv", [x, w], {"pads": (-1, -2, 1, -1), "group": group})
        np.testing.assert_allclose(actual, _naive(cropped, w, attributes), atol=1e-4)


@st.composite
def _convolutions(draw: st.DrawFn) -> tuple[Array, Array, dict[str, Attribute]]:
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int, count: int = rank) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    group, strides, dilations, pads = (
        draw(st.integers(1, 3)),
        each(1, 3),
        each(1, 2),
        each(0, 3, 2 * rank),
    )
    channels, outputs = group * draw(st.integers(1, 3)), group * draw(st.integers(1, 3))
    kernel = each(1, 4)
    sizes = tuple(
        (k - 1) * d + draw(st.integers(1, 6)) for k, d in zip(kernel, dilations, strict=True)
    )
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    x = rng.standard_normal((draw(st.integers(1, 2)), channels, *sizes))
    w = rng.standard_normal((outputs, channels // group, *kernel))
    attributes: dict[str, Attribute] = {"group": group, "pads": pads}
    attributes |= {"strides": strides, "dilations": dilations}
    return x.astype(np.float32), w.astype(np.float32), attributes


@settings(max_examples=80, deadline=None)
@given(_convolutions())
def test_any_conv(case: tuple[Array, Array, dict[str, Attribute]]) -> None:
    x, w, attributes = case
    _check(x, w, **attributes)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_auto_pad(auto_pad: str, stride: int) -> None:
    x, w = _random(1, 3, 10, 11), _random(4, 3, 4, 3)
    attributes = {"auto_pad": auto_pad, "strides": [stride, stride], "kernel_shape": [4, 3]}
    assert_matches_onnxruntime("Conv", [x, w, _random(4)], attributes, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 11, 22])
def test_opsets(opset: int) -> None:
    x, w = _random(1, 3, 6, 6), _random(2, 3, 3, 3)
    assert_matches_onnxruntime("Conv", [x, w], {"pads": [1, 1, 1, 1]}, opset=opset, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("group", [1, 4])
def test_float_widths(dtype: Any, group: int) -> None:
    x, w = _random(1, 4, 9, 20, dtype=dtype), _random(4, 4 // group, 3, 3, dtype=dtype)
    attributes: dict[str, Attribute] = {"group": group, "pads": (1, 1, 1, 1)}
    (actual,) = run_ir("Conv", [x, w], attributes)
    assert actual.dtype == dtype
    tolerance = 1e-2 if dtype == np.float16 else 1e-12
    np.testing.assert_allclose(actual, _naive(x, w, attributes), atol=tolerance)


def test_bfloat16() -> None:
    x, w = to_bfloat16(_random(1, 2, 5, 5)), to_bfloat16(_random(3, 2, 3, 3))
    types = [TensorType(DType.BFLOAT16, array.shape) for array in (x, w)]
    (actual,) = run_kernel("Conv", [x, w], types, {}, [False, True])
    wanted = _naive(from_bfloat16(x), from_bfloat16(w), {})
    np.testing.assert_allclose(from_bfloat16(actual), wanted, rtol=1e-2, atol=1e-2)


# Ways through the kernels that finish blocks in different places.
_FINISHED: list[tuple[int, int, tuple[int, int], dict[str, Attribute]]] = [
    (16, 12, (1, 1), {}),
    (16, 12, (3, 3), {"pads": (1, 1, 1, 1)}),
    (16, 16, (3, 3), {"pads": (1, 1, 1, 1), "group": 16}),
    (4, 6, (3, 1), {}),
]


@pytest.mark.parametrize(("channels", "outputs", "kernel", "attributes"), _FINISHED)
@pytest.mark.parametrize("size", [(12, 13), (260, 250)])
def test_bias_residual_activation(
    channels: int,
    outputs: int,
    kernel: tuple[int, int],
    attributes: dict[str, Attribute],
    size: tuple[int, int],
) -> None:
    group = int(attributes.get("group", 1))  # type: ignore[arg-type]
    x, w = _random(2, channels, *size), _random(outputs, channels // group, *kernel)
    plain, bias = _naive(x, w, attributes), _random(outputs)
    residual = _random(*plain.shape)
    extra: dict[str, Attribute] = {"activation": "LeakyRelu", "activation_alpha": 0.25}
    (actual,) = run_ir("Conv", [x, w, bias, residual], attributes | extra)
    total = plain + bias[:, None, None] + residual
    np.testing.assert_allclose(actual, np.where(total > 0, total, 0.25 * total), atol=2e-4)
    strided = np.ascontiguousarray(residual.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    clip: dict[str, Attribute] = {"activation": "Clip", "activation_min": -1.0}
    clip |= {"activation_max": 2.0}
    (actual,) = run_ir("Conv", [x, w, None, strided], attributes | clip)
    np.testing.assert_allclose(actual, np.clip(plain + residual, -1, 2), atol=2e-4)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (3, 1)])
@pytest.mark.parametrize("group", [1, 6])
def test_strided_operands(kernel: tuple[int, int], group: int) -> None:
    nhwc = np.ascontiguousarray(_random(2, 9, 40, 12)).transpose(0, 3, 1, 2)
    views = [
        nhwc[:, :6],
        nhwc[:, 1::2],
        _random(2, 6, 18, 80)[:, :, ::2, ::2],
        np.broadcast_to(_random(1, 6, 9, 1), (2, 6, 9, 40)),
    ]
    w = _random(*kernel, 6 // group, 6).transpose(3, 2, 0, 1)
    for x in views:
        _check(x, w, group=group, pads=(1, 0, 1, 0))
        _check(x, w, group=group)


def test_empty_batch() -> None:
    (actual,) = run_op("Conv", [_random(0, 3, 5, 5), _random(2, 3, 3, 3)], {})
    assert actual.shape == (0, 2, 3, 3)


def test_no_channels() -> None:
    (actual,) = run_ir("Conv", [_random(1, 0, 5, 5), _random(2, 0, 3, 3), _random(2)], {})
    assert actual.shape == (1, 2, 3, 3)


@pytest.mark.parametrize(
    ("x", "w", "attributes", "message"),
    [
        ((1, 3, 5, 5), (2, 4, 3, 3), {}, "3 channels"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"group": 2}, "do not split into 2 groups"),
        ((1, 3, 5, 5), (2, 3, 7, 3), {}, "fewer than the 7"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"strides": [1]}, "strides has 1 entries"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"strides": [0, 1]}, "must be positive"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"kernel_shape": [3, 2]}, "kernel_shape is [3, 2]"),
        ((1, 3, 5, 5), (2, 3, 3), {}, "but W is"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"auto_pad": "SAME"}, "unknown value 'SAME'"),
    ],
)
def test_wrong_groups_windows_and_pads_are_refused(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        run_op("Conv", [_random(*x), _random(*w)], attributes)
    assert message in str([caught.value.message, *caught.value.details])


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([(1, 3, 5, 5), (2, 3, 3, 3), (3,)], {}, "bias is [3]"),
        ([(1, 3, 5, 5), (2, 3, 3, 3), None, (1, 2, 3, 1)], {}, "the residual is"),
        ([(1, 3, 5, 5), (2, 3, 3, 3)], {"activation": "Loop"}, "is not an activation"),
    ],
)
def test_fused_operands_that_do_not_fit_are_refused(
    inputs: list[tuple[int, ...] | None], attributes: dict[str, Attribute], message: str
) -> None:
    with pytest.raises(ModelError, match=message.replace("[", r"\[")):
        run_ir("Conv", [None if shape is None else _random(*shape) for shape in inputs], attributes)
