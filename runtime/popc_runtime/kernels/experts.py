"""Products with matrices of which each row chooses one: the rows of each expert at once.

Operands are x [R, K], the expert of each row, matrices [E, N, K], and an optional bias [E, N]; or
numbers, scales and zero points of the matrices, as `popc_runtime.kernels.nbits` describes them,
with the experts in front.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.nbits import dequantized

__all__ = ["KERNELS"]

_Matrix: TypeAlias = Callable[[int], Array]  # [N, K] of an expert, in the type of the sums


def _product(binding: Binding) -> Calls:
    weights, work = binding.input(2), _sums(binding)
    return _by_expert(
        binding, len(weights), lambda expert: weights[expert].astype(work, copy=False), 3
    )


def _few_bits(binding: Binding) -> Calls:
    packed, scale, zero = binding.input(2), binding.input(3), binding.optional(4)
    bits, block, columns = (binding.integer(name) for name in ("bits", "block_size", "K"))
    work = _sums(binding)

    def matrix(expert: int) -> Array:
        of_one = None if zero is None else zero[expert]
        places = np.arange(columns) // block
        return dequantized(packed[expert], scale[expert], of_one, places, bits, work)

    return _by_expert(binding, len(packed), matrix, 5)


def _sums(binding: Binding) -> type:
    return np.float64 if binding.output().dtype == np.float64 else np.float32


def _by_expert(binding: Binding, experts: int, matrix: _Matrix, bias_index: int) -> Calls:
    x, choice, out = binding.input(0), binding.input(1), binding.output()
    bias, work = binding.optional(bias_index), _sums(binding)

    def compute() -> None:
        if choice.size and not 0 <= choice.min() <= choice.max() < experts:
            raise IndexError(f"the number of an expert is out of range for {experts}")
        for expert in np.unique(choice):
            rows = np.flatnonzero(choice == expert)
            product: Array = x[rows].astype(work, copy=False) @ matrix(expert).T
            if bias is not None:
                product += bias[expert].astype(work, copy=False)
            out[rows] = product.astype(out.dtype, copy=False)

    return compute


KERNELS: Final[dict[str, Kernel]] = {
    "ExpertMatMul": _product,
    "ExpertMatMulNBits": _few_bits,
}
