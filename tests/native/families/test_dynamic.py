"""Copies from and to places that tensors name: as numpy's kernels, to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import to_bfloat16
from popc_runtime.native import Library, NativeFailure, NativeProgram, find_library
from popc_runtime.native.contiguous import move_record
from popc_runtime.native.views import as_view
from tests.native.bindings import native_results, numpy_results

__all__ = ["DYNAMIC"]

DYNAMIC: Final = frozenset(
    {
        *("DynamicAdd", "DynamicSlice", "DynamicUpdate", "DynamicZero"),
        *(
            "Fill",
            "Restore",
            "ReverseSequence",
            "SequenceSlice",
            "StackStore",
            "Stash",
            "TensorScatter",
        ),
    }
)
_DTYPES: Final = ("float32", "float16", "uint8", "int64", "bool")


def _numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 20).astype(dtype)


def _layouts(x: Array) -> list[Array]:
    """Contiguous, turned, and every other element."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return [x, np.ascontiguousarray(x.T).T, wide[..., ::2]]


def _check(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    out: Array,
    attributes: Mapping[str, Any],
    types: Sequence[DType] | None = None,
) -> None:
    expected = numpy_results(opcode, inputs, [out], attributes, dtypes=types)[0]
    for threads in (1, 2):
        got = native_results(library, opcode, inputs, [out], attributes, (), threads, types)
        assert got is not None, f"{opcode} has no native form here"
        assert got[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize(
    ("axes", "sizes", "offsets"),
    [((0,), (1,), (4,)), ((1, -1), (2, 3), (5, 0)), ((2, 0), (7, 2), (0, 3)), ((1,), (7,), (0,))],
)
def test_slices_at_offsets(
    library: Library,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    offsets: tuple[int, ...],
    dtype: str,
) -> None:
    x = _numbers(5, 7, 9, dtype=dtype)
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    attributes = {"axes": axes, "sizes": sizes}
    update = _numbers(*shape, seed=1, dtype=dtype)
    for kind in ("int32", "int64", "uint32"):
        place = np.array(offsets, kind)
        for x_given in _layouts(x):
            _check(library, "DynamicSlice", [x_given, place], update, attributes)
            _check(library, "DynamicZero", [x_given, place], x, attributes)
            for part in _layouts(update):
                _check(library, "DynamicUpdate", [x_given, place, part], x, attributes)
                if dtype != "bool":
                    _check(library, "DynamicAdd", [x_given, place, part], x, attributes)


def test_slices_of_bfloat16(library: Library) -> None:
    x, update = to_bfloat16(_numbers(6, 5)), to_bfloat16(_numbers(6, 2, seed=1))
    place, attributes = np.array([2]), {"axes": (1,), "sizes": (2,)}
    b16, number = DType.BFLOAT16, DType.INT64
    for opcode in ("DynamicAdd", "DynamicUpdate"):
        _check(library, opcode, [x, place, update], x, attributes, [b16, number, b16, b16])
    _check(library, "DynamicSlice", [x, place], update, attributes, [b16, number, b16])


@pytest.mark.parametrize("offset", [-1, 4])
def test_slices_that_leave_a_tensor(library: Library, offset: int) -> None:
    x, place = _numbers(5, 7), np.array([offset])
    with pytest.raises(
        NativeFailure, match=f"a slice of 4 from {offset} on does not fit axis 1 of size 7"
    ):
        native_results(
            library, "DynamicSlice", [x, place], [_numbers(5, 4)], {"axes": (-1,), "sizes": (4,)}
        )


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (300, 200)])
def test_rows_by_number(library: Library, shape: tuple[int, ...], dtype: str) -> None:
    rows, value = _numbers(6, *shape, dtype=dtype), _numbers(*shape, seed=1, dtype=dtype)
    for number in (0, 3, 5, 6, 17):
        index = np.array(number)
        _check(library, "Stash", [rows, value, index], rows, {})
        _check(library, "Restore", [rows, index], value, {})
    for number in (0, 5):
        whole = native_results(library, "StackStore", [value, np.array(number)], [rows], {})
        assert whole is not None
        assert whole[0][number].tobytes() == value.tobytes()
    with pytest.raises(NativeFailure, match="out of range"):
        native_results(library, "StackStore", [value, np.array(6)], [rows], {})


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3), (4, 5, 2, 2)])
def test_sequences_in_reverse(library: Library, shape: tuple[int, ...], dtype: str) -> None:
    out = _numbers(*shape, dtype=dtype)
    for x in _layouts(out):
        for batch_axis in (0, 1):
            steps, batch = shape[1 - batch_axis], shape[batch_axis]
            lengths = np.arange(batch) % (steps + 1)
            attributes = {"batch_axis": batch_axis}
            _check(library, "ReverseSequence", [x, lengths], out, attributes)
            with pytest.raises(NativeFailure, match="out of range"):
                native_results(library, "ReverseSequence", [x, lengths + steps], [out], attributes)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("axis", [-2, 1, -1])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_steps_of_caches(library: Library, mode: str, axis: int, dtype: str) -> None:
    cache = _numbers(3, 2, 7, 4, dtype=dtype)
    shape = list(cache.shape)
    shape[axis] = 2
    length = cache.shape[axis]
    attributes = {"axis": axis, "mode": mode}
    starts = np.array([0, length - 2, 0 if mode == "linear" else length + 3])
    for update in _layouts(_numbers(*shape, seed=1, dtype=dtype)):
        for some in (starts, None):
            _check(library, "TensorScatter", [cache, update, some], cache, attributes)
    if mode == "linear":
        with pytest.raises(NativeFailure, match="out of range"):
            native_results(
                library, "TensorScatter", [cache, update, starts + 1], [cache], attributes
            )


