"""Gradient cases of Col2Im."""

from __future__ import annotations

from typing import Any, Final

from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]


def _fold(x: Any, image: Any, block: Any, **options: Any) -> Any:
    return pytorch().nn.functional.fold(x, image.tolist(), block.tolist(), **options)


CASES: Final[list[Case]] = [
    Case(
        "Col2Im",
        [numbers(2, 3 * 6, 12), int64(5, 5), int64(2, 3)],
        name="plain",
        constants=(1, 2),
        torch=_fold,
    ),
    Case(
        "Col2Im",
        [numbers(1, 2 * 4, 8), int64(6, 5), int64(2, 2)],
        {"strides": [2, 3], "pads": [1, 1, 1, 1], "dilations": [1, 2]},
        name="strides, pads, dilations",
        constants=(1, 2),
        torch=lambda x, image, block: _fold(
            x, image, block, stride=(2, 3), padding=1, dilation=(1, 2)
        ),
    ),
    Case(
        "Col2Im",
        [numbers(1, 4, 8), int64([7]), int64([4])],
        {"pads": [3, 1]},
        name="uneven pads",
        constants=(1, 2),
    ),
    Case(
        "Col2Im",
        [numbers(1, 2 * 8, 4), int64(3, 2, 4), int64(2, 2, 2)],
        {"strides": [1, 1, 2]},
        name="volume",
        constants=(1, 2),
    ),
]
