"""Gradient cases of scatter ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.autodiff.inputs import distinct, int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

# Reductions of ONNX, and what PyTorch calls them.
_REDUCTIONS: Final = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}

_APART: Final = int64([[0, 2, 1, -1], [1, 0, 2, 1]])
_REPEATED: Final = int64([[0, 2, 2, -1], [0, 0, 2, 1], [0, 1, 1, 1]])

_DATA: Final = distinct(3, 4)
_UPDATES: Final = distinct(3, 4, seed=1) + 0.01
_WITH_ZEROS: Final = np.where(np.eye(3, 4) > 0, 0, _UPDATES)
# Ties between data and updates, and among updates.
_TIES: Final = np.array([[1.0, 2, 3, 1], [2.0, 3, 3, 3], [1.0, 2, 1, 2]])


def _reduce(reduction: str) -> Callable[..., Any]:
    def function(data: Any, indices: Any, updates: Any) -> Any:
        return data.scatter_reduce(0, indices % 3, updates, _REDUCTIONS[reduction])

    return function


def _elements(name: str, reduction: str, data: Array, updates: Array, **options: Any) -> Case:
    return Case(
        "ScatterElements",
        [data, _REPEATED, updates],
        {"reduction": reduction},
        name=f"{reduction} {name}",
        torch=_reduce(reduction),
        **options,
    )


def _put(data: Any, indices: Any, updates: Any, *, accumulate: bool = False) -> Any:
    return data.index_put(tuple(indices.movedim(-1, 0)), updates, accumulate)


def _add(data: Any, indices: Any, updates: Any) -> Any:
    return _put(data, indices, updates, accumulate=True)


def _reduce_rows(reduction: str) -> Callable[..., Any]:
    def function(data: Any, indices: Any, updates: Any) -> Any:
        rows = indices.expand_as(updates)
        return data.scatter_reduce(0, rows, updates, _REDUCTIONS[reduction])

    return function


def _cache(data: Any, update: Any, starts: Any) -> Any:
    """Steps along axis 1, from ``starts`` on, around the end."""
    steps = (starts[:, None] + pytorch().arange(update.shape[1])) % data.shape[1]
    return data.index_put((pytorch().arange(len(starts))[:, None], steps), update)


_ROWS: Final = int64([[2], [0], [2]])

CASES: Final[list[Case]] = [
    Case(
        "ScatterElements",
        [_DATA, _APART, _UPDATES[:2]],
        name="none",
        torch=lambda x, i, u: x.scatter(0, i % 3, u),
    ),
    Case(
        "ScatterElements",
        [numbers(3, 5), int64([[1, 4], [0, -2]]), numbers(2, 2, seed=1)],
        {"axis": 1},
        name="axis",
    ),
    Case("ScatterElements", [_DATA, _APART, _UPDATES[:2]], name="data", frozen=(2,)),
    Case("ScatterElements", [_DATA, _APART, _UPDATES[:2]], name="updates", frozen=(0,)),
    Case("Scatter", [_DATA, _APART, _UPDATES[:2]], opset=9),
    *(_elements("repeated", reduction, _DATA, _UPDATES) for reduction in _REDUCTIONS),
    _elements("updates", "mul", _DATA, _UPDATES, frozen=(0,)),
    Case(
        "ScatterElements",
        [np.where(np.eye(3, 4) > 0, 0, _DATA), _REPEATED, _WITH_ZEROS],
        {"reduction": "mul"},
        name="mul zeros",
        torch=_reduce("mul"),
    ),
    Case(
        "ScatterElements",
        [_DATA, np.zeros((3, 4), np.int64), np.where(np.arange(4) < 2, 0, _UPDATES)],
        {"reduction": "mul"},
        name="mul only zeros",
    ),
    _elements("ties", "min", _TIES, _TIES[::-1].copy(), smooth=False),
    _elements("ties", "max", _TIES, _TIES[::-1].copy(), smooth=False),
    Case(
        "ScatterND",
        [numbers(3, 4, 2), int64([[0, 1], [2, -1]]), numbers(2, 2, seed=1)],
        name="none",
        torch=_put,
    ),
    Case(
        "ScatterND",
        [numbers(3, 4), int64([[[0, 1]], [[0, 1]], [[2, 2]]]), numbers(3, 1, seed=1)],
        {"reduction": "add"},
        name="add elements",
        torch=_add,
    ),
    *(
        Case(
            "ScatterND",
            [_DATA, _ROWS, _UPDATES],
            {"reduction": reduction},
            name=f"{reduction} rows",
            torch=_reduce_rows(reduction),
        )
        for reduction in _REDUCTIONS
    ),
    Case(
        "TensorScatter",
        [numbers(2, 5, 3), numbers(2, 2, 3, seed=1), int64(3, 1)],
        name="linear",
        opset=24,
        torch=_cache,
    ),
    Case(
        "TensorScatter",
        [numbers(2, 2, 4, 3), numbers(2, 2, 3, 3, seed=1), int64(2, 7)],
        {"mode": "circular", "axis": 2},
        name="circular",
        opset=24,
    ),
    Case(
        "TensorScatter",
        [numbers(2, 5, 3), numbers(2, 2, 3, seed=1), int64(4, 1)],
        {"mode": "circular"},
        name="circular rows",
        opset=24,
        torch=_cache,
    ),
    Case(
        "TensorScatter", [numbers(2, 5, 3), numbers(2, 2, 3, seed=1)], name="from the start",
        opset=24,
    ),
]  # fmt: skip
