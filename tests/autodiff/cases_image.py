"""Gradient cases of GridSample, and of AffineGrid, which makes its grids."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

_IN_TORCH: Final = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def _grid(*shape: int, reach: float) -> Array:
    """Positions some of which lie outside, none near the cells' edges of the maps below."""
    return np.random.default_rng(3).uniform(-reach, reach, shape)


def _sample(mode: str, padding: str, align: int) -> Callable[..., Any]:
    def function(x: Any, grid: Any) -> Any:
        return pytorch().nn.functional.grid_sample(
            x, grid, _IN_TORCH[mode], padding, align_corners=bool(align)
        )

    return function


def _case(name: str, x: Array, grid: Array, *choice: Any, torch: bool = True, **more: Any) -> Case:
    mode, padding, align = choice
    return Case(
        "GridSample",
        [x, grid],
        {"mode": mode, "padding_mode": padding, "align_corners": align},
        name=f"{name} {mode} {padding} {align}",
        torch=_sample(mode, padding, align) if torch else None,
        **more,
    )


def _affine(theta: Any, size: Any, *, align: bool) -> Any:
    return pytorch().nn.functional.affine_grid(theta, size.tolist(), align_corners=align)


_CHOICES: Final = list(product(_IN_TORCH, ("zeros", "border", "reflection"), (0, 1)))

CASES: Final[list[Case]] = [
    *(_case("2d", numbers(2, 3, 5, 4), _grid(2, 3, 4, 2, reach=1.7), *it) for it in _CHOICES),
    *(
        _case("3d", numbers(1, 2, 3, 4, 3), _grid(1, 2, 3, 2, 3, reach=1.4), *it)
        for it in (("linear", "zeros", 0), ("linear", "reflection", 1), ("nearest", "border", 0))
    ),
    _case("1d", numbers(2, 2, 6), _grid(2, 5, 1, reach=1.3), "cubic", "border", 0, torch=False),
    _case("far", numbers(1, 2, 4, 4), _grid(1, 3, 3, 2, reach=9), "linear", "reflection", 0),
    _case("X", numbers(1, 2, 3, 3), _grid(1, 4, 4, 2, reach=1), "linear", "zeros", 1, frozen=(1,)),
    _case(
        "grid", numbers(1, 2, 3, 3), _grid(1, 2, 2, 2, reach=1), "cubic", "zeros", 0, frozen=(0,)
    ),
    _case(
        "fixed",
        numbers(1, 2, 3, 3),
        _grid(1, 2, 2, 2, reach=1),
        "linear",
        "zeros",
        0,
        constants=(1,),
    ),
    _case("many", numbers(1, 300, 3, 3), _grid(1, 9, 9, 2, reach=1), "linear", "zeros", 0),
    *(
        Case(
            "AffineGrid",
            [numbers(2, dims, dims + 1), int64(2, 1, 3, 4, 2)[: dims + 2]],
            {"align_corners": align},
            name=f"{dims}d {align}",
            constants=(1,),
            torch=lambda theta, size, align=align: _affine(theta, size, align=bool(align)),
        )
        for dims, align in ((2, 0), (2, 1), (3, 1))
    ),
]
