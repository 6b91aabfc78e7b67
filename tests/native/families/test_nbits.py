"""Products with matrices of few bits a number, native against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array, DType
from popc_runtime.kernels import Binding
from popc_runtime.native import Library, NativeFailure, NativeProgram, Record, find_library
from popc_runtime.native.encoders.integer import ByteForm
from popc_runtime.native.encoders.nbits import few_bits_record
from popc_runtime.native.library import variants
from tests.native.bindings import (
    bound,
    encode,
    native_results,
    numpy_results,
    steady_results,
    viewed,
)

_OPCODE = "MatMulNBits"
_FORMS = (ByteForm.PORTABLE, ByteForm.PAIRS, ByteForm.VNNI)
_STORED = (1, 2, 3, 4)
_TOLERANCE = 2.0**-18  # of the largest result


def _operands(
    rows: int, n: int, k: int, bits: int, block: int, *, zero: str = "", seed: int = 0
) -> tuple[list[Array | None], dict[str, Any]]:
    """a, numbers, scales, zero points ("packed", "float" or none); no groups, no bias."""
    random = np.random.default_rng(seed)
    blocks = -(-k // block)
    inputs: list[Array | None] = [
        random.standard_normal((rows, k)).astype(np.float32),
        random.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8),
        random.uniform(0.01, 0.02, (n, blocks)).astype(np.float32),
        None,
        None,
        None,
    ]
    if zero == "packed":
        inputs[3] = random.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8)
    if zero == "float":
        inputs[3] = random.uniform(0, 1 << bits, (n, blocks)).astype(np.float32)
    return inputs, {"bits": bits, "block_size": block, "K": k}


def _compare(library: Library, inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    """By floats, and by bytes where blocks can be rounded to such."""
    _compare_one(library, inputs, attributes)
    if inputs[4] is None and attributes["block_size"].bit_count() == 1:
        _compare_one(library, inputs, {**attributes, "rounded": 1})


def _compare_one(library: Library, inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    a, packed = inputs[0], inputs[1]
    assert a is not None
    assert packed is not None
    outputs = [np.empty((*a.shape[:-1], len(packed)), np.float32)]
    expected = numpy_results(_OPCODE, inputs, outputs, attributes, _STORED)[0]
    (got,) = steady_results(library, _OPCODE, inputs, outputs, attributes, _STORED)
    assert np.abs(got - expected).max() <= _TOLERANCE * np.abs(expected).max()
    for form in _FORMS if attributes.get("rounded") else ():
        got = _in_form(library, form, inputs, outputs[0], attributes)
        assert np.abs(got - expected).max() <= _TOLERANCE * np.abs(expected).max(), form.name


def _in_form(
    library: Library,
    form: ByteForm,
    inputs: list[Array | None],
    out: Array,
    attributes: dict[str, Any],
) -> Array:
    """The product of bytes in a given form, or in the fastest one if this processor lacks it."""
    result = np.full_like(out, 77)
    binding = bound(inputs, [result], attributes, _STORED)
    try:
        program = NativeProgram(library, [_record(binding, form)], binding, 2)
    except NativeFailure:
        assert form is not ByteForm.PORTABLE, "it is there on all processors"
        program = NativeProgram(library, [_record(binding, ByteForm.FASTEST)], binding, 2)
    program.run()
    return result


def _record(binding: Binding, form: ByteForm) -> Record:
    record = few_bits_record(viewed(binding), form)
    assert record is not None
    return record


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_products(data: st.DataObject) -> None:
    library = find_library(data.draw(st.sampled_from(variants()), label="library"))
    if library is None:
        pytest.skip("there are no native kernels")
    rows = data.draw(st.sampled_from([1, 1, 2, 3, 6, 7, 30]), label="rows")
    n = data.draw(st.integers(1, 70), label="n")
    k = data.draw(st.integers(1, 150), label="k")
    bits = data.draw(st.sampled_from([2, 4, 8]), label="bits")
    block = data.draw(st.sampled_from([16, 32, 48, 64, 128]), label="block")
    zero = data.draw(st.sampled_from(["", "packed", "float"]), label="zero")
    inputs, attributes = _operands(rows, n, k, bits, block, zero=zero, seed=k)
    random = np.random.default_rng(n)
    if data.draw(st.booleans(), label="bias"):
        inputs[5] = random.standard_normal(n).astype(np.float32)
    if data.draw(st.booleans(), label="groups"):
        inputs[4] = random.integers(0, -(-k // block), k, dtype=np.int32)
    if data.draw(st.booleans(), label="apart"):
        assert inputs[0] is not None
        inputs[0] = np.kron(inputs[0], np.ones((2, 2), np.float32))[::2, ::2]
    _compare(library, inputs, attributes)


@pytest.mark.parametrize("zero", ["", "packed", "float"])
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 1000, 700), (4, 300, 1100), (300, 70, 513)])
def test_long_products(library: Library, rows: int, n: int, k: int, zero: str) -> None:
    _compare(library, *_operands(rows, n, k, 4, 32, zero=zero))


def test_many_dimensions(library: Library) -> None:
    inputs, attributes = _operands(6, 20, 40, 4, 16)
    assert inputs[0] is not None
    inputs[0] = inputs[0].reshape(2, 3, 40)
    _compare(library, inputs, attributes)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_what_is_no_number_stays_in_its_column(library: Library, rows: int) -> None:
    """A scale that is infinite, or no number, is that of a block of one row."""
    inputs, attributes = _operands(rows, 40, 90, 4, 16, zero="packed")
    assert inputs[2] is not None
    inputs[2][7, 5], inputs[2][23, 0] = np.nan, np.inf
    outputs = [np.empty((rows, 40), np.float32)]
    (got,) = steady_results(library, _OPCODE, inputs, outputs, attributes, _STORED)
    assert np.flatnonzero(~np.isfinite(got).all(axis=0)).tolist() == [7, 23]


def test_a_group_that_is_none(library: Library) -> None:
    inputs, attributes = _operands(2, 20, 40, 4, 16)
    outputs = [np.empty((2, 20), np.float32)]
    for outside in (-1, 3):
        inputs[4] = np.full(40, outside, np.int32)
        with pytest.raises(NativeFailure):
            native_results(library, _OPCODE, inputs, outputs, attributes, _STORED)
        with pytest.raises(IndexError, match="3 blocks"):
            numpy_results(_OPCODE, inputs, outputs, attributes, _STORED)


@pytest.mark.parametrize("constant", [_STORED, ()])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_halves(library: Library, dtype: DType, constant: tuple[int, ...]) -> None:
    """They are float32 until the end."""
    inputs, attributes = _operands(3, 33, 70, 4, 32)
    assert inputs[0] is not None
    assert inputs[2] is not None
    for index in (0, 2):
        wide = np.ascontiguousarray(inputs[index], np.float32)
        half = wide.astype(np.float16)
        inputs[index] = half if dtype is DType.FLOAT16 else _upper(wide)
    types = [dtype, DType.UINT8, dtype, None, None, None, dtype]
    outputs = [np.empty((3, 33), dtype.storage)]
    arguments = (inputs, outputs, attributes, constant)
    (expected,) = numpy_results(_OPCODE, *arguments, types)
    (got,) = steady_results(library, _OPCODE, *arguments, types)
    one, other = (_floats(array, dtype) for array in (got, expected))
    unit = 2.0**-10 if dtype is DType.FLOAT16 else 2.0**-7
    assert np.abs(one - other).max() <= unit * np.abs(other).max()


def _upper(array: Array) -> Array:
    return (array.view(np.uint32) >> 16).astype(np.uint16)


def _floats(array: Array, dtype: DType) -> Array:
    if dtype is DType.FLOAT16:
        return array.astype(np.float32)
    return (array.astype(np.uint32) << 16).view(np.float32)


def test_what_numpy_does(library: Library) -> None:
    """Zero points that are computed, numbers between words, the transposed product."""
    inputs, attributes = _operands(2, 20, 32, 4, 16, zero="packed")
    out = np.empty((2, 20), np.float32)
    assert encode(_OPCODE, bound(inputs, [out], attributes, _STORED), library.numbers)
    assert not encode(_OPCODE, bound(inputs, [out], attributes), library.numbers)
    turned = [np.ones((2, 20), np.float32), *inputs[1:]]
    back = bound(turned, [np.empty((2, 32), np.float32)], {**attributes, "transposed": 1}, _STORED)
    assert not encode(_OPCODE, back, library.numbers)
    memory = np.zeros(20 * 16 + 1, np.uint8)
    inputs[1] = memory[1:].reshape(20, 2, 8)
    assert not encode(_OPCODE, bound(inputs, [out], attributes, _STORED), library.numbers)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bytes_of_extremes(library: Library, bits: int) -> None:
    """The largest sums, ties, blocks of zeros, and numbers that have no reciprocal."""
    inputs, attributes = _operands(4, 20, 256, bits, 32)
    assert inputs[0] is not None
    assert inputs[1] is not None
    inputs[0][0], inputs[0][1, ::2], inputs[0][1, 1::2] = 127, 127, -127
    inputs[0][2] = np.tile(np.r_[127, np.arange(31) - 15.5], 8)
    inputs[0][3, :32], inputs[0][3, 32:64] = 0, 1e-42
    inputs[1][:10] = 255
    inputs[1][10:15] = 0
    _compare(library, inputs, attributes)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", _FORMS)
def test_bytes_of_what_is_no_number(library: Library, form: ByteForm, value: float) -> None:
    """Its whole row of the result is none, and no other."""
    inputs, attributes = _operands(5, 20, 100, 4, 16)
    assert inputs[0] is not None
    inputs[0][3, 70] = value
    out = np.empty((5, 20), np.float32)
    got = _in_form(library, form, inputs, out, {**attributes, "rounded": 1})
    assert np.isfinite(got).all(axis=1).tolist() == [True, True, True, False, True]
    assert not np.isfinite(got[3]).any()
