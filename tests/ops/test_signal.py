from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_RNG = np.random.default_rng(5)


def _normal(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def _complex(array: Array) -> Array:
    if array.shape[-1] == 1:
        return array[..., 0].astype(np.complex128)
    return np.asarray(array[..., 0] + 1j * array[..., 1].astype(np.float64))


def _pair(values: Array) -> Array:
    return np.stack([values.real, values.imag], axis=-1)


def _definition(x: Array, length: int, axis: int, *, inverse: bool) -> Array:
    """The transform by its matrix, straight from the standard's formula."""
    signal = np.moveaxis(_complex(x), axis, -1)[..., :length]
    n = signal.shape[-1]
    angle = 2j * np.pi * np.outer(np.arange(n), np.arange(length)) / length
    result = signal @ (np.exp(angle) / length if inverse else np.exp(-angle))
    return np.moveaxis(result, -1, axis)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    width=st.sampled_from([1, 2]),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_dft_is_its_definition(shape: list[int], width: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    length = data.draw(st.integers(1, 9))
    inverse = data.draw(st.booleans())
    onesided = data.draw(st.booleans()) and not inverse
    x = _normal(*shape, width)
    attributes = {
        "axis": axis,
        "dft_length": length,
        "inverse": int(inverse),
        "onesided": int(onesided),
    }
    (y,) = run_ir("DFT", [x], attributes)
    wanted = _definition(x, length, axis, inverse=inverse)
    if onesided:
        wanted = np.take(wanted, range(length // 2 + 1), axis=axis)
    np.testing.assert_allclose(y, _pair(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [6, 7])
@pytest.mark.parametrize("opset", [17, 20])
def test_one_sided_inverse_undoes_the_one_sided_transform(length: int, opset: int) -> None:
    x = _normal(2, length, 3, 1)
    axis: list[Array | None] = [np.array(1)] if opset == 20 else []
    attributes = {"onesided": 1} | ({"axis": 1} if opset == 17 else {})
    (y,) = run_op("DFT", [x, None, *axis], attributes, opset=opset, constants={2})
    assert y.shape == (2, length // 2 + 1, 3, 2)
    inputs = [y, np.array(length), *axis]
    attributes["inverse"] = 1
    (back,) = run_op("DFT", inputs, attributes, opset=opset, constants={1, 2})
    np.testing.assert_allclose(back, x, atol=1e-5)


def test_dft_20_transforms_the_last_axis_by_default() -> None:
    x = _normal(3, 4, 5, 1)
    (y,) = run_op("DFT", [x], opset=20)
    np.testing.assert_allclose(y, _pair(np.fft.fft(x[..., 0], axis=2)), rtol=1e-4, atol=1e-4)


def test_dft_17_transforms_axis_1_by_default() -> None:
    x = _normal(3, 4, 5, 2)
    (y,) = run_op("DFT", [x], opset=17)
    np.testing.assert_allclose(y, _pair(np.fft.fft(_complex(x), axis=1)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("width", [1, 2])
def test_precision(dtype: Any, width: int) -> None:
    x = _normal(2, 8, width, dtype=dtype)
    (y,) = run_op("DFT", [x], opset=20)
    assert y.dtype == dtype
    exact = _definition(x.astype(np.float64), 8, 1, inverse=False)
    np.testing.assert_allclose(y, _pair(exact), rtol=0, atol=1e-12 if dtype == np.float64 else 1e-2)


@pytest.mark.parametrize("width", [1, 2])
def test_strides(width: int) -> None:
    x = _normal(3, 2 * width, 8).transpose(2, 0, 1)[..., ::2]
    attributes = {"axis": 0, "dft_length": 8, "inverse": 0, "onesided": 0}
    (y,) = run_ir("DFT", [x], attributes)
    (wanted,) = run_ir("DFT", [x.copy()], attributes)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("shape", "inputs", "attributes", "message"),
    [
        ((2, 8, 3), [], {}, "must be 1 .real. or 2"),
        ((2, 8, 1), [None, np.array(2)], {}, "does not hold samples"),
        ((2, 8, 1), [None, np.array(-4)], {}, "axis -4 is out of range"),
        ((2, 8, 1), [np.array(0)], {}, "length 0 must be positive"),
        ((2, 8, 1), [], {"inverse": 1, "onesided": 1}, "needs complex input"),
        ((0, 8, 1), [], {}, None),
        ((2, 0, 1), [np.array(3)], {}, "nothing to transform"),
    ],
)
def test_dft_refuses_wrong_axes_and_lengths(
    shape: tuple[int, ...], inputs: list[Array | None], attributes: Any, message: str | None
) -> None:
    operands = [_normal(*shape), *inputs]
    if message is None:
        assert run_op("DFT", operands, attributes, opset=20)[0].shape == (0, 8, 2)
        return
    with pytest.raises(ModelError, match=message):
        run_op("DFT", operands, attributes, opset=20, constants={1, 2})


def test_length_must_be_known() -> None:
    with pytest.raises(DataDependentShapeError, match="transform length"):
        run_op("DFT", [_normal(2, 8, 1), np.array(4)], opset=20)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("given", ["window", "length", "both"])
def test_stft(onesided: int, step: int, given: str) -> None:
    window = _normal(6) if given != "length" else None
    length = np.array(6) if given != "window" else None
    assert_matches_onnxruntime(
        "STFT",
        [_normal(2, 20, 1), np.array(step), window, length],
        {"onesided": onesided},
        opset=17,
        constants={1, 3},
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("shape", [(2, 20), (3, 2), (2, 1)])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft_of_signals_without_a_dimension_for_parts(
    shape: tuple[int, ...], onesided: int
) -> None:
    inputs = [_normal(*shape), np.array(1), _normal(min(shape[1], 6))]
    assert_matches_onnxruntime(
        "STFT", inputs, {"onesided": onesided}, opset=17, constants={1}, rtol=1e-4, atol=1e-4
    )


def test_stft_of_a_complex_signal() -> None:
    x, window = _normal(2, 20, 2), _normal(5)
    (y,) = run_op("STFT", [x, np.array(4), window], {"onesided": 0}, constants={1})
    frames = np.stack([_complex(x)[:, at : at + 5] for at in range(0, 16, 4)], axis=1)
    np.testing.assert_allclose(y, _pair(np.fft.fft(frames * window)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_stft_precision(dtype: Any) -> None:
    x, window = _normal(1, 12, 1, dtype=dtype), _normal(4, dtype=dtype)
    (y,) = run_op("STFT", [x, np.array(4), window], constants={1})
    wanted = _pair(np.fft.rfft(x[0, :, 0].reshape(3, 4).astype(np.float64) * window))
    assert y.dtype == dtype
    np.testing.assert_allclose(y[0], wanted, rtol=0, atol=1e-12 if dtype == np.float64 else 1e-2)


@pytest.mark.parametrize(
    ("shape", "step", "window", "length", "message"),
    [
        ((2, 20, 1), 0, 6, None, "every 0 do not fit"),
        ((2, 5, 1), 1, 6, None, "frames of 6 samples"),
        ((2, 20, 1), 1, 6, 5, "must have the frame length 5"),
        ((2, 20, 2), 1, 6, None, "needs a real signal"),
        ((20, 1), 1, 6, None, "frames of 6 samples"),
        ((20,), 1, 6, None, "last dimension"),
    ],
)
def test_stft_refuses_wrong_frames_and_windows(
    shape: tuple[int, ...], step: int, window: int, length: int | None, message: str
) -> None:
    inputs = [
        _normal(*shape),
        np.array(step),
        _normal(window),
        None if length is None else np.array(length),
    ]
    with pytest.raises(ModelError, match=message):
        run_op("STFT", inputs, constants={1, 3})


@pytest.mark.parametrize("bins", [8, 40])
@pytest.mark.parametrize("dtype", [1, 11])
def test_mel_weight_matrix(bins: int, dtype: int) -> None:
    inputs = [np.array(v) for v in (bins, 64, 8192)] + [
        np.array(v, np.float32) for v in (10.0, 4000.0)
    ]
    assert_matches_onnxruntime(
        "MelWeightMatrix",
        inputs,
        {"output_datatype": dtype},
        opset=17,
        constants={0, 1},
        rtol=1e-3,
        atol=1e-3,
    )


def test_mel_bins_must_be_known() -> None:
    inputs = [np.array(v) for v in (8, 64, 8192)] + [np.array(v, np.float32) for v in (0, 4000)]
    with pytest.raises(DataDependentShapeError, match="number of mel bins"):
        run_op("MelWeightMatrix", inputs, opset=17)
