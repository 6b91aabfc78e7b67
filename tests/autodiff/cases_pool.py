"""Gradient cases of pooling and unpooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.autodiff.inputs import distinct, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

_Shape = tuple[int, ...]


def _pool(kind: str, rank: int, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return getattr(pytorch().nn.functional, f"{kind}_pool{rank}d")(x, *arguments, **options)

    return function


def _case(
    op_type: str,
    name: str,
    x: _Shape,
    kernel: _Shape,
    torch: Callable[[Any], Any] | None = None,
    **attributes: Any,
) -> Case:
    return Case(
        op_type,
        [distinct(*x)],
        {"kernel_shape": kernel, **attributes},
        name=name,
        torch=torch,
        tolerance=1e-5 if op_type == "LpPool" else 1e-6,
    )


_AVERAGES: Final = [
    _case("AveragePool", "plain", (2, 3, 6, 8), (2, 2), _pool("avg", 2, 2), strides=(2, 2)),
    _case("AveragePool", "overlapping", (2, 3, 7, 8), (3, 3), _pool("avg", 2, 3, 2, 0),
          strides=(2, 2)),
    _case("AveragePool", "each element", (1, 2, 5, 6), (3, 3),
          _pool("avg", 2, 3, 1, 1, count_include_pad=False), pads=(1, 1, 1, 1)),
    _case("AveragePool", "padding counts", (1, 2, 5, 6), (3, 2),
          _pool("avg", 2, (3, 2), (2, 1), (1, 1)),
          pads=(1, 1, 1, 1), strides=(2, 1), count_include_pad=1),
    _case("AveragePool", "partial windows", (1, 2, 6, 7), (3, 2),
          _pool("avg", 2, (3, 2), 2, (1, 1), ceil_mode=True, count_include_pad=False),
          pads=(1, 1, 1, 1), strides=(2, 2), ceil_mode=1),
    _case("AveragePool", "partial windows, padding counts", (1, 2, 6, 7), (3, 3),
          _pool("avg", 2, 3, 2, 1, ceil_mode=True),
          pads=(1, 1, 1, 1), strides=(2, 2), ceil_mode=1, count_include_pad=1),
    _case("AveragePool", "dilations", (1, 2, 9, 8), (3, 2), dilations=(2, 3), strides=(2, 1)),
    _case("AveragePool", "gaps", (1, 2, 9, 8), (2, 2), _pool("avg", 2, 2, 4), strides=(4, 4)),
    _case("AveragePool", "one axis", (2, 2, 9), (4,), _pool("avg", 1, 4, 3), strides=(3,)),
    _case("AveragePool", "three axes", (1, 2, 4, 5, 6), (2, 3, 1), _pool("avg", 3, (2, 3, 1), 2),
          strides=(2, 2, 2)),
]  # fmt: skip

_MAXIMA: Final = [
    _case("MaxPool", "plain", (2, 3, 6, 8), (2, 2), _pool("max", 2, 2), strides=(2, 2)),
    _case("MaxPool", "rest", (2, 3, 7, 9), (2, 2), _pool("max", 2, 2), strides=(2, 2)),
    _case("MaxPool", "overlapping", (2, 3, 9, 8), (3, 3), _pool("max", 2, 3, 2, 1),
          strides=(2, 2), pads=(1, 1, 1, 1)),
    _case("MaxPool", "each element", (1, 2, 5, 6), (3, 3), _pool("max", 2, 3, 1, 1),
          pads=(1, 1, 1, 1)),
    _case("MaxPool", "uneven padding", (1, 2, 5, 6), (3, 4), pads=(2, 0, 1, 3), strides=(2, 3)),
    _case("MaxPool", "partial windows", (1, 2, 6, 8), (3, 3),
          _pool("max", 2, 3, 2, ceil_mode=True), strides=(2, 2), ceil_mode=1),
    _case("MaxPool", "dilations", (1, 2, 9, 8), (3, 2), _pool("max", 2, (3, 2), 2, 1, (2, 3)),
          dilations=(2, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    _case("MaxPool", "gaps", (1, 2, 9, 8), (2, 1), _pool("max", 2, (2, 1), 3), strides=(3, 3)),
    _case("MaxPool", "one axis", (2, 2, 9), (4,), _pool("max", 1, 4, 2), strides=(2,)),
    _case("MaxPool", "three axes", (1, 2, 4, 5, 6), (2, 3, 2), _pool("max", 3, (2, 3, 2), 2, 1),
          strides=(2, 2, 2), pads=(1,) * 6),
    Case(
        "MaxPool",
        [distinct(1, 2, 4, 6)],
        {"kernel_shape": (2, 2), "strides": (2, 2), "storage_order": 1},
        name="with indices",
        outputs=2,
    ),
]  # fmt: skip


def _equal_elements() -> Array:
    """Windows with several maxima."""
    return np.random.default_rng(3).integers(0, 2, (2, 3, 7, 8)).astype(np.float64)


_EQUAL: Final = [
    Case(
        "MaxPool",
        [_equal_elements()],
        {"kernel_shape": (3, 3), "strides": (stride, stride), "pads": (1, 1, 1, 1)},
        name=f"equal elements, stride {stride}",
        smooth=False,
        torch=_pool("max", 2, 3, stride, 1),
    )
    for stride in (1, 2, 3)
]

_NORMS: Final = [
    *(
        _case("LpPool", f"p {p}", (2, 3, 6, 7), (2, 3),
              _pool("lp", 2, p, (2, 3), 2) if p % 2 == 0 else None,  # PyTorch takes no magnitudes
              p=p, strides=(2, 2))
        for p in (1, 2, 3, 4)
    ),
    _case("LpPool", "padding", (1, 2, 5, 6), (3, 3), pads=(1, 1, 1, 1), strides=(2, 2)),
    Case(
        "LpPool",
        [np.zeros((1, 1, 4, 4))],
        {"kernel_shape": (2, 2), "strides": (2, 2)},
        name="zeros",
        smooth=False,
    ),
]  # fmt: skip

_INDICES: Final = np.array([[[[5, 7], [13, 15]]]], np.int64)

CASES: Final[list[Case]] = [
    *_AVERAGES,
    *_MAXIMA,
    *_EQUAL,
    *_NORMS,
    Case(
        "MaxUnpool",
        [numbers(1, 1, 2, 2), _INDICES],
        {"kernel_shape": (2, 2), "strides": (2, 2)},
        torch=lambda x, i: pytorch().nn.functional.max_unpool2d(x, i, 2),
    ),
    Case(
        "MaxUnpool",
        [numbers(1, 1, 2, 2), _INDICES, np.array([1, 1, 5, 5], np.int64)],
        {"kernel_shape": (2, 2), "strides": (2, 2)},
        name="larger shape",
        constants=(2,),
    ),
    Case("GlobalAveragePool", [numbers(2, 3, 4, 5)], torch=lambda x: x.mean((2, 3), keepdim=True)),
    Case("GlobalMaxPool", [distinct(2, 3, 4, 5)], torch=lambda x: x.amax((2, 3), keepdim=True)),
    *(
        Case("GlobalLpPool", [distinct(2, 3, 4, 5)], {"p": p}, name=f"p {p}", tolerance=1e-5)
        for p in (1, 2, 3)
    ),
]
