"""Gradients of convolutions: every way through the kernels, by definition.

`tests/autodiff/cases_conv.py` checks that they are the gradients of the forward ops.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.oracles import run_ir

_RNG: Final = np.random.default_rng(21)
_Attributes = dict[str, Attribute]


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def _sizes(
    size: tuple[int, ...], kernel: tuple[int, ...], attributes: _Attributes
) -> tuple[int, ...]:
    rank = len(size)
    strides, dilations, pads = _geometry(attributes, rank)
    return tuple(
        (n + pads[k] + pads[k + rank] - (taps - 1) * dilations[k] - 1) // strides[k] + 1
        for k, (n, taps) in enumerate(zip(size, kernel, strict=True))
    )


def _geometry(attributes: _Attributes, rank: int) -> tuple[Any, Any, Any]:
    return (
        attributes.get("strides", (1,) * rank),
        attributes.get("dilations", (1,) * rank),
        attributes.get("pads", (0,) * (2 * rank)),
    )


def _naive(dy: Array, x: Array, kernel: tuple[int, ...], attributes: _Attributes) -> Array:
    """The gradient of the weights, tap by tap, in float64."""
    rank = len(kernel)
    strides, dilations, pads = _geometry(attributes, rank)
    group = int(str(attributes.get("group", 1)))
    around = [(0, 0), (0, 0), *((pads[k], pads[k + rank]) for k in range(rank))]
    padded = np.pad(x.astype(np.float64), around)
    n, channels, *_ = x.shape
    grouped_dy = dy.astype(np.float64).reshape(n, group, -1, *dy.shape[2:])
    result = np.zeros((dy.shape[1], channels // group, *kernel))
    for tap in product(*map(range, kernel)):
        window: list[Any] = [
            slice(t * d, t * d + (out - 1) * s + 1, s)
            for t, d, s, out in zip(tap, dilations, strides, dy.shape[2:], strict=True)
        ]
        part = padded[(slice(None), slice(None), *window)]
        parts = part.reshape(n, group, channels // group, *part.shape[2:])
        axes = list(range(3, 3 + rank))
        for g in range(group):
            products = np.tensordot(
                grouped_dy[:, g], parts[:, g], ([0, *[a - 1 for a in axes]],) * 2
            )
            rows = slice(g * len(products), (g + 1) * len(products))
            at: tuple[Any, ...] = (rows, slice(None), *tap)
            result[at] = products
    return result


# Batch, channels, size, outputs, kernel, attributes; each row takes another way.
_CASES: Final[
    list[tuple[int, int, tuple[int, ...], int, tuple[int, ...], dict[str, Attribute]]]
] = [
    (2, 3, (20, 20), 4, (3, 3), {"pads": (1, 1, 1, 1)}),
    (4, 32, (30, 30), 48, (3, 3), {"pads": (1, 1, 1, 1)}),
    (9, 64, (7, 7), 130, (3, 3), {"pads": (1, 1, 1, 1)}),
    (5, 160, (6, 5), 64, (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    (3, 20, (33, 31), 24, (3, 5), {"pads": (1, 2, 0, 3), "strides": (2, 3), "dilations": (2, 1)}),
    (2, 24, (120, 110), 16, (3, 3), {"pads": (1, 1, 1, 1)}),
    (2, 3, (90, 100), 64, (7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    (33, 1, (20, 20), 8, (5, 5), {"pads": (2, 2, 2, 2)}),
    (4, 40, (25, 25), 30, (1, 1), {}),
    (20, 40, (6, 6), 30, (1, 1), {}),
    (2, 9, (30, 20), 12, (1, 1), {"strides": (2, 3)}),
    (3, 30, (40, 25), 20, (5, 1), {}),
    (2, 12, (20, 25), 8, (3, 3), {"group": 4, "pads": (1, 1, 1, 1)}),
    (2, 64, (40, 40), 64, (3, 3), {"group": 64, "pads": (1, 1, 1, 1)}),
    (3, 48, (14, 14), 96, (5, 5), {"group": 48, "pads": (2, 2, 2, 2), "strides": (2, 2)}),
    (40, 8, (3, 3), 8, (3, 3), {"group": 8, "pads": (1, 1, 1, 1)}),
    (1, 500, (20, 20), 500, (3, 3), {"group": 500}),
    (2, 6, (50,), 4, (3,), {"pads": (1, 1)}),
    (2, 24, (30_000,), 4, (7,), {"pads": (3, 3), "strides": (2,)}),
    (2, 4, (6, 7, 8), 6, (3, 3, 3), {"pads": (1, 1, 1, 1, 1, 1)}),
    (2, 4, (6, 7, 8), 4, (3, 1, 2), {"pads": (4, 0, 1, 1, 0, 0), "group": 2}),
    (2, 2, (4, 4), 3, (3, 3), {"pads": (5, 5, 5, 5)}),
    (2, 2, (9, 9), 3, (2, 2), {"strides": (5, 5)}),
]


@pytest.mark.parametrize(("batch", "channels", "size", "outputs", "kernel", "attributes"), _CASES)
def test_weights_by_definition(
    batch: int,
    channels: int,
    size: tuple[int, ...],
    outputs: int,
    kernel: tuple[int, ...],
    attributes: _Attributes,
) -> None:
    x, dy = (
        _random(batch, channels, *size),
        _random(batch, outputs, *_sizes(size, kernel, attributes)),
    )
    wanted = _naive(dy, x, kernel, attributes)
    (actual,) = run_ir("ConvWeightsGrad", [dy, x], {**attributes, "kernel_shape": kernel})
    assert actual.dtype == np.float32
    scale = float(np.sqrt(dy[:, 0].size))
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=4e-6 * scale)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_weights_in_other_types(dtype: Any) -> None:
    x, dy = _random(2, 6, 9, 8, dtype=dtype), _random(2, 4, 9, 8, dtype=dtype)
    attributes: _Attributes = {"pads": (1, 1, 1, 1)}
    (actual,) = run_ir("ConvWeightsGrad", [dy, x], {**attributes, "kernel_shape": (3, 3)})
    assert actual.dtype == dtype
    wanted = _naive(dy, x, (3, 3), attributes)
    tolerance = 1e-2 if dtype == np.float16 else 1e-12
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kernel", [(3, 3), (1, 1)])
def test_weights_from_strided_operands(kernel: tuple[int, int]) -> None:
    attributes: _Attributes = {"pads": tuple(taps // 2 for taps in kernel) * 2}
    x = _random(6, 5, 8, 10)[..., ::2].transpose(1, 0, 2, 3)[:, ::-1]
    transposed = _random(5, 4, 5, 8).swapaxes(2, 3)
    repeated = np.broadcast_to(_random(1, 4, 1, 1), (5, 4, 8, 5))
    for dy in (transposed, repeated):
        (actual,) = run_ir("ConvWeightsGrad", [dy, x], {**attributes, "kernel_shape": kernel})
        wanted = _naive(dy, x, kernel, attributes)
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", [1, 2, 4, 13, 18])
def test_threads_do_not_change_results(case: int) -> None:
    batch, channels, size, outputs, kernel, attributes = _CASES[case]
    dy, x = (
        _random(batch, outputs, *_sizes(size, kernel, attributes)),
        _random(batch, channels, *size),
    )
    results = [
        _run([dy, x], {**attributes, "kernel_shape": kernel}, threads) for threads in (1, 2, 3)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def _run(inputs: list[Array], attributes: _Attributes, threads: int) -> Array:
    types = [TensorType(DType.of(array.dtype), array.shape) for array in inputs]
    (type_,) = infer_types("ConvWeightsGrad", types, attributes)
    out = np.empty(type_.shape, np.float32)
    binding = Binding(
        inputs=tuple(inputs),
        outputs=(out,),
        input_dtypes=(DType.FLOAT32, DType.FLOAT32),
        output_dtypes=(DType.FLOAT32,),
        attributes=attributes,
        constant=(False, False),
        scratch=Scratch(threads),
        random=RandomState(),
    )
    for call in prepare(KERNELS["ConvWeightsGrad"], binding):
        call()
    return out


def test_weights_without_data() -> None:
    dy, x = np.zeros((0, 4, 3, 3), np.float32), np.zeros((0, 2, 5, 5), np.float32)
    (actual,) = run_ir("ConvWeightsGrad", [dy, x], {"kernel_shape": (3, 3)})
    np.testing.assert_array_equal(actual, np.zeros((4, 2, 3, 3)))


def test_weights_of_another_convolution() -> None:
    with pytest.raises(ModelError, match="but the result is"):
        run_ir(
            "ConvWeightsGrad", [_random(1, 2, 5, 5), _random(1, 2, 5, 5)], {"kernel_shape": (3, 3)}
        )


@pytest.mark.parametrize("mask", [True, False])
def test_deformable_convolution_without_offsets_is_convolution(*, mask: bool) -> None:
    x, w, dy = _random(2, 4, 7, 6), _random(6, 4, 3, 3), _random(2, 6, 7, 6)
    attributes: _Attributes = {"pads": (1, 1, 1, 1)}
    offset = np.zeros((2, 18, 7, 6), np.float32)
    inputs = [dy, x, w, offset, *([np.ones((2, 9, 7, 6), np.float32)] if mask else [])]
    data, weights, *_ = run_ir("DeformConvGrad", inputs, attributes)
    (wanted,) = run_ir("ConvTranspose", [dy, w], attributes)
    np.testing.assert_allclose(data, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weights, _naive(dy, x, (3, 3), attributes), rtol=1e-4, atol=1e-4)
