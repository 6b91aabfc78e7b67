"""Elementwise passes over tensors with a few scalar operands that may change from run to run.

The scalars are looked at before the first pass, and the numbers that the passes need follow from
them.  What is final when the program is bound costs nothing afterwards, and a factor of 0 or 1 that
is final takes no pass at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan, nan
from typing import TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import Steps, blocked

__all__ = ["Derive", "Factor", "factors_of", "passes", "sum_of", "sum_steps", "work_dtype_of"]

# Scalar operands (nan: not final yet, ``None``: absent) -> the factors that the passes need.
# Whatever depends on a nan must come out as nan.
Derive: TypeAlias = "Callable[..., Sequence[float]]"


@dataclass(frozen=True, slots=True)
class Factor:
    """A number in passes over a tensor: 0-d, of the dtype to compute in.

    ``value`` is the number if it is final when the program is bound, else nan.
    """

    array: Array
    value: float


def work_dtype_of(binding: Binding) -> np.dtype[np.generic]:
    """float64 if a tensor is, else float32."""
    wide = any(a is not None and a.dtype == np.float64 and a.ndim for a in binding.inputs)
    return np.dtype(np.float64 if wide or binding.output().dtype == np.float64 else np.float32)


def factors_of(
    binding: Binding, start: int, derive: Derive
) -> tuple[tuple[Factor, ...], tuple[Call, ...]]:
    """The factors that follow from the scalar operands from ``start`` on, and the call they need.

    The call, if any, comes before all others.
    """
    scalars = binding.inputs[start:]
    final = [binding.is_constant(start + index) for index in range(len(scalars))]
    known = derive(
        *(
            None if scalar is None else float(scalar) if now else nan
            for scalar, now in zip(scalars, final, strict=True)
        )
    )
    memory = binding.scratch.take((len(known),), work_dtype_of(binding))
    factors: list[Factor] = []
    for index, value in enumerate(known):
        array = memory[index : index + 1].reshape(())
        factors.append(Factor(array if isnan(value) else np.asarray(value, array.dtype), value))
    if not any(map(isnan, known)):
        return tuple(factors), ()

    def update() -> None:
        memory[:] = derive(*(None if scalar is None else float(scalar) for scalar in scalars))

    return tuple(factors), (update,)


def passes(
    steps: Steps, binding: Binding, operands: Sequence[Array], *, temporaries: int = 1
) -> tuple[Call, ...]:
    """``steps`` over the output and ``operands``, block by block, in the dtype to compute in."""
    out, dtype = binding.output(), work_dtype_of(binding)
    mixed = any(array.dtype != dtype for array in (out, *operands))
    return blocked(
        steps,
        out,
        operands,
        binding.scratch,
        temporaries=temporaries,
        work=dtype if mixed else None,
    )


def sum_steps(out: Array, *arrays: Array, factors: Sequence[Factor]) -> Iterator[Call]:
    """The sum of the operands, each times its factor; operand 0 may be the same memory as out."""
    first, *others, spare = arrays
    total = first
    if factors[0].value != 1:
        yield partial(np.multiply, first, factors[0].array, out=out)
        total = out
    for term, factor in zip(others, factors[1:], strict=True):
        if factor.value == 0:
            continue
        if factor.value == 1:
            yield partial(np.add, total, term, out=out)
        else:
            yield partial(np.multiply, term, factor.array, out=spare)
            yield partial(np.add, total, spare, out=out)
        total = out
    if total is first:
        yield partial(np.copyto, out, first)


def sum_of(terms: int, derive: Derive) -> Kernel:
    """Operands 0 to ``terms`` - 1, each times a factor that follows from the scalars after them."""

    def kernel(binding: Binding) -> Calls:
        factors, before = factors_of(binding, terms, derive)
        operands = [binding.input(index) for index in range(terms)]
        steps = partial(sum_steps, factors=factors)
        return (*before, *passes(steps, binding, operands))

    return kernel