@pytest.mark.parametrize("dtype", DType)
def test_fills(library: Library, dtype: DType) -> None:
    for shape in ((), (3, 5), (300, 200)):
        signless = dtype.storage.kind in "ub" and dtype is not DType.BFLOAT16
        for value in (0.0, 1.0) if signless else (0.0, 1.0, -3.0):
            out = np.empty(shape, dtype.storage)
            _check(library, "Fill", [], out, {"value": value}, [dtype])


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("zero", [0, 1])
def test_runs_of_rows(library: Library, zero: int, kind: str, dtype: str) -> None:
    destination = _numbers(8, 3, dtype=dtype)
    counts, read, written = (
        np.array(numbers, kind) for numbers in ([2, 0, 3], [4, 9, 0], [5, 0, 1])
    )
    for source in _layouts(_numbers(6, 3, seed=1, dtype=dtype)):
        inputs = [source, destination, counts, read, written]
        _check(library, "SequenceSlice", inputs, destination, {"zero_unused": zero})
    with pytest.raises(NativeFailure, match="out of range"):
        native_results(
            library,
            "SequenceSlice",
            [source, destination, counts, read + 1, written],
            [destination],
            {"zero_unused": zero},
        )


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_copies_between_any_strides(data: st.DataObject) -> None:
    """Few elements side by side, which become wider ones, at any address; planes that are cut."""
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    dtype = data.draw(st.sampled_from(["uint8", "float16", "float32", "int64"]), label="type")
    rank = data.draw(st.integers(1, 4), label="rank")
    sizes = st.sampled_from([1, 2, 3, 4, 8, 16, 33, 150])
    shape = [data.draw(sizes, label="size") for _ in range(rank)]
    while np.prod(shape) > 200_000:
        shape[int(np.argmax(shape))] //= 2
    source, target = (_anywhere(data, tuple(shape), dtype, seed) for seed in range(2))
    before = target.copy()
    record = move_record(as_view(target), as_view(source))
    for threads in (1, 2):
        target[...] = before
        NativeProgram(library, [record], (source, target), threads).run()
        assert target.tobytes() == source.tobytes()


def _anywhere(data: st.DataObject, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Numbers in memory of any order, with steps, that starts at any byte."""
    order = data.draw(st.permutations(range(len(shape))), label="order")
    steps = [data.draw(st.sampled_from([1, 1, 1, 2]), label="step") for _ in shape]
    wide = [shape[axis] * steps[axis] for axis in order]
    item = np.dtype(dtype).itemsize
    shift = data.draw(st.sampled_from([0, 0, item]), label="shift")
    memory = np.zeros(int(np.prod(wide)) * item + shift, np.uint8)
    array = memory[shift:].view(dtype).reshape(wide)
    array = array[tuple(slice(None, None, steps[axis]) for axis in order)]
    array = array.transpose(np.argsort(order))
    array[...] = _numbers(*shape, seed=seed, dtype=dtype)
    return array
