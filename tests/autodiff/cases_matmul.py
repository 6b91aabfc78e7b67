"""Gradient cases of matrix products, determinants and inverses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.autodiff.inputs import numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

_SHAPES: Final = {
    "plain": ((3, 4), (4, 5)),
    "inner": ((4,), (4,)),
    "row": ((4,), (4, 3)),
    "column": ((3, 4), (4,)),
    "row times many": ((4,), (2, 4, 3)),
    "many times column": ((2, 3, 4), (4,)),
    "batch": ((2, 3, 4), (2, 4, 5)),
    "many times one": ((2, 3, 4, 5), (5, 2)),
    "one times many": ((3, 4), (2, 2, 4, 5)),
    "crossed": ((2, 1, 3, 4), (5, 4, 2)),
    "repeated": ((1, 3, 4), (6, 4, 2)),
    "single": ((1, 1), (1, 1)),
}


def _gemm(
    turn_a: int, turn_b: int, alpha: float = 1.0, beta: float = 1.0
) -> Callable[[Any, Any, Any], Any]:
    def function(a: Any, b: Any, c: Any) -> Any:
        product = (a.T if turn_a else a) @ (b.T if turn_b else b)
        return alpha * product + beta * c

    return function


def _square(*shape: int, seed: int = 0) -> Array:
    """Matrices far from singular."""
    return numbers(*shape, seed=seed) + 3 * np.eye(shape[-1])


def _singular(rank: int) -> Array:
    return numbers(4, rank) @ numbers(rank, 4, seed=1)


CASES: Final[list[Case]] = [
    *(
        Case(
            "MatMul",
            [numbers(*a), numbers(*b, seed=1)],
            name=name,
            torch=lambda a, b: pytorch().matmul(a, b),
        )
        for name, (a, b) in _SHAPES.items()
    ),
    Case("MatMul", [numbers(2, 3, 4), numbers(4, 5)], name="weights only", frozen=(0,)),
    Case("MatMul", [numbers(0, 4), numbers(4, 5)], name="empty"),
    *(
        Case(
            "Gemm",
            [
                numbers(*((4, 3) if turn_a else (3, 4))),
                numbers(*((5, 4) if turn_b else (4, 5)), seed=1),
                numbers(5, seed=2),
            ],
            {"transA": turn_a, "transB": turn_b, "alpha": 0.7, "beta": -1.5},
            name=f"{turn_a}{turn_b}",
            torch=_gemm(turn_a, turn_b, 0.7, -1.5),
        )
        for turn_a in (0, 1)
        for turn_b in (0, 1)
    ),
    *(
        Case(
            "Gemm",
            [numbers(3, 4), numbers(4, 5, seed=1), numbers(*shape, seed=2)],
            name=f"bias {len(shape)}{shape[:1]}",
            torch=_gemm(0, 0),
        )
        for shape in ((), (1,), (3, 1), (1, 5), (3, 5))
    ),
    Case("Gemm", [numbers(3, 4), numbers(4, 5, seed=1)], {"alpha": 2.0}, name="no bias"),
    Case("Gemm", [numbers(3, 4), numbers(4, 5)], name="weights only", frozen=(0,)),
    *(
        Case(
            "MatMulNBits",
            [
                numbers(2, 3, 40),
                np.random.default_rng(2).integers(0, 256, (6, 3, 2 * bits), dtype=np.uint8),
                numbers(6, 3, seed=1),
                numbers(6, 3, seed=3) if zero else None,
                np.arange(40, dtype=np.int32) % 3 if zero else None,
                numbers(6, seed=4),
            ],
            {"K": 40, "N": 6, "bits": bits, "block_size": 16},
            name=f"{bits}{'-groups' if zero else ''}",
            domain="com.microsoft",
            constants=(1, 4),
        )
        for bits in (2, 4, 8)
        for zero in (False, True)
    ),
    Case("Det", [_square(3, 3)], torch=lambda x: pytorch().det(x)),
    Case("Det", [numbers(2, 3, 4, 4)], name="batch", torch=lambda x: pytorch().det(x)),
    Case("Det", [numbers(2, 1, 1)], name="single"),
    Case("Det", [_singular(3)], name="singular"),
    Case("Det", [_singular(2)], name="very singular"),
    Case(
        "Inverse",
        [_square(2, 3, 3)],
        domain="com.microsoft",
        torch=lambda x: pytorch().inverse(x),
    ),
    Case("Einsum", [numbers(2, 3, 4), numbers(4, 5, seed=1)], {"equation": "bij,jk->bki"}),
]
