"""Native products of bytes are those of numpy, exactly, in every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, find_library
from popc_runtime.native.encoders.integer import ByteForm, byte_conv_record, byte_product_record
from popc_runtime.native.library import variants
from tests.native.bindings import native_results, numpy_results
from tests.native.byte_forms import run_in_form

QUANTIZED = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "QuantizeLinear",
        "Requantize",
    }
)
"""The instructions that are tested here."""

_TYPES = ("int8", "uint8")
_FORMS = list(ByteForm)
_MIDDLES = {"int8": 0, "uint8": 128}


def _bytes(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    random = np.random.default_rng(seed)
    return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def _check(
    library: Library,
    inputs: list[Array | None],
    out: Array,
    constant: Any = (),
    epilogue: dict[str, Any] | None = None,
) -> None:
    attributes = {"dtype": str(out.dtype), **(epilogue or {})}
    expected = numpy_results("MatMulInteger", inputs, [out], attributes, constant)[0]
    for form in _FORMS:
        for threads in (1, 2):
            result = run_in_form(
                byte_product_record, library, inputs, out, form, attributes, constant, threads
            )
            if result is not None:
                np.testing.assert_array_equal(result, expected, f"{form.name}, {threads} threads")


@pytest.mark.parametrize("variant", variants())
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_products(variant: str, data: st.DataObject) -> None:
    library = find_library(variant)
    assert library is not None
    m, k, n = (data.draw(st.integers(1, 150), label=name) for name in "mkn")
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2), label="batch")
    a_type, b_type = (data.draw(st.sampled_from(_TYPES)) for _ in range(2))
    a = _bytes(a_type, *(data.draw(st.sampled_from([size, 1])) for size in batch), m, k)
    shared = data.draw(st.booleans(), label="one right matrix")
    b = _bytes(b_type, *(() if shared else batch), k, n, seed=1)
    if data.draw(st.booleans(), label="as trained"):  # most pairs fit into 16 bits, and some do not
        b = (_MIDDLES[b_type] + (b.astype(np.int32) - _MIDDLES[b_type]) // 2).astype(b_type)
        b[..., ::7, :1] = np.iinfo(b_type).max
    if data.draw(st.booleans(), label="turned"):
        b = np.ascontiguousarray(np.swapaxes(b, -1, -2)).swapaxes(-1, -2)
    zeros = [
        data.draw(st.sampled_from([None, _bytes(a_type), _bytes(a_type, m, 1)])),
        data.draw(st.sampled_from([None, _bytes(b_type, 1), _bytes(b_type, n)])),
    ]
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n)
    out = np.empty(shape, data.draw(st.sampled_from(["int32", "float32"])))
    constant = data.draw(st.sampled_from([(), (1,), (1, 2, 3)]), label="constant")
    _check(library, [a, b, *zeros], out, constant)


_PAIRS = (
    *((127, 1), (64, 64), (127, 2), (65, 64), (127, 127), (127, -128)),
    *((-128, 0), (-127, -1), (-64, -64), (-128, -1), (-65, -64), (-128, -128)),
)
"""Two weights whose products with 255 fit into 16 bits, just, or do not."""


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("column", [None, 0, 15, 16])
def test_pairs_at_the_limit(variant: str, column: int | None) -> None:
    """Each pair in all columns of a group, or in a single one."""
    library = find_library(variant)
    assert library is not None
    b = np.zeros((4 * len(_PAIRS), 17), np.int8)
    for number, pair in enumerate(_PAIRS):
        at = 4 * number + (0 if number % 2 else 2)
        for row, weight in enumerate(pair):
            b[at + row, slice(None) if column is None else column] = weight
    for a in (np.full((21, len(b)), 255, np.uint8), _bytes("uint8", 21, len(b))):
        _check(library, [a, b, None, None], np.empty((21, 17), np.int32), (1,))


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("k", [1, 3, 4, 13, 16, 18, 63, 300])
def test_single_rows(variant: str, dtype: str, k: int) -> None:
    """Where they lie, and packed, as the zero points of columns need it."""
    library = find_library(variant)
    assert library is not None
    a, b = _bytes(dtype, 1, k), _bytes("int8", k, 70)
    for zeros in (None, _bytes("int8", 70)):
        _check(library, [a, b, None, zeros], np.empty((1, 70), np.int32), (1,))


@st.composite
def _epilogues(draw: st.DrawFn, dtype: str) -> dict[str, Any]:
    """What follows a product, by exact steps alone."""
    attributes: dict[str, Any] = {}
    scales = st.sampled_from([0.1, 0.25, 3.7, 1e-3, 1e30, 1e-30, float(np.float32(1 - 2**-24))])
    if draw(st.booleans(), label="rounding"):
        low = draw(st.integers(-255, 0))
        attributes |= {"rounding_low": float(low), "rounding_high": float(low + 255)}
        attributes["rounding_scale"] = draw(scales)
    if draw(st.booleans(), label="activation"):
        attributes |= {"activation": "LeakyRelu", "activation_alpha": 0.25}
    if dtype != "float32":
        attributes["quantize_scale"] = draw(scales)
        attributes["quantize_factor"] = draw(st.sampled_from([1.0, 0.3]))
        limits = np.iinfo(dtype)
        attributes["quantize_zero"] = draw(st.integers(int(limits.min), int(limits.max)))
    return attributes


@pytest.mark.parametrize("variant", variants())
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_epilogues(variant: str, data: st.DataObject) -> None:
    """Every step is rounded as in numpy, in this order."""
    library = find_library(variant)
    assert library is not None
    m, k, n = (data.draw(st.integers(1, 80), label=name) for name in "mkn")
    batch = data.draw(st.sampled_from([(), (2,)]), label="batch")
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from(["float32", *_TYPES]))
    out = np.empty((*batch, m, n), dtype)

    def floats(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32)

    inputs: list[Array | None] = [
        _bytes("uint8", *batch, m, k),
        _bytes("int8", k, n, seed=1),
        data.draw(st.sampled_from([None, _bytes("uint8"), _bytes("uint8", m, 1)])),
        data.draw(st.sampled_from([None, _bytes("int8", n)])),
        None,
        data.draw(st.sampled_from([None, floats() * 0.01, floats(n) * 0.001]), label="scale"),
        data.draw(st.sampled_from([None, floats(1), floats(n)]), label="bias"),
        data.draw(st.sampled_from([None, floats(*batch, m, n)]), label="residual"),
    ]
    _check(library, inputs, out, (1, 2, 3), data.draw(_epilogues(dtype)))


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("scale", [0.1, 0.3, 1 / 3, 1.9999999, 7.7e-3, 2.0**-70])
def test_quotients_are_those_of_divisions(variant: str, scale: float) -> None:
    """Also where they are halves, or as near to halves as floats come."""
    library = find_library(variant)
    assert library is not None
    halves = (np.arange(-300, 300) + 0.5).astype(np.float32) * np.float32(scale)
    ulps = [halves]
    for _ in range(4):
        ulps = [np.nextafter(ulps[0], np.float32(-np.inf)), *ulps]
        ulps.append(np.nextafter(ulps[-1], np.float32(np.inf)))
    ends = np.array([np.inf, -np.inf, 3e38, -3e38, 0, 1e-40], np.float32)
    residual = np.concatenate([*ulps, ends])[None]
    zeros = np.zeros((1, residual.size), np.uint8)
    inputs = [zeros[:, :1], zeros, None, None, None, None, None, residual]
    attributes = {"quantize_scale": float(np.float32(scale)), "quantize_zero": 127}
    _check(library, inputs, np.empty(residual.shape, np.uint8), (), attributes)


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("out_type", [*_TYPES, "float32"])
@pytest.mark.parametrize("scale", [0.1, 0.3, 1 / 3, 7.7e-3, 2.0**-58])
def test_scaled_sums_near_halves(variant: str, out_type: str, scale: float) -> None:
    """Quotients of scaled sums are guessed; those that might be rounded to either side are not."""
    library = find_library(variant)
    assert library is not None
    near = [np.float32(scale / 2**i) for i in range(12)]
    near += [np.nextafter(number, np.float32(side)) for number in near for side in (0, 1)]
    scales = np.array([*near, 0, -scale, np.inf, np.nan, 1e-40], np.float32)
    a = _bytes("uint8", 300, 8)
    b = np.zeros((8, scales.size), np.int8)
    b[0] = b[1] = 1
    name = "rounding" if out_type == "float32" else "quantize"
    attributes: dict[str, Any] = {f"{name}_scale": float(np.float32(scale))}
    if out_type == "float32":
        attributes |= {"rounding_low": -100.0, "rounding_high": 155.0}
    else:
        attributes |= {"quantize_zero": 3}
        scales = np.nan_to_num(scales, posinf=1e30)  # bytes of what is undefined are undefined
    for columns in (len(near), scales.size):
        factors: list[Array | None] = [a, b[:, :columns], np.asarray(np.uint8(200))]
        inputs = [*factors, None, None, scales[:columns]]
        _check(library, inputs, np.empty((300, columns), out_type), (1, 2, 5), attributes)


def _image(array: Array, data: st.DataObject) -> Array:
    """The same elements, plane by plane or pixel by pixel."""
    if not data.draw(st.booleans(), label="pixel by pixel"):
        return array
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def _windows(data: st.DataObject) -> tuple[list[int], list[int], dict[str, Any]]:
    """Sizes of an input and of the result, and the attributes of the windows."""
    rank = data.draw(st.integers(1, 3), label="axes")
    number = st.integers(1, 3)
    kernel, strides, dilations = (tuple(data.draw(number) for _ in range(rank)) for _ in "ksd")
    pads = tuple(data.draw(st.integers(0, 2)) for _ in range(2 * rank))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [extent + data.draw(st.integers(0, 9)) for extent in extents]
    padded = [size + sum(pads[axis::rank]) for axis, size in enumerate(sizes)]
    steps = zip(padded, extents, strides, strict=True)
    results = [(size - extent) // step + 1 for size, extent, step in steps]
    attributes = {"pads": pads, "strides": strides, "dilations": dilations}
    return sizes, results, {**attributes, "kernel_shape": kernel}


@pytest.mark.parametrize("variant", variants())
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_convolutions(variant: str, data: st.DataObject) -> None:
    library = find_library(variant)
    assert library is not None
    sizes, results, attributes = _windows(data)
    group = data.draw(st.sampled_from([1, 1, 2, 5, 40]), label="group")
    of_group, times = (data.draw(st.sampled_from([1, 1, 4, 7])) for _ in range(2))
    outs = group * times * data.draw(st.sampled_from([1, 1, 9]), label="more channels")
    batch = data.draw(st.integers(1, 2), label="batch")
    x_type, w_type = (data.draw(st.sampled_from(_TYPES)) for _ in range(2))
    dtype = data.draw(st.sampled_from(["int32", "float32", *_TYPES]))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    shapes = ((outs,), (outs,), (batch, outs, *results))
    scale, bias, residual = (
        data.draw(st.sampled_from([None, random.normal(size=shape).astype(np.float32)]))
        for shape in shapes
    )
    inputs: list[Array | None] = [
        _image(_bytes(x_type, batch, group * of_group, *sizes), data),
        _bytes(w_type, outs, of_group, *attributes["kernel_shape"], seed=1),
        data.draw(st.sampled_from([None, _bytes(x_type)])),
        data.draw(st.sampled_from([None, _bytes(w_type, outs, *[1] * (len(sizes) + 1))])),
        data.draw(st.sampled_from([None, random.integers(-999, 999, outs, np.int32)])),
    ]
    attributes |= {"dtype": dtype, "group": group}
    if dtype != "int32":
        inputs += [scale, bias, None if residual is None else _image(residual, data)]
        attributes |= data.draw(_epilogues(dtype))
    outputs = [_image(np.empty(shapes[2], dtype), data)]
    constant = data.draw(st.sampled_from([(), (1,), (2, 3), (1, 2, 3, 4)]), label="constant")
    expected = numpy_results("ConvInteger", inputs, outputs, attributes, constant)[0]
    for form in _FORMS:
        result = run_in_form(
            byte_conv_record, library, inputs, outputs[0], form, attributes, constant, 1 + form % 2
        )
        if result is not None:
            np.testing.assert_array_equal(result, expected, form.name)


@pytest.mark.parametrize("a_type", _TYPES)
@pytest.mark.parametrize("b_type", _TYPES)
def test_extremes_do_not_saturate(library: Library, a_type: str, b_type: str) -> None:
    for a_end in (np.iinfo(a_type).min, np.iinfo(a_type).max):
        for b_end in (np.iinfo(b_type).min, np.iinfo(b_type).max):
            a = np.full((3, 1027), a_end, a_type)
            b = np.full((1027, 35), b_end, b_type)
            _check(library, [a, b, None, None], np.empty((3, 35), np.int32))


@pytest.mark.parametrize("dtype", _TYPES)
def test_quantize(library: Library, dtype: str) -> None:
    ties = np.arange(-300, 300, dtype=np.float32) / 2
    special = np.array([np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, 1e-40], np.float32)
    x = np.concatenate([ties, special, ties * np.float32(0.1)])
    scale = np.array(0.5, np.float32)
    for zero in (None, np.array(3, dtype), np.array(np.iinfo(dtype).max, dtype)):
        for item in (x, x[::-2]):
            out = [np.empty(item.shape, dtype)]
            attributes = {"axis": 0, "block_size": 0, "dtype": dtype}
            inputs = [item, scale, zero]
            expected = numpy_results("QuantizeLinear", inputs, out, attributes, (1, 2))
            result = native_results(library, "QuantizeLinear", inputs, out, attributes, (1, 2))
            assert result is not None
            np.testing.assert_array_equal(result[0], expected[0])


@pytest.mark.parametrize("dtype", [*_TYPES, "int32"])
def test_dequantize(library: Library, dtype: str) -> None:
    x = _bytes(dtype, 5, 301)
    scale = np.array(0.37, np.float32)
    for zero in (None, np.array(np.iinfo(dtype).max, dtype)):
        for item in (x, x[::-2, ::3]):
            out = [np.empty(item.shape, np.float32)]
            attributes = {"axis": 0, "block_size": 0, "dtype": "float32"}
            inputs = [item, scale, zero]
            expected = numpy_results("DequantizeLinear", inputs, out, attributes, (1, 2))
            result = native_results(library, "DequantizeLinear", inputs, out, attributes, (1, 2))
            if result is None:
                assert (dtype, zero is None) == ("int32", False), "numpy subtracts integers"
                continue
            np.testing.assert_array_equal(result[0], expected[0])


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("source", ["int32", "float32"])
def test_requantize(library: Library, dtype: str, source: str) -> None:
    x = np.random.default_rng(0).integers(-(10**5), 10**5, (3, 4, 33)).astype(source)
    multiplier = np.array([[0.5], [1e-3], [0.01], [1e-4]], np.float32)
    outputs = [np.empty(x.shape, dtype)]
    for zero in (None, np.array(3, dtype), np.array(np.iinfo(dtype).max, dtype)):
        inputs = [x, multiplier, zero]
        expected = numpy_results("Requantize", inputs, outputs, {"dtype": dtype}, (1, 2))
        results = native_results(library, "Requantize", inputs, outputs, {"dtype": dtype}, (1, 2))
        assert results is not None
        np.testing.assert_array_equal(results[0], expected[0])
