"""Matrix products, by BLAS wherever numpy can hand the operands over as they lie.

numpy calls BLAS for float matrices whose rows (or columns) are contiguous; anything else is
multiplied by a plain loop, a hundred times slower.  So operands that BLAS cannot take are copied
once, float16 passes through float32, and a batch of matrices times one matrix becomes a single
product.  Integer products stay exact in numpy's own loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel, pure
from popc_runtime.kernels.copying import copy_calls
from popc_runtime.kernels.epilogue import epilogue_calls, has_epilogue, in_float32
from popc_runtime.kernels.parallel import parallel_calls
from popc_runtime.kernels.sharing import even_slices, share_count

__all__ = ["KERNELS", "blas_ready", "merged_view"]

# With an epilogue, rows are multiplied in blocks whose results stay in the cache until it has run.
_BLOCK_BYTES: Final = 1 << 20
_BLOCK_ROWS: Final = 128  # fewer would waste time on packing the right operand again
_FEW_ROWS: Final = 64  # smaller matrices of a batch are better copied than multiplied one by one


def blas_ready(matrix: Array) -> bool:
    """Whether BLAS can take the last two dimensions as they lie, transposed or not."""
    rows, columns = matrix.shape[-2:]
    down, across = (stride // matrix.itemsize for stride in matrix.strides[-2:])
    along_rows = across == 1 and (down >= columns or rows == 1)
    along_columns = down == 1 and (across >= rows or columns == 1)
    return matrix.dtype.kind == "f" and (along_rows or along_columns)


def merged_view(array: Array, shape: tuple[int, ...]) -> Array | None:
    """``array`` reshaped to ``shape`` if that needs no copy."""
    view = array.reshape(shape)
    return view if np.may_share_memory(view, array) else None


def _matmul(binding: Binding) -> Calls:
    """A, B, [bias], [residual]; shapes as numpy's ``@``."""
    a, b, out = binding.input(0), binding.input(1), binding.output()
    absent = [axis for axis, array in ((-2, a), (-1, b)) if array.ndim == 1]
    addends = [_expanded(binding.optional(index), out.shape, absent) for index in (2, 3)]
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    result = out.reshape(_with_axes(out.shape, absent))
    calls, left, right = _operands(binding, left, right)
    return (*calls, *_product(binding, left, right, result, addends))


def _with_axes(shape: tuple[int, ...], absent: Sequence[int]) -> tuple[int, ...]:
    """``shape`` with dimensions of one at those of the last two places that are absent."""
    if len(absent) == 2:
        return (1, 1)
    if not absent:
        return shape
    return (*shape[:-1], 1, shape[-1]) if absent == [-2] else (*shape, 1)


def _expanded(array: Array | None, shape: tuple[int, ...], absent: Sequence[int]) -> Array | None:
    if array is None or not absent:
        return array
    return np.broadcast_to(array, shape).reshape(_with_axes(shape, absent))


def _operands(binding: Binding, left: Array, right: Array) -> tuple[tuple[Call, ...], Array, Array]:
    """Both operands as BLAS wants them, and the calls that copy what it cannot take."""
    calls: list[Call] = []
    ready: list[Array] = []
    for index, array in enumerate((left, right)):
        if array.dtype.kind != "f" or array.size == 0 or blas_ready(array):
            ready.append(array)
        elif binding.is_constant(index):
            ready.append(np.ascontiguousarray(array))
        else:
            packed = binding.scratch.take(array.shape, array.dtype)
            calls += copy_calls(packed, array)
            ready.append(packed)
    return tuple(calls), ready[0], ready[1]


def _product(
    binding: Binding, left: Array, right: Array, out: Array, addends: Sequence[Array | None]
) -> Iterator[Call]:
    """The product ``left @ right`` and the epilogue, all [..., rows, columns]."""
    if out.size == 0:
        return
    if right.ndim == 2 and left.ndim > 2:
        copies, flat = _flattened(binding, left)
        if flat is not None:
            yield from copies
            columns = out.shape[-1]
            rows = [_rows(addend, out.shape) for addend in addends]
            yield from _matrix(binding, flat, right, out.reshape(-1, columns), rows)
        else:
            yield from _batch(binding, left, right, out, addends)
    elif left.ndim == right.ndim == 2:
        yield from _matrix(binding, left, right, out, addends)
    else:
        yield from _batch(binding, left, right, out, addends)


def _flattened(binding: Binding, left: Array) -> tuple[tuple[Call, ...], Array | None]:
    """A batch [..., rows, inner] as one matrix, if that is free or cheap."""
    shape = (-1, left.shape[-1])
    if left.shape[-1] == 0:
        return (), None
    view = merged_view(left, shape)
    if view is not None or left.shape[-2] >= _FEW_ROWS:
        return (), view
    packed = binding.scratch.take(left.shape, left.dtype)
    return copy_calls(packed, left), packed.reshape(shape)


def _rows(addend: Array | None, shape: tuple[int, ...]) -> Array | None:
    """An addend of a batch of matrices, for the same as one matrix."""
    if addend is None or addend.ndim <= 1:
        return addend
    return np.broadcast_to(addend, shape).reshape(-1, shape[-1])


