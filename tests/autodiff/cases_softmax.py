"""Gradient cases of Softmax and LogSoftmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]

_RNG: Final = np.random.default_rng(4)
_X: Final[Array] = _RNG.normal(size=(2, 3, 4)) * 3


def _functional(name: str, **options: Any) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        import torch

        return getattr(torch.nn.functional, name)(x, **options)

    return function


def _flattened(name: str) -> Callable[..., Any]:
    """Before opset 13 all dimensions from the axis on were one."""

    def function(x: Any) -> Any:
        import torch

        rows = x.reshape(x.shape[0], -1)
        return getattr(torch.nn.functional, name)(rows, dim=1).reshape(x.shape)

    return function


CASES: Final[list[Case]] = [
    *(
        Case(op_type, [_X], {"axis": axis}, name=f"axis {axis}", torch=_functional(name, dim=axis))
        for op_type, name in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax"))
        for axis in (0, 1, 2)
    ),
    *(
        Case(op_type, [_X], {"axis": 1}, name="opset 11", opset=11, torch=_flattened(name))
        for op_type, name in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax"))
    ),
    *(
        Case(op_type, [_RNG.normal(size=(3, 5000))], name="long", torch=_functional(name, dim=-1))
        for op_type, name in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax"))
    ),
]
