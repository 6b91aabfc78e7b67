"""Products of one turned matrix with several others as one call, which has a native form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call

__all__ = ["MOST_RIGHT", "CommonLeft", "common_left"]

MOST_RIGHT: Final = 2  # matrices of the native form


class CommonLeft(NamedTuple):
    """Operands of ``left.T @ right`` for each right matrix.

    Attributes:
        left: [K, M].
        products: The right matrices, [K, N], each with its result, [M, N].
    """

    left: Array
    products: Sequence[tuple[Array, Array]]


def common_left(calls: Sequence[Call], operands: CommonLeft) -> None:
    """Run the calls of all products, which work on ``operands``."""
    del operands
    for call in calls:
        call()
