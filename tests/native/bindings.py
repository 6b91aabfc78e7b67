"""Bound instructions, run by the native library and by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popc_runtime.format import Array, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from popc_runtime.native import Library, NativeBinding, NativeProgram, Record, Space, translate
from popc_runtime.native import encode as encode_views
from tests.support.oracles import hidden_operands

_DTYPES = {dtype.storage: dtype for dtype in DType if dtype is dtype.stored}


def _dtype(array: Array | None) -> DType | None:
    return None if array is None else _DTYPES[array.dtype]


def bound(
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
    constant: Sequence[int] = (),
    dtypes: Sequence[DType | None] | None = None,
) -> Binding:
    """What a kernel is given; ``dtypes`` of inputs and outputs, where storage does not tell."""
    types = [_dtype(operand) for operand in (*inputs, *outputs)] if dtypes is None else dtypes
    return Binding(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        input_dtypes=tuple(types[: len(inputs)]),
        output_dtypes=tuple(types[len(inputs) :]),
        attributes=attributes,
        constant=tuple(index in constant for index in range(len(inputs))),
        scratch=Scratch(2),
        random=RandomState(0),
    )


def viewed(binding: Binding) -> NativeBinding:
    """What an encoder is given."""
    return NativeBinding.of(binding, Space())


def encode(opcode: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """The record of an instruction on arrays."""
    return encode_views(opcode, viewed(binding), numbers)


def numpy_results(
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
    constant: Sequence[int] = (),
    dtypes: Sequence[DType | None] | None = None,
) -> list[Array]:
    """Results of the numpy engine, in arrays like ``outputs``."""
    results = [np.empty_like(result) for result in outputs]
    with np.errstate(all="ignore"):
        for call in prepare(KERNELS[opcode], bound(inputs, results, attributes, constant, dtypes)):
            call()
    return results


def native_results(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
    constant: Sequence[int] = (),
    threads: int = 2,
    dtypes: Sequence[DType | None] | None = None,
) -> list[Array] | None:
    """Results of the native kernel, in arrays like ``outputs``; ``None`` if there is none."""
    results = [np.full_like(result, 77) for result in outputs]
    binding = bound(inputs, results, attributes, constant, dtypes)
    with hidden_operands(binding):
        record = encode(opcode, binding, library.numbers)
        if record is None:
            return None
        program = NativeProgram(library, [record], binding, threads)
    program.run()
    return results


def steady_results(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
    constant: Sequence[int] = (),
    dtypes: Sequence[DType | None] | None = None,
    most_threads: int = 2,
) -> list[Array]:
    """Results of the native kernel, which is there: the same bits on any number of threads."""
    found = [
        native_results(library, opcode, inputs, outputs, attributes, constant, threads, dtypes)
        for threads in range(1, most_threads + 1)
    ]
    alone = found[0]
    assert alone is not None, f"{opcode} has no native form here"
    for others in found[1:]:
        assert others is not None
        for one, other in zip(alone, others, strict=True):
            assert one.tobytes() == other.tobytes(), "the result depends on the number of threads"
    return alone


def translated_results(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
) -> list[Array] | None:
    """Results of numpy's calls, each by a native kernel; ``None`` if one of them has none."""
    results = [np.full_like(result, 77) for result in outputs]
    binding = bound(inputs, results, attributes)
    calls = prepare(KERNELS[opcode], binding)
    records = [translate(call, library.numbers) for call in calls]
    kept = [record for record in records if record is not None]
    if len(kept) < len(records):
        return None
    NativeProgram(library, kept, binding, 2).run()
    return results


def product_program(
    library: Library, size: int, threads: int, count: int = 3
) -> tuple[NativeProgram, Array, Array]:
    """A product of two square matrices, ``count`` times; its result and what that should be."""
    random = np.random.default_rng(size)
    left, right = (random.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    out = np.empty((size, size), np.float32)
    record = encode("MatMul", bound([left, right], [out], {}), library.numbers)
    assert record is not None
    program = NativeProgram(library, [record] * count, (left, right, out), threads)
    return program, out, left @ right
