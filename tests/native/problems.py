"""Instructions on given operands, and others that are made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import PopcError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from popc_runtime.kernels.core.stored import to_bfloat16

__all__ = [
    "Problem",
    "emptied",
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

    Attributes:
        constant: For each operand, whether kernels may read it before they run.
        results: Their types, where no table of the compiler's tells: lowering adds the instruction.
    """

    opcode: str
    inputs: tuple[Array | None, ...]
    types: tuple[TensorType | None, ...]
    attributes: Mapping[str, Attribute]
    constant: tuple[bool, ...]
    results: tuple[TensorType, ...] = ()

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        return self.results or infer_types(self.opcode, self.types, self.attributes)

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
            operand[(slice(None),) * axis + (slice(0),)]
            if operand is not None
            and operand.ndim == first.ndim
            and operand.shape[axis] == first.shape[axis]
            else operand
            for operand in problem.inputs
        )
        if changed := _changed(problem, inputs):
            yield changed


def repeated(problem: Problem) -> Problem | None:
    """The same instruction on operands that repeat along their longest axis, by a stride of 0."""
    inputs = []
    for operand in problem.inputs:
        if operand is None or operand.ndim == 0 or operand.size == 0:
            inputs.append(operand)
            continue
        axis = operand.shape.index(max(operand.shape))
        inputs.append(np.broadcast_to(operand.take([0], axis), operand.shape))
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
    for operand in problem.inputs:
        if operand is None or operand.size == 0:
            inputs.append(operand)
            continue
        shape = [sizes.get(size, size) for size in operand.shape]
        if prod(shape) > _LARGEST:
            return None
        drawn = random.choice(operand.ravel(), shape) if operand.ndim else operand
        if operand.ndim == 1 and bool(np.all(operand[1:] >= operand[:-1])):  # boundaries
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
        operand
        if operand is None or type_ is None or type_.dtype is not DType.FLOAT32
        else to_bfloat16(operand)
        if dtype is DType.BFLOAT16
        else operand.astype(np.float16)
        for operand, type_ in zip(problem.inputs, problem.types, strict=True)
    ]
    types = tuple(None if type_ is None else _narrow(type_, dtype) for type_ in problem.types)
    results = tuple(_narrow(type_, dtype) for type_ in problem.results)
    return _changed(replace(problem, types=types, results=results), tuple(inputs))


def _narrow(type_: TensorType, dtype: DType) -> TensorType:
    return type_.with_dtype(dtype) if type_.dtype is DType.FLOAT32 else type_


def _changed(problem: Problem, inputs: tuple[Array | None, ...]) -> Problem | None:
    """``problem`` with other operands; ``None`` if numpy does not compute that."""
    types = tuple(
        None if operand is None or type_ is None else TensorType(type_.dtype, operand.shape)
        for operand, type_ in zip(inputs, problem.types, strict=True)
    )
    changed = replace(problem, inputs=inputs, types=types)
    if problem.results and types != problem.types:
        return None  # nobody knows what they would be
    try:
        if max((prod(type_.shape) for type_ in changed.output_types), default=0) > _LARGEST:
            return None
        changed.expected()
    except _IMPOSSIBLE:
        return None
    return changed
