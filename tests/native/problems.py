"""Instructions on given operands, computed by both engines, wherever the operands lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from popc.ir import TensorType
from popc.ops import OPS
from popc.ops.build import infer_types
from popc_runtime.errors import PopcError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, Call, RandomState, Scratch, prepare
from popc_runtime.kernels.preparation import to_bfloat16
from popc_runtime.native import Item, Library, NativeProgram, native_opcodes, translate
from tests.native.bindings import encode
from tests.native.bounds import as_numbers, bounds
from tests.native.layouts import place
from tests.native.tolerances import is_exact
from tests.support.oracles import hidden_operands

__all__ = [
    "Problem",
    "check",
    "emptied",
    "has_kernel",
    "known",
    "narrowed",
    "partly_known",
    "repeated",
    "resized",
]


_IMPOSSIBLE: Final = (PopcError, ValueError, IndexError, ZeroDivisionError, TypeError)
_LARGEST: Final = 1 << 18  # elements of an operand


@dataclass(frozen=True)
class Problem:
    """An instruction and its operands, as they are stored.

    ``constant``: for each operand, whether kernels may read it before they run.
    """

    opcode: str
    inputs: tuple[Array | None, ...]
    types: tuple[TensorType | None, ...]
    attributes: Mapping[str, Attribute]
    constant: tuple[bool, ...]

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        return infer_types(self.opcode, self.types, self.attributes)

    def key(self) -> object:
        """Equal for problems that differ in numbers only."""
        return (self.opcode, self.types, repr(sorted(self.attributes.items())), self.constant)

    def __str__(self) -> str:
        operands = ", ".join("-" if type_ is None else str(type_) for type_ in self.types)
        return f"{self.opcode}({operands}) {dict(self.attributes)} constant {self.constant}"

    def binding(self, inputs: tuple[Array | None, ...], outputs: tuple[Array, ...]) -> Binding:
        """What a kernel is given."""
        return Binding(
            inputs=inputs,
            outputs=outputs,
            input_dtypes=tuple(None if type_ is None else type_.dtype for type_ in self.types),
            output_dtypes=tuple(type_.dtype for type_ in self.output_types),
            attributes=self.attributes,
            constant=self.constant,
            scratch=Scratch(),
            random=RandomState(0),
        )

    def expected(self) -> list[Array]:
        """The results of the numpy engine."""
        outputs = tuple(np.empty(type_.shape, type_.dtype.storage) for type_ in self.output_types)
        with np.errstate(all="ignore"):
            for call in prepare(KERNELS[self.opcode], self.binding(self.inputs, outputs)):
                call()
        return list(outputs)


def emptied(problem: Problem) -> Iterator[Problem]:
    """The same instruction with nothing along an axis, for each axis where that means something."""
    first = problem.inputs[0] if problem.inputs else None
    for axis in range(0 if first is None else first.ndim):
        assert first is not None
        inputs = tuple(
            one[(slice(None),) * axis + (slice(0),)]
            if one is not None and one.ndim == first.ndim and one.shape[axis] == first.shape[axis]
            else one
            for one in problem.inputs
        )
        if changed := _changed(problem, inputs):
            yield changed


def repeated(problem: Problem) -> Problem | None:
    """The same instruction on operands that repeat along their longest axis, by a stride of 0."""
    inputs = []
    for one in problem.inputs:
        if one is None or one.ndim == 0 or one.size == 0:
            inputs.append(one)
            continue
        axis = one.shape.index(max(one.shape))
        inputs.append(np.broadcast_to(one.take([0], axis), one.shape))
    return _changed(problem, tuple(inputs))


def known(problem: Problem) -> Problem:
    """The same instruction with all operands but the first known before it runs."""
    return replace(problem, constant=tuple(index > 0 for index in range(len(problem.inputs))))


def partly_known(problem: Problem) -> Iterator[Problem]:
    """The same with one operand known before it runs, and with all but one and the first."""
    later = range(1, len(problem.inputs))
    for index in later if len(later) > 1 else ():
        for only in (True, False):
            constant = (False, *((other == index) == only for other in later))
            yield replace(problem, constant=constant)


def resized(problem: Problem, sizes: Mapping[int, int], seed: int) -> Problem | None:
    """The same instruction with other sizes of dimensions, by those that it has.

    Operands have the numbers that they had, in another order, or sorted if they were.
    """
    random = np.random.default_rng(seed)
    inputs = []
    for one in problem.inputs:
        if one is None or one.size == 0:
            inputs.append(one)
            continue
        shape = [sizes.get(size, size) for size in one.shape]
        if prod(shape) > _LARGEST:
            return None
        drawn = random.choice(one.ravel(), shape) if one.ndim else one
        if one.ndim == 1 and bool(np.all(one[1:] >= one[:-1])):  # boundaries
            drawn.sort()
        inputs.append(drawn)
    if problem.opcode == "MaxPoolGrad":
        inputs[2] = _maxima(problem, inputs[1])
    return _changed(problem, tuple(inputs))


def _maxima(problem: Problem, x: Array | None) -> Array | None:
    """What MaxPoolGrad expects as its operand 2; ``None`` if windows do not fit ``x``."""
    assert x is not None
    type_ = TensorType(DType.of(x.dtype), x.shape)
    try:
        pooled = Problem("MaxPool", (x,), (type_,), problem.attributes, (False,))
        return pooled.expected()[0]
    except _IMPOSSIBLE:
        return None


def narrowed(problem: Problem, dtype: DType) -> Problem | None:
    """The same instruction on halves."""
    inputs = [
        one
        if one is None or type_ is None or type_.dtype is not DType.FLOAT32
        else to_bfloat16(one)
        if dtype is DType.BFLOAT16
        else one.astype(np.float16)
        for one, type_ in zip(problem.inputs, problem.types, strict=True)
    ]
    types = [
        type_
        if type_ is None or type_.dtype is not DType.FLOAT32
        else TensorType(dtype, type_.shape)
        for type_ in problem.types
    ]
    return _changed(replace(problem, types=tuple(types)), tuple(inputs))


def _changed(problem: Problem, inputs: tuple[Array | None, ...]) -> Problem | None:
    """``problem`` with other operands; ``None`` if numpy does not compute that."""
    types = tuple(
        None if one is None or type_ is None else TensorType(type_.dtype, one.shape)
        for one, type_ in zip(inputs, problem.types, strict=True)
    )
    changed = replace(problem, inputs=inputs, types=types)
    try:
        if max((prod(type_.shape) for type_ in changed.output_types), default=0) > _LARGEST:
            return None
        changed.expected()
    except _IMPOSSIBLE:
        return None
    return changed


def check(
    library: Library, problem: Problem, expected: list[Array], layout: str, layout_of_results: str
) -> str:
    """Compare the native engine on 1, 2 and 3 threads with ``expected``.

    Gives how it computes the problem: "kernel", "calls", or "" if numpy has to.
    """
    runs = [_run(library, problem, layout, layout_of_results, threads) for threads in (1, 2, 3)]
    how, results = runs[0]
    if not how:
        return ""
    for _, others in runs[1:]:
        for one, other in zip(results, others, strict=True):
            assert one.tobytes() == other.tobytes(), "results depend on the number of threads"
    for got, want, type_ in zip(results, expected, problem.output_types, strict=True):
        _assert_near(got, want, type_.dtype, problem)
    return how


def has_kernel(library: Library, problem: Problem) -> bool:
    """Whether the problem is computed by a kernel where its operands lie contiguous."""
    inputs = tuple(None if one is None else one.copy() for one in problem.inputs)
    outputs = tuple(np.empty(type_.shape, type_.dtype.storage) for type_ in problem.output_types)
    with np.errstate(all="ignore"):
        return encode(problem.opcode, problem.binding(inputs, outputs), library.numbers) is not None


def _run(
    library: Library, problem: Problem, layout: str, layout_of_results: str, threads: int
) -> tuple[str, list[Array]]:
    inputs = tuple(_placed(one, layout) for one in problem.inputs)
    places = [
        place(type_.shape, type_.dtype.storage, layout_of_results) for type_ in problem.output_types
    ]
    binding = problem.binding(inputs, tuple(one.view for one in places))
    with hidden_operands(binding):
        how, items = _items(library, problem.opcode, binding)
        if not how:
            return "", []
        program = NativeProgram(library, items, binding, threads)
    around = [one.around() for one in places]
    program.run()
    results = [one.view.copy() for one in places]
    for before, result in zip(around, places, strict=True):
        assert before == result.around(), "something was written beside a result"
    for one, original in zip(inputs, problem.inputs, strict=True):
        if one is not None and original is not None:
            assert one.tobytes() == original.tobytes(), "an operand was written"
    if not OPS[problem.opcode].random:
        program.run()
        for result, first in zip(places, results, strict=True):
            assert result.view.tobytes() == first.tobytes(), "another run gives another result"
    return how, results


def _placed(array: Array | None, layout: str) -> Array | None:
    if array is None or 0 in array.strides:  # repeated: stays so
        return array
    view = place(array.shape, array.dtype, layout).view
    view[...] = array
    return view


def _items(library: Library, opcode: str, binding: Binding) -> tuple[str, list[Item]]:
    with np.errstate(all="ignore"):
        record = encode(opcode, binding, library.numbers)
        if record is not None:
            return "kernel", [record]
        binding.scratch.reset()
        if any(not one.flags.c_contiguous for one in binding.outputs if one is not None):
            return "", []  # numpy's kernels need not know of strides of results
        strided = any(not one.flags.c_contiguous for one in binding.inputs if one is not None)
        if strided and opcode in native_opcodes():
            return "", []  # nor of those of operands, of which some of them make copies
        calls: tuple[Call, ...] = prepare(KERNELS[opcode], binding)
    records = [translate(call, library.numbers) for call in calls]
    found: list[Item] = [one for one in records if one is not None]
    return ("calls", found) if found and len(found) == len(records) else ("", [])


def _assert_near(got: Array, want: Array, dtype: DType, problem: Problem) -> None:
    got, want = as_numbers(got, dtype), as_numbers(want, dtype)
    if is_exact(problem.opcode, dtype):
        np.testing.assert_array_equal(got, want)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    allowed = bounds(problem, want, _computed_in(problem, dtype))
    unknown = np.isposinf(allowed)
    limits = np.where(unknown, 0, allowed)
    near = np.isclose(got, want, rtol=0, atol=limits, equal_nan=True) | unknown
    if not near.all():
        first = tuple(np.argwhere(~near)[0])
        limit = np.broadcast_to(limits, want.shape)[first]
        raise AssertionError(
            f"{near.size - near.sum()} of {near.size} differ, at {first} {got[first]} is not "
            f"{want[first]}, give or take {limit}"
        )


def _computed_in(problem: Problem, dtype: DType) -> DType:
    """The type that results of ``dtype`` are computed in: that of operands, if that is narrower."""
    doubles = [type_.dtype is DType.FLOAT64 for type_ in problem.types if type_ is not None]
    return DType.FLOAT32 if dtype is DType.FLOAT64 and not any(doubles) else dtype
