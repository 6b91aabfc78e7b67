"""Gradient cases of movement ops."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]


def _split(x: Any) -> Any:
    return tuple(pytorch().split(x, [1, 3, 2], dim=1))


def _reverse(x: Any, _: Any) -> Any:
    """Sequences of 3, 1 and 4 steps along axis 1."""
    parts = [pytorch().cat([row[:n].flip(0), row[n:]]) for row, n in zip(x, (3, 1, 4), strict=True)]
    return pytorch().stack(parts)


def _slice(name: str, *index: slice, shape: tuple[int, ...] = (5, 7)) -> Case:
    """A Slice of the first axes, by its Python form; PyTorch has no negative steps."""
    far = 1 << 40
    steps = [part.step or 1 for part in index]
    starts = [
        (0 if step > 0 else far) if part.start is None else part.start
        for part, step in zip(index, steps, strict=True)
    ]
    ends = [
        (far if step > 0 else -far) if part.stop is None else part.stop
        for part, step in zip(index, steps, strict=True)
    ]
    operands = [int64(list(row)) for row in (starts, ends, range(len(index)), steps)]
    return Case(
        "Slice",
        [numbers(*shape), *operands],
        name=name,
        constants=(1, 2, 3, 4),
        torch=None if min(steps) < 0 else lambda x, *_: x[index],
    )


CASES: Final[list[Case]] = [
    Case(
        "Concat",
        [numbers(2, 1, 3), numbers(2, 4, 3, seed=1), numbers(2, 2, 3, seed=2)],
        {"axis": 1},
        torch=lambda *x: pytorch().cat(x, dim=1),
    ),
    Case("Concat", [numbers(2, 2), numbers(1, 2)], {"axis": 0}, name="partly", frozen=(0,)),
    Case("Concat", [numbers(2, 0), numbers(2, 3)], {"axis": 1}, name="empty"),
    Case(
        "Reshape",
        [numbers(2, 6), int64(3, 4)],
        constants=(1,),
        torch=lambda x, _: x.reshape(3, 4),
    ),
    Case("Flatten", [numbers(2, 3, 4)], torch=lambda x: x.flatten(1)),
    Case("Squeeze", [numbers(2, 1, 4), int64([1])], constants=(1,), torch=lambda x, _: x[:, 0]),
    Case("Unsqueeze", [numbers(2, 4), int64([1])], constants=(1,), torch=lambda x, _: x[:, None]),
    Case(
        "Transpose",
        [numbers(2, 3, 4)],
        {"perm": [2, 0, 1]},
        torch=lambda x: x.permute(2, 0, 1),
    ),
    Case(
        "Expand",
        [numbers(3, 1), int64(2, 3, 4)],
        constants=(1,),
        torch=lambda x, _: x.expand(2, 3, 4),
    ),
    Case("Expand", [numbers(), int64([3])], name="scalar", constants=(1,)),
    Case(
        "Tile",
        [numbers(2, 3, 2), int64(2, 1, 3)],
        constants=(1,),
        torch=lambda x, _: x.tile(2, 1, 3),
    ),
    Case(
        "Split",
        [numbers(2, 6), int64(1, 3, 2)],
        {"axis": 1},
        name="all",
        constants=(1,),
        outputs=3,
        weighted=(0, 1, 2),
        torch=lambda x, _: _split(x),
    ),
    Case(
        "Split",
        [numbers(2, 6), int64(1, 3, 2)],
        {"axis": 1},
        name="two",
        constants=(1,),
        outputs=3,
        weighted=(0, 2),
        torch=lambda x, _: _split(x)[::2],
    ),
    Case(
        "Split",
        [numbers(2, 6), int64(1, 3, 2)],
        {"axis": 1},
        name="one",
        constants=(1,),
        outputs=3,
        weighted=(1,),
        torch=lambda x, _: _split(x)[1],
    ),
    Case("Trilu", [numbers(2, 3, 4)], name="upper", torch=lambda x: x.triu()),
    Case(
        "Trilu",
        [numbers(4, 3), np.array(-1)],
        {"upper": 0},
        name="lower",
        torch=lambda x, k: x.tril(int(k)),
    ),
    Case(
        "ReverseSequence",
        [numbers(3, 4, 2), int64(3, 1, 4)],
        {"batch_axis": 0, "time_axis": 1},
        torch=_reverse,
    ),
    Case("ReverseSequence", [numbers(4, 3), int64(3, 0, 4)], name="time first", constants=(1,)),
    _slice("window", slice(1, 4), slice(2, -1)),
    _slice("steps", slice(0, None, 2), slice(1, 6, 3)),
    _slice("short of the end", slice(1, 2), slice(0, 5, 4)),
    _slice("backwards", slice(None, None, -1), slice(5, 0, -2)),
    _slice("mixed", slice(4, 1, -1), slice(1, None, 2), slice(1, 2), shape=(5, 7, 3)),
    _slice("nothing", slice(3, 1)),
    Case("Copy", [numbers(2, 3)], ir=True, torch=lambda x: x),
]