def _matrix(
    binding: Binding, left: Array, right: Array, out: Array, addends: Sequence[Array | None]
) -> tuple[Call, ...]:
    """Two matrices; threads share the longer side, which repeats the packing of the shorter."""
    rows, columns = out.shape
    shares = share_count(multiplications=out.size * left.shape[1])
    full = [None if a is None else np.broadcast_to(a, out.shape) for a in addends]
    if columns > rows:
        parts = [(slice(None), part) for part in even_slices(columns, shares)]
    else:
        parts = [(part, slice(None)) for part in even_slices(rows, shares)]
    chunks = [
        partial(
            _by_rows,
            binding,
            left[part[0]],
            right[:, part[1]],
            out[part],
            [None if addend is None else addend[part] for addend in full],
        )
        for part in parts
    ]
    return parallel_calls(binding.scratch, chunks)


def _by_rows(
    binding: Binding, left: Array, right: Array, out: Array, addends: Sequence[Array | None]
) -> Iterator[Call]:
    """Two matrices; in blocks of rows if an epilogue follows."""
    rows, columns = out.shape
    block = rows
    if has_epilogue(binding, addends):
        block = max(_BLOCK_ROWS, _BLOCK_BYTES // (columns * out.itemsize))
        block = -(-rows // max(1, rows // block))
    for start in range(0, rows, block):
        part = slice(start, start + block)
        yield partial(np.matmul, left[part], right, out=out[part])
        added = [None if addend is None else addend[part] for addend in addends]
        yield from epilogue_calls(binding, out[part], added)


def _batch(
    binding: Binding, left: Array, right: Array, out: Array, addends: Sequence[Array | None]
) -> tuple[Call, ...]:
    """Stacks of matrices, cut along the first axis of the stack that is worth it."""
    axis = next((k for k, dim in enumerate(out.shape[:-2]) if dim > 1), 0)
    length = out.shape[axis] if out.ndim > 2 else 1
    pieces = share_count(multiplications=out.size * left.shape[-1], most=length)
    if has_epilogue(binding, addends):
        pieces = max(pieces, min(length, out.nbytes // _BLOCK_BYTES))
    chunks = []
    for part in even_slices(length, pieces):
        cut = partial(_cut, rank=out.ndim, axis=axis, part=part)
        added = [None if addend is None else cut(addend) for addend in addends]
        chunks.append(partial(_stack, binding, cut(left), cut(right), cut(out), added))
    return parallel_calls(binding.scratch, chunks)


def _cut(array: Array, rank: int, axis: int, part: slice) -> Array:
    """The ``part`` of what ``array``, broadcast to ``rank`` dimensions, has along ``axis``."""
    own = axis - rank + array.ndim
    if own < 0 or array.shape[own] == 1:
        return array
    return array[(slice(None),) * own + (part,)]


def _stack(
    binding: Binding, left: Array, right: Array, out: Array, addends: Sequence[Array | None]
) -> Iterator[Call]:
    yield partial(np.matmul, left, right, out=out)
    yield from epilogue_calls(binding, out, addends)


def _gemm(binding: Binding) -> Calls:
    """The sum alpha * A' @ B' + beta * C, [residual]; ' is an optional transpose."""
    a, b, out = binding.input(0), binding.input(1), binding.output()
    alpha, beta = binding.number("alpha", 1.0), binding.number("beta", 1.0)
    if out.dtype.kind != "f" and (alpha, beta) != (1.0, 1.0):
        return pure(_scaled_integers)(binding)
    left = a.T if binding.integer("transA", 0) else a
    right = b.T if binding.integer("transB", 0) else b
    if alpha != 1 and binding.is_constant(1):
        right = right * right.dtype.type(alpha)
        alpha = 1.0
    before, left, right = _operands(binding, left, right)
    scaled, bias = _scaled_bias(binding, beta)
    residual = binding.optional(3)
    if alpha == 1:
        return (*before, *scaled, *_product(binding, left, right, out, (bias, residual)))
    scale = partial(np.multiply, out, out.dtype.type(alpha), out=out)
    product = partial(np.matmul, left, right, out=out)
    return (*before, *scaled, product, scale, *epilogue_calls(binding, out, (bias, residual)))


def _scaled_bias(binding: Binding, beta: float) -> tuple[tuple[Call, ...], Array | None]:
    bias = binding.optional(2)
    if bias is None or beta == 0:
        return (), None
    if beta == 1:
        return (), bias
    factor = bias.dtype.type(beta)
    if binding.is_constant(2):
        return (), bias * factor
    scaled = binding.scratch.take(bias.shape, bias.dtype)
    return (partial(np.multiply, bias, factor, out=scaled),), scaled


def _scaled_integers(binding: Binding) -> Array:
    """Integers with float factors: computed in float64 and truncated."""
    a, b, c = binding.input(0), binding.input(1), binding.optional(2)
    left = a.T if binding.integer("transA", 0) else a
    right = b.T if binding.integer("transB", 0) else b
    result: Array = binding.number("alpha", 1.0) * (left @ right).astype(np.float64)
    if c is not None:
        result = result + binding.number("beta", 1.0) * c
    residual = binding.optional(3)
    return result if residual is None else result + residual


def _det(binding: Binding) -> Array:
    """Determinants of [..., n, n], by LU factorisation."""
    result: Array = np.linalg.det(binding.input(0))
    return result


def _inverse(binding: Binding) -> Array:
    """Inverses of [..., n, n]; all NaN for a singular matrix."""
    x = binding.input(0)
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        singular = np.linalg.det(x)[..., None, None] == 0
        return np.linalg.inv(np.where(singular, np.nan, x))


KERNELS: Final[dict[str, Kernel]] = {
    "Det": in_float32(pure(_det)),
    "Gemm": in_float32(_gemm),
    "Inverse": in_float32(pure(_inverse)),
    "MatMul": in_float32(_matmul),
}
