"""Products with matrices that are stored in 2, 4 or 8 bits a number.

Operands are a [..., K], the numbers [N, blocks, bytes], low bits of each byte first, a scale for
each block of a row [N, blocks], and if they are present: zero points, packed like the numbers, a
row in whole bytes, or floats [N, blocks]; the block of each number of a row, int32 [K]; a bias [N].

If they are ``rounded``, each block of a row of a becomes whole multiples, up to 127, of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.matmul import KERNELS as PRODUCTS

__all__ = ["KERNELS", "dequantized"]

_WEIGHTS: Final = (1, 2, 3, 4)  # operands
_STEPS: Final = 127  # from zero to the largest number of a block


def _matmul(binding: Binding) -> Calls:
    """a @ w.T plus the bias, w being [N, K]; if ``transposed``, a @ w."""
    out = binding.output()
    work = np.float64 if out.dtype == np.float64 else np.float32
    weights, calls = _weights(binding, work)
    wide = [_widened(binding, binding.optional(index), work) for index in (0, 5)]
    if binding.integer("rounded", 0):
        wide[0] = _rounded(binding, *wide[0])
    result = out if out.dtype == work else binding.scratch.take(out.shape, work)
    inner = replace(
        binding,
        inputs=(
            wide[0][0],
            weights if binding.integer("transposed", 0) else weights.T,
            wide[1][0],
        ),
        outputs=(result,),
        input_dtypes=(DType.of(result.dtype),) * 3,
        output_dtypes=(DType.of(result.dtype),),
        attributes={},
        constant=(False, not calls, False),
    )
    product = PRODUCTS["MatMul"](inner)
    listed = product if isinstance(product, tuple) else (product,)
    after = () if result is out else (partial(np.copyto, out, result, casting="unsafe"),)
    return (*calls, *wide[0][1], *wide[1][1], *listed, *after)


def _widened(
    binding: Binding, array: Array | None, work: type
) -> tuple[Array | None, tuple[Call, ...]]:
    """An operand in the type of the sums, and the call that makes it so."""
    if array is None or array.dtype == work:
        return array, ()
    wide = binding.scratch.take(array.shape, work)
    return wide, (partial(np.copyto, wide, array),)


def _rounded(
    binding: Binding, array: Array | None, calls: tuple[Call, ...]
) -> tuple[Array, tuple[Call, ...]]:
    """An operand with blocks of multiples of the 127th part of their largest number."""
    assert array is not None
    block, columns = binding.integer("block_size"), array.shape[-1]
    blocks = -(-columns // block)
    rounded = binding.scratch.take(array.shape, array.dtype.type)
    padded = np.zeros((*array.shape[:-1], blocks * block), array.dtype)

    def compute() -> None:
        padded[..., :columns] = array
        parts = padded.reshape(*array.shape[:-1], blocks, block)
        largest = np.abs(parts).max(axis=-1, keepdims=True)
        inverse = array.dtype.type(_STEPS) / largest
        inverse[~np.isfinite(inverse)] = 0
        numbers = np.rint(parts * inverse) * (largest / _STEPS)
        np.copyto(rounded, numbers.reshape(padded.shape)[..., :columns])

    return rounded, (*calls, compute)


def _weights(binding: Binding, work: type) -> tuple[Array, tuple[Call, ...]]:
    """The numbers as floats [N, K], and the calls that compute them unless they are final."""
    compute = _dequantized(binding, work)
    present = [index for index in _WEIGHTS if binding.optional(index) is not None]
    if all(map(binding.is_constant, present)):
        return compute(), ()
    weights = binding.scratch.take((binding.input(1).shape[0], binding.integer("K")), work)
    return weights, (lambda: np.copyto(weights, compute()),)


def _dequantized(binding: Binding, work: type) -> Callable[[], Array]:
    packed, scale = binding.input(1), binding.input(2)
    zero, groups = binding.optional(3), binding.optional(4)
    bits, block, columns = (binding.integer(name) for name in ("bits", "block_size", "K"))
    blocks = scale.shape[1]

    def compute() -> Array:
        places = np.arange(columns) // block if groups is None else groups
        if groups is not None and columns and not 0 <= places.min() <= places.max() < blocks:
            raise IndexError(f"a group index is out of range for {blocks} blocks")
        return dequantized(packed, scale, zero, places, bits, work)

    return compute


def dequantized(
    packed: Array, scale: Array, zero: Array | None, places: Array, bits: int, work: type
) -> Array:
    """The matrix [N, K] as floats of type ``work``; ``places`` are the blocks of its columns."""
    blocks = scale.shape[1]
    numbers: Array = _unpacked(packed, bits, len(places)).astype(work)
    numbers -= 1 << (bits - 1) if zero is None else _zeros(zero, bits, blocks)[:, places]
    numbers *= scale.astype(work)[:, places]
    return numbers


def _zeros(zero: Array, bits: int, blocks: int) -> Array:
    """The zero points as numbers [N, blocks]."""
    return _unpacked(zero, bits, blocks) if zero.dtype == np.uint8 else zero


def _unpacked(packed: Array, bits: int, columns: int) -> Array:
    """The first numbers of each row, [rows, columns]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = packed.reshape(len(packed), -1, 1) >> shifts & np.uint8((1 << bits) - 1)
    return fields.reshape(len(packed), -1)[:, :columns]


KERNELS: Final[dict[str, Kernel]] = {"MatMulNBits": _matmul}
