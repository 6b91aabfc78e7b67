"""Gradient cases of Gather and its relatives."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]


def _gather_nd(x: Any, indices: Any) -> Any:
    return x[tuple(indices.movedim(-1, 0))]


def _gather_in_batches(x: Any, indices: Any) -> Any:
    return pytorch().stack([_gather_nd(*pair) for pair in zip(x, indices, strict=True)])


def _one_hot(indices: Any, _: Any, values: Any) -> Any:
    """Indices count from the end, too; those out of range hit nothing."""
    normal = pytorch().where(indices < 0, indices + 4, indices)
    hit = normal[..., None] == pytorch().arange(4)
    return pytorch().where(hit, values[1], values[0])


_REPEATED: Final = int64([[1, 4, 1], [0, -1, 1]])

CASES: Final[list[Case]] = [
    Case(
        "Gather",
        [numbers(5, 3), _REPEATED],
        name="rows",
        torch=lambda x, i: x[i],
    ),
    Case(
        "Gather",
        [numbers(5, 4), _REPEATED],
        name="even rows",
        torch=lambda x, i: x[i],
    ),
    Case(
        "Gather",
        [numbers(2, 5, 3), _REPEATED],
        {"axis": 1},
        name="within",
        torch=lambda x, i: x[:, i],
    ),
    Case(
        "Gather",
        [numbers(2, 3, 5), _REPEATED],
        {"axis": -1},
        name="elements",
        torch=lambda x, i: x[..., i],
    ),
    Case("Gather", [numbers(5, 3), _REPEATED], name="constant", constants=(1,)),
    Case("Gather", [numbers(5, 3), int64([3, 1])], name="run", constants=(1,)),
    Case("Gather", [numbers(5, 3), np.array(2)], name="one"),
    Case("Gather", [numbers(5, 3), np.zeros((2, 0), np.int64)], name="none"),
    Case(
        "GatherElements",
        [numbers(3, 4), int64([[0, 2, 2, -1], [1, 0, 2, 2]])],
        torch=lambda x, i: x.gather(0, i % 3),
    ),
    Case(
        "GatherElements",
        [numbers(2, 3, 4), np.zeros((2, 3, 2), np.int64)],
        {"axis": 2},
        name="repeated",
        torch=lambda x, i: x.gather(2, i),
    ),
    Case(
        "GatherND",
        [numbers(3, 4, 2), int64([[0, 1], [2, -1], [0, 1]])],
        torch=_gather_nd,
    ),
    Case(
        "GatherND",
        [numbers(3, 4), int64([[0, 1], [2, 3]])],
        name="elements",
        torch=_gather_nd,
    ),
    Case(
        "GatherND",
        [numbers(2, 3, 4), int64([[[1], [-1]], [[0], [0]]])],
        {"batch_dims": 1},
        name="batch",
        torch=_gather_in_batches,
    ),
    Case(
        "GatherND",
        [numbers(2, 3, 4, 2), int64([[[3], [0], [1]], [[2], [2], [0]]])],
        {"batch_dims": 2},
        name="batches",
    ),
    Case(
        "OneHot",
        [int64([[0, 3, -1], [4, 3, -5]]), np.array(4), numbers(2)],
        constants=(1,),
        torch=_one_hot,
    ),
    Case("OneHot", [int64(0, 2), np.array(3), numbers(2)], {"axis": 0}, "axis", constants=(1,)),
]
