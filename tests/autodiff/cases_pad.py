"""Gradient cases of Pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

_IN_TORCH: Final = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}


def _around(pads: Sequence[int], mode: str) -> Callable[..., Any]:
    """ONNX pads of [N, C, H, W] in PyTorch's order."""
    _, _, top, left, _, _, bottom, right = pads

    def function(x: Any, *_: Any) -> Any:
        return pytorch().nn.functional.pad(x, (left, right, top, bottom), mode=mode)

    return function


def _repeating(name: str, mode: str, shape: tuple[int, ...], *pads: int, torch: Any = None) -> Case:
    operands = [numbers(*shape), int64(list(pads))]
    return Case(
        "Pad", operands, {"mode": mode}, name=f"{mode} {name}", constants=(1,), torch=torch
    )  # fmt: skip


_PADS: Final = (0, 0, 1, 2, 0, 0, 2, 3)

CASES: Final[list[Case]] = [
    Case(
        "Pad",
        [numbers(2, 2, 3, 4), int64(list(_PADS)), numbers()],
        name="value",
        constants=(1,),
        frozen=(0,),
    ),
    Case(
        "Pad",
        [numbers(2, 2, 3, 4), int64(list(_PADS)), numbers()],
        name="constant",
        constants=(1,),
        torch=lambda x, _, v: (
            pytorch().nn.functional.pad(x - v, (2, 3, 1, 2)) + v  # which takes numbers only
        ),
    ),
    Case("Pad", [numbers(3, 4), int64(1, -1, -2, 3), numbers()], name="crop", constants=(1,)),
    Case("Pad", [numbers(3, 4), int64(-1, -1, 0, -2)], name="only crop", constants=(1,)),
    Case(
        "Pad", [numbers(3, 4), int64(-1, 0, -1, -2), numbers()], name="unused value", constants=(1,)
    ),
    Case("Pad", [numbers(0, 2), int64(1, 0, 1, 1), numbers(1)], name="empty", constants=(1,)),
    *(
        _repeating("image", mode, (2, 2, 3, 4), *_PADS, torch=_around(_PADS, name))
        for mode, name in _IN_TORCH.items()
    ),
    *(_repeating("several times", mode, (2, 3), 5, 4, 3, 7) for mode in _IN_TORCH),
    *(_repeating("crop", mode, (2, 5, 4), 1, -1, -2, 0, 2, 1) for mode in _IN_TORCH),
    *(_repeating("crop both", mode, (5, 3), -1, 2, -2, 0) for mode in _IN_TORCH),
    *(_repeating("one element", mode, (1, 3), 2, 0, 1, 0) for mode in _IN_TORCH),
]
