"""Products with matrices of which each row chooses one, native against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure, find_library
from popc_runtime.native.library import variants
from tests.native.bindings import native_results, numpy_results, steady_results

_TOLERANCE = 2.0**-18  # of the largest result
_STORED = (2, 3, 4)


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _choice(rows: int, experts: int, seed: int, kind: Any = np.int64) -> Array:
    """Few experts are chosen by many."""
    drawn = np.random.default_rng(seed).exponential(1.0, rows).astype(kind)
    chosen: Array = np.minimum(drawn, experts - 1)
    return chosen


def _compare(
    library: Library,
    opcode: str,
    inputs: list[Array | None],
    width: int,
    attributes: dict[str, Any],
    constant: tuple[int, ...],
) -> None:
    x = inputs[0]
    assert x is not None
    outputs = [np.empty((len(x), width), np.float32)]
    (expected,) = numpy_results(opcode, inputs, outputs, attributes, constant)
    (got,) = steady_results(library, opcode, inputs, outputs, attributes, constant)
    assert np.abs(got - expected).max() <= _TOLERANCE * np.abs(expected).max()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_floats(data: st.DataObject) -> None:
    library = find_library(data.draw(st.sampled_from(variants()), label="library"))
    if library is None:
        pytest.skip("there are no native kernels")
    rows, experts = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 9))
    width, depth = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 90))
    kind = data.draw(st.sampled_from([np.int32, np.int64]))
    x, weights = _numbers(rows, depth), _numbers(experts, width, depth, seed=1)
    if data.draw(st.booleans(), label="turned"):
        x, weights = _numbers(depth, rows).T, np.moveaxis(_numbers(depth, experts, width), 0, 2)
    bias = _numbers(experts, width, seed=2) if data.draw(st.booleans(), label="bias") else None
    inputs = [x, _choice(rows, experts, depth, kind), weights, bias]
    constant = data.draw(st.sampled_from([(), (2, 3)]))
    _compare(library, "ExpertMatMul", inputs, width, {}, constant)


def _few_bits(
    rows: int, experts: int, width: int, depth: int, bits: int, block: int, zero: str
) -> tuple[list[Array | None], dict[str, Any]]:
    random = np.random.default_rng([rows, experts, width, depth])
    blocks = -(-depth // block)
    zeros: Array | None = None
    if zero == "packed":
        size = -(-blocks * bits // 8)
        zeros = random.integers(0, 256, (experts, width, size), dtype=np.uint8)
    if zero == "float":
        zeros = random.uniform(0, 1 << bits, (experts, width, blocks)).astype(np.float32)
    size = block * bits // 8
    inputs: list[Array | None] = [
        _numbers(rows, depth),
        _choice(rows, experts, depth),
        random.integers(0, 256, (experts, width, blocks, size), dtype=np.uint8),
        random.uniform(0.01, 0.02, (experts, width, blocks)).astype(np.float32),
        zeros,
        None,
    ]
    return inputs, {"bits": bits, "block_size": block, "K": depth}


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_few_bits(data: st.DataObject) -> None:
    library = find_library(data.draw(st.sampled_from(variants()), label="library"))
    if library is None:
        pytest.skip("there are no native kernels")
    rows, experts = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 6))
    width, depth = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 90))
    bits, block = data.draw(st.sampled_from([2, 4, 8])), data.draw(st.sampled_from([16, 32, 48]))
    zero = data.draw(st.sampled_from(["", "packed", "float"]))
    inputs, attributes = _few_bits(rows, experts, width, depth, bits, block, zero)
    if data.draw(st.booleans(), label="bias"):
        inputs[5] = _numbers(experts, width, seed=2)
    _compare(library, "ExpertMatMulNBits", inputs, width, attributes, _STORED)


def test_chunks_of_columns(library: Library) -> None:
    """More products of a row than a chunk has, of one expert and of several."""
    x, weights = _numbers(5, 2100), _numbers(3, 200, 2100, seed=1)
    for choice in ([1, 1, 1, 1, 1], [2, 0, 2, 0, 0]):
        inputs: list[Array | None] = [x, np.array(choice), weights, None]
        _compare(library, "ExpertMatMul", inputs, 200, {}, (2,))


@pytest.mark.parametrize("number", [-1, 3, 2**40])
def test_experts_that_there_are_not(library: Library, number: int) -> None:
    choice = np.array([0, 2, number, 1])
    outputs = [np.empty((4, 5), np.float32)]
    floats: list[Array | None] = [_numbers(4, 6), choice, _numbers(3, 5, 6), None]
    with pytest.raises(NativeFailure):
        native_results(library, "ExpertMatMul", floats, outputs, {}, ())
    bits, attributes = _few_bits(4, 3, 5, 32, 4, 16, "")
    bits[1] = choice
    with pytest.raises(NativeFailure):
        native_results(library, "ExpertMatMulNBits", bits, outputs, attributes, _STORED)
