"""How far each result of a native kernel may be from that of numpy, by the operands.

Most of `tolerances` are relative to the largest number.  Reductions are relative to the sum of the
magnitudes that are added, or multiply relative errors; attention is the less exact the larger
scores are, gradients of normalization the farther means are from zero, inverses the closer to
singular matrices are.  Where an engine may as well say that there is none, anything goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from popc.ir import TensorType
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import from_bfloat16
from tests.native.tolerances import is_relative_to_operands, of_many_roundings, tolerance

if TYPE_CHECKING:
    from tests.native.problems import Problem

__all__ = ["as_numbers", "bounds"]


def as_numbers(array: Array, dtype: DType) -> Array:
    """The numbers in what is stored as ``dtype``."""
    return from_bfloat16(array) if dtype is DType.BFLOAT16 else array


def bounds(problem: Problem, want: Array, computed_in: DType) -> Array:
    """The largest difference from each of ``want`` [float64]; infinite where that is undefined."""
    of_opcode = _BOUNDS.get(problem.opcode, _of_largest)
    with np.errstate(all="ignore"):
        return of_opcode(problem, want, computed_in)


def _of_finite(allowed: Array) -> Array:
    """What is made of operands that are infinite, or not numbers, is the same."""
    return np.where(np.isfinite(allowed), allowed, 0)


def _of_largest(problem: Problem, want: Array, dtype: DType) -> Array:
    scale = _largest(want)
    if is_relative_to_operands(problem.opcode):
        pairs = zip(problem.inputs, problem.types, strict=True)
        floats = [(pair, type_.dtype) for pair, type_ in pairs if pair is not None and type_]
        scale = max(scale, *(_largest(as_numbers(*item)) for item in floats if item[1].is_float))
    allowed = tolerance(problem.opcode, dtype)
    return np.asarray(allowed * (scale + np.abs(np.where(np.isfinite(want), want, 0))))


def _largest(array: Array) -> float:
    sizes = np.abs(array.astype(np.float64))
    return float(sizes.max(initial=0, where=np.isfinite(sizes)))


# -- reductions ------------------------------------------------------------------------------------


def _first(problem: Problem) -> Array:
    return _operand(problem, 0)


def _operand(problem: Problem, index: int) -> Array:
    """An operand that is there, as float64."""
    x, type_ = problem.inputs[index], problem.types[index]
    assert x is not None and type_ is not None  # noqa: PT018
    return as_numbers(x, type_.dtype).astype(np.float64)


def _reduced(problem: Problem, opcode: str, x: Array) -> Array:
    """``x`` [float64] reduced as the operand of the problem is, but by ``opcode``."""
    types = (TensorType(DType.FLOAT64, x.shape), *problem.types[1:])
    inputs = (x, *problem.inputs[1:])
    return replace(problem, opcode=opcode, inputs=inputs, types=types).expected()[0]


def _terms(problem: Problem, want: Array) -> int:
    return _first(problem).size // max(want.size, 1)


def _of_sum(problem: Problem, want: Array, dtype: DType) -> Array:
    allowed = of_many_roundings(problem.opcode, dtype, _terms(problem, want))
    return _of_finite(allowed * _reduced(problem, problem.opcode, np.abs(_first(problem))))


def _of_product(problem: Problem, want: Array, dtype: DType) -> Array:
    """Relative to the product, unless those of some factors overflow or underflow."""
    x, kind = np.abs(_first(problem)), np.finfo("f8" if dtype is DType.FLOAT64 else "f4")
    powers = np.log2(np.where(x == 0, 1, x))
    large = _reduced(problem, "ReduceSum", np.maximum(powers, 0)) >= kind.maxexp - 1
    small = _reduced(problem, "ReduceSum", np.minimum(powers, 0)) <= kind.minexp + 1
    allowed = of_many_roundings(problem.opcode, dtype, _terms(problem, want))
    return np.where(large | small, np.inf, _of_finite(allowed * np.abs(want)))


def _of_log_of_sum(problem: Problem, want: Array, dtype: DType) -> Array:
    """What is rounded off of a sum of exponentials counts relative to it: here, as it is."""
    allowed = of_many_roundings(problem.opcode, dtype, _terms(problem, want))
    return _of_finite(allowed * (1 + np.abs(want)))


def _of_softmax_gradient(problem: Problem, want: Array, dtype: DType) -> Array:
    """What is rounded off of the sum along the axis counts as that is taken from each element.

    Where all terms are equal, by a stride of 0, roundings err alike: not as often up as down.
    """
    g, y = _first(problem), _operand(problem, 1)
    terms, factor = (g, np.exp(y)) if problem.opcode == "LogSoftmaxGrad" else (g * y, y)
    axis = int(str(problem.attributes["axis"]))
    alike = any(operand is not None and 0 in operand.strides for operand in problem.inputs)
    count = max(g.shape[axis], 1) ** (2 if alike else 1)
    errors = of_many_roundings(problem.opcode, dtype, count) * np.abs(factor)
    errors = errors * np.abs(terms).sum(axis, keepdims=True)
    return _of_largest(problem, want, dtype) + _of_finite(errors)


# -- attention -------------------------------------------------------------------------------------


def _of_attention(problem: Problem, want: Array, dtype: DType) -> Array:
    """What is rounded off of the largest score counts as a share of each value."""
    queries, keys, values = (_operand(problem, index) for index in range(3))
    lengths = [float(np.linalg.norm(item, axis=-1).max(initial=0)) for item in (queries, keys)]
    score = abs(float(str(problem.attributes["scale"]))) * lengths[0] * lengths[1]
    errors = of_many_roundings(problem.opcode, dtype, queries.shape[-1]) * score
    return _of_largest(problem, want, dtype) + errors * _largest(values)


# -- matrices --------------------------------------------------------------------------------------


def _of_inverse(problem: Problem, want: Array, dtype: DType) -> Array:
    """Relative to |inverse| |matrix| |inverse|, which bounds what a change of the matrix does."""
    inverse, x = np.abs(want), np.abs(_first(problem))
    axes, size = (-2, -1), max(x.shape[-1], 1)
    errors = of_many_roundings(problem.opcode, dtype, size) * (inverse @ x @ inverse)
    error = errors.max(axis=axes, keepdims=True, initial=0)
    # Not `>`: NaN is neither.
    is_regular = error < inverse.max(axis=axes, keepdims=True, initial=0)
    unknown = np.isfinite(x).all(axis=axes, keepdims=True) & ~is_regular
    return np.where(unknown, np.inf, np.broadcast_to(error, want.shape))


def _of_determinant(problem: Problem, want: Array, dtype: DType) -> Array:
    """Relative to the product of the lengths of the rows, than which none is larger."""
    x = _first(problem)
    lengths = np.linalg.norm(x, axis=-1).prod(axis=-1)
    allowed = of_many_roundings(problem.opcode, dtype, max(x.shape[-1], 1))
    return _of_finite(allowed * lengths).reshape(want.shape)


# -- normalization ---------------------------------------------------------------------------------


def _of_rows(problem: Problem, want: Array, dtype: DType) -> Array:
    """What is rounded off of the sums of a row counts relative to its results."""
    length = int(np.prod(_first(problem).shape[int(str(problem.attributes["axis"])) :]))
    roundings = of_many_roundings(problem.opcode, dtype, max(length, 1))
    share = roundings / tolerance(problem.opcode, dtype)
    return share * _of_largest(problem, want, dtype)


def _of_normalized(problem: Problem, want: Array, dtype: DType) -> Array:
    """What is rounded off of the mean of a row counts, as that of x, in deviations."""
    allowed, x = _of_largest(problem, want, dtype), _operand(problem, 1)
    if x.size == 0:
        return allowed
    rows = x.reshape(_rows(problem, x.shape), -1)
    deviations = np.sqrt(rows.var(axis=1) + float(str(problem.attributes["epsilon"])))
    return allowed * (1 + float((np.abs(rows.mean(axis=1)) / deviations).max()))


def _rows(problem: Problem, shape: tuple[int, ...]) -> int:
    """How many rows are normalized by themselves."""
    if problem.opcode == "LayerNormalizationGrad":
        return int(np.prod(shape[: int(str(problem.attributes["axis"]))]))
    return shape[0] * int(str(problem.attributes.get("num_groups", shape[1])))


def _of_places(problem: Problem, want: Array, dtype: DType) -> Array:
    """Where several elements go to one place, any of them may be there."""
    del dtype
    places = _operand(problem, 1)
    return np.full(want.shape, 0 if len(np.unique(places)) == places.size else np.inf)


_BOUNDS: Final[dict[str, Callable[[Problem, Array, DType], Array]]] = {
    "Attention": _of_attention,
    "Det": _of_determinant,
    "GroupNormalizationGrad": _of_normalized,
    "InstanceNormalizationGrad": _of_normalized,
    "Inverse": _of_inverse,
    "LayerNormalization": _of_rows,
    "LayerNormalizationGrad": _of_normalized,
    "LogSoftmaxGrad": _of_softmax_gradient,
    "MaxUnpool": _of_places,
    "RMSNormalization": _of_rows,
    "ReduceL1": _of_sum,
    "ReduceL2": _of_sum,
    "ReduceLogSumExp": _of_log_of_sum,
    "ReduceMean": _of_sum,
    "ReduceProd": _of_product,
    "ReduceSum": _of_sum,
    "ReduceSumSquare": _of_sum,
    "SoftmaxGrad": _of_softmax_gradient,
}
