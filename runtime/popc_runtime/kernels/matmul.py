"""Matrix products, by BLAS wherever numpy can hand the operands over as they lie.

numpy calls BLAS for float matrices whose rows (or columns) are contiguous; anything else is
multiplied by a plain loop, a hundred times slower.  So operands that BLAS cannot take are copied
once, float16 passes through float32, and a batch of matrices times one matrix becomes a single
product.  Integer products stay exact in numpy's own loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, pure
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.copying import copy_calls
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.epilogue import epilogue_calls, has_epilogue, in_float32
from popc_runtime.kernels.parts.partials import adds_up_in_half, half_product

__all__ = ["KERNELS", "blas_ready"]

# With an epilogue, rows are multiplied in blocks whose results stay in the cache until it has run.
_BLOCK_BYTES: Final = 1 << 20
_BLOCK_ROWS: Final = 128  # fewer would waste time on packing the right operand again
_BLOCK_COLUMNS: Final = 64  # so many at least for each thread
_LONG: Final = 8192  # so many inner elements are worth sharing
_LONG_SHARES: Final = 2  # parts of such a sum: more would be more sums to add up afterwards
_FEW_ROWS: Final = 64  # smaller matrices of a batch are better copied than multiplied one by one
# OpenBLAS copies ("packs") the operands of a product that has more multiplications than this.
_UNPACKED: Final = 1_000_000
_FEWEST_ROWS: Final = 6  # of a product for which packing the right operand costs more than it gains
_MOST_PLAIN: Final = 1 << 28  # multiplications of a call without BLAS: some tenths of a second
_MOST_CALLS: Final = 4096
_LINE: Final = 32  # columns: two lines of memory, and a multiple of what BLAS multiplies at once


def blas_ready(matrix: Array) -> bool:
    """True if BLAS can take the last two dimensions as they lie, transposed or not."""
    rows, columns = matrix.shape[-2:]
    down, across = (stride // matrix.itemsize for stride in matrix.strides[-2:])
    along_rows = across == 1 and (down >= columns or rows == 1)
    along_columns = down == 1 and (across >= rows or columns == 1)
    return matrix.dtype.kind == "f" and (along_rows or along_columns)


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
    return np.broadcast_to(array, shape, subok=True).reshape(_with_axes(shape, absent))


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
) -> tuple[Call, ...]:
    """The product ``left @ right`` and the epilogue, all [..., rows, columns]."""
    if out.size == 0:
        return ()
    copies: tuple[Call, ...] = ()
    full = [None if a is None else np.broadcast_to(a, out.shape, subok=True) for a in addends]
    product = _Product(left, right, out, full)
    if right.ndim == 2 and left.ndim > 2:
        copies, product = _flattened(binding, product)
    if adds_up_in_half(binding):
        sums = half_product(binding, product.left, product.right, product.out)
        return (*copies, *sums, *epilogue_calls(binding, product.out, product.addends))
    if product.is_long():
        return (*copies, *_long_product(binding, product))
    chunks = [partial(_product_calls, binding, share) for share in product.shares()]
    return (*copies, *parallel_calls(binding.scratch, chunks))


def _long_product(binding: Binding, product: _Product) -> Iterator[Call]:
    """A sum of products of parts of the inner dimension, which threads share."""
    left, right, out = product.left, product.right, product.out
    parts = even_slices(left.shape[-1], _LONG_SHARES)
    sums = [out, *binding.scratch.take((len(parts) - 1, *out.shape), out.dtype)]
    chunks = [
        partial(_multiply, left[:, part], right[part], total)
        for part, total in zip(parts, sums, strict=True)
    ]
    yield from parallel_calls(binding.scratch, chunks)
    yield from (partial(np.add, out, total, out=out) for total in sums[1:])
    yield from epilogue_calls(binding, out, product.addends)


@dataclass(frozen=True, slots=True)
class _Product:
    """Operands and result [..., rows, columns], and addends of the result's shape."""

    left: Array
    right: Array
    out: Array
    addends: Sequence[Array | None]

    def shares(self) -> list[_Product]:
        """Parts of similar size: of a batch, else of rows, else of columns."""
        inner = self.left.shape[-1]
        most = share_count(multiplications=self.out.size * inner, elements=self.out.size)
        *batch, rows, columns = self.out.shape
        if batch and max(batch) >= most:
            axis = batch.index(max(batch)) - self.out.ndim
            return [self._batch(axis, part) for part in even_slices(max(batch), most)]
        for count in range(1 if batch else most, 1, -1):
            if rows >= count * _BLOCK_ROWS:
                return [self._rows(part) for part in even_slices(rows, count)]
            if columns >= count * _BLOCK_COLUMNS:
                return [self._columns(part) for part in even_slices(columns, count)]
        return [self]

    def is_long(self) -> bool:
        """True if the result is too small to be shared, but the inner dimension is not."""
        if self.out.ndim > 2 or self.out.dtype.kind != "f" or self.left.shape[1] < _LONG:
            return False
        rows, columns = self.out.shape
        small = rows < 2 * _BLOCK_ROWS and columns < 2 * _BLOCK_COLUMNS
        return small and share_count(multiplications=self.left.size * columns) >= _LONG_SHARES

    def _batch(self, axis: int, part: slice) -> _Product:
        left, right, out, *addends = (
            _along(array, axis, part) for array in (self.left, self.right, self.out, *self.addends)
        )
        assert left is not None and right is not None and out is not None  # noqa: PT018
        return _Product(left, right, out, addends)

    def _rows(self, part: slice) -> _Product:
        addends = [None if a is None else a[part] for a in self.addends]
        return _Product(self.left[part], self.right, self.out[part], addends)

    def _columns(self, part: slice) -> _Product:
        addends = [None if a is None else a[:, part] for a in self.addends]
        return _Product(self.left, self.right[:, part], self.out[:, part], addends)


