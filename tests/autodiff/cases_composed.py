"""Gradient cases of operators that the importer composes of others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

# Equation and the shapes of its operands: sums, outer and batch products, diagonals, ellipses.
_EQUATIONS: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "ij->ji": ((2, 3),),
    "ijk->j": ((2, 3, 4),),
    "ii->i": ((3, 3),),
    "iij,j": ((3, 3, 2), (2,)),
    "ij,jk->ik": ((2, 3), (3, 4)),
    "i,j->ij": ((2,), (3,)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 2, 4)),
    "...ij,...jk->...ik": ((2, 2, 3), (1, 3, 2)),
    "ij,jk,kl->il": ((2, 3), (3, 2), (2, 4)),
    "bi,bi,b->": ((2, 3), (2, 3), (2,)),
}


def _einsum(equation: str, *shapes: tuple[int, ...]) -> Case:
    operands = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    return Case(
        "Einsum",
        operands,
        {"equation": equation},
        name=equation,
        torch=lambda *x: pytorch().einsum(equation, *x),
    )


def _depth_to_space(x: Any) -> Any:
    """Blocks of 2 by 2 whose place in the depth comes first."""
    batch, depth, height, width = x.shape
    blocks = x.reshape(batch, 2, 2, depth // 4, height, width)
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(batch, depth // 4, 2 * height, 2 * width)


def _space_to_depth(x: Any) -> Any:
    batch, depth, height, width = x.shape
    blocks = x.reshape(batch, depth, height // 2, 2, width // 2, 2)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(batch, 4 * depth, height // 2, width // 2)


CASES: Final[list[Case]] = [
    *(_einsum(equation, *shapes) for equation, shapes in _EQUATIONS.items()),
    Case(
        "CenterCropPad",
        [numbers(5, 3, 4), int64(2, 6)],
        {"axes": [0, 2]},
        constants=(1,),
        torch=lambda x, _: pytorch().nn.functional.pad(x[1:3], (1, 1)),
    ),
    Case("DepthToSpace", [numbers(2, 8, 2, 3)], {"blocksize": 2}, torch=_depth_to_space),
    Case(
        "DepthToSpace",
        [numbers(2, 8, 2, 3)],
        {"blocksize": 2, "mode": "CRD"},
        name="CRD",
        torch=lambda x: pytorch().pixel_shuffle(x, 2),
    ),
    Case("SpaceToDepth", [numbers(2, 3, 4, 6)], {"blocksize": 2}, torch=_space_to_depth),
    Case(
        "Compress",
        [numbers(3, 4), np.array([True, False, True, True])],
        {"axis": 1},
        constants=(1,),
        torch=lambda x, condition: x[:, condition],
    ),
    Case("Compress", [numbers(2, 3), np.array([False, True, True])], name="flat", constants=(1,)),
]