def _along(array: Array | None, axis: int, part: slice) -> Array | None:
    """A part of an axis, counted from the end, unless the array is broadcast along it."""
    if array is None or array.ndim < -axis or array.shape[axis] == 1:
        return array
    index: tuple[Any, ...] = (..., part, *(slice(None),) * (-axis - 1))
    part_of: Array = array[index]
    return part_of


def _product_calls(binding: Binding, product: _Product) -> Iterator[Call]:
    """Two matrices are multiplied in blocks of rows if an epilogue follows."""
    out = product.out
    if out.ndim > 2 or not has_epilogue(binding, product.addends):
        yield from _multiply(product.left, product.right, out)
        yield from epilogue_calls(binding, out, product.addends)
        return
    rows, columns = out.shape
    block = max(_BLOCK_ROWS, _BLOCK_BYTES // (columns * out.itemsize))
    for part in even_slices(rows, max(1, rows // block)):
        added = [None if addend is None else addend[part] for addend in product.addends]
        yield from _multiply(product.left[part], product.right, out[part])
        yield from epilogue_calls(binding, out[part], added)


def _multiply(left: Array, right: Array, out: Array) -> Iterator[Call]:
    """A product of a few rows is cut into ones small enough that BLAS does not pack the operand."""
    rows, inner = left.shape[-2:]
    if out.dtype.kind != "f" and out.size * inner > _MOST_PLAIN:
        yield from _multiply_by_parts(left, right, out)
        return
    columns = _UNPACKED // max(1, rows * inner) // _LINE * _LINE
    if out.ndim > 2 or not 2 <= rows <= _FEWEST_ROWS or not _LINE <= columns < out.shape[-1]:
        yield partial(np.matmul, left, right, out=out)
        return
    for start in range(0, out.shape[-1], columns):
        part = slice(start, start + columns)
        yield partial(np.matmul, left, right[:, part], out=out[:, part])


def _multiply_by_parts(left: Array, right: Array, out: Array) -> Iterator[Call]:
    """A product that BLAS does not compute: it can take hours, and runs stop between calls."""
    sizes = out.shape[:-1]
    axis = sizes.index(max(sizes)) - out.ndim
    count = min(-(-out.size * left.shape[-1] // _MOST_PLAIN), _MOST_CALLS)
    for part in even_slices(max(sizes), count):
        factor = right if axis == -2 else _along(right, axis, part)
        yield partial(np.matmul, _along(left, axis, part), factor, out=_along(out, axis, part))


def _flattened(binding: Binding, product: _Product) -> tuple[tuple[Call, ...], _Product]:
    """A batch of left operands and one right one as a single product, if that is free or cheap."""
    left, shape = product.left, (-1, product.out.shape[-1])
    addends = [None if a is None else merged_view(a, shape) for a in product.addends]
    lost = any(a is not None and b is None for a, b in zip(product.addends, addends, strict=True))
    if lost or left.size == 0:
        return (), product
    calls: tuple[Call, ...] = ()
    flat = merged_view(left, (-1, left.shape[-1]))
    if flat is None and left.shape[-2] >= _FEW_ROWS:
        return (), product
    if flat is None:
        packed = binding.scratch.take(left.shape, left.dtype)
        calls, flat = copy_calls(packed, left), packed.reshape(-1, left.shape[-1])
    return calls, _Product(flat, product.right, product.out.reshape(shape), addends)


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
    product: Iterable[Call] = (partial(np.matmul, left, right, out=out),)
    if adds_up_in_half(binding):
        product = half_product(binding, left, right, out)
    return (*before, *scaled, *product, scale, *epilogue_calls(binding, out, (bias, residual)))


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


def _det_grad(binding: Binding) -> Array:
    """G [...] times the cofactors of X [..., n, n], singular or not.

    With X = U S V, those of S are the products of its other elements; determinants of U and V are
    signs.
    """
    g, x = binding.input(0), binding.input(1)
    u, s, v = np.linalg.svd(x)
    size = s.shape[-1]
    others = np.where(np.eye(size, dtype=np.bool_), s.dtype.type(1), s[..., None, :])
    factors = g * np.linalg.det(u) * np.linalg.det(v)
    cofactors = others.prod(axis=-1) * factors[..., None]
    result: Array = (u * cofactors[..., None, :]) @ v
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
    "DetGrad": in_float32(pure(_det_grad)),
    "Gemm": in_float32(_gemm),
    "Inverse": in_float32(pure(_inverse)),
    "MatMul": in_float32(_matmul),
}
