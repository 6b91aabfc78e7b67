"""Gradient cases of reductions and their running forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]

_RNG: Final = np.random.default_rng(3)
_POSITIVE: Final[Array] = _RNG.uniform(0.3, 2, (2, 3, 4))
_MIXED: Final[Array] = _POSITIVE * _RNG.choice([-1.0, 1.0], (2, 3, 4))
_TIES: Final[Array] = np.array(
    [[1.0, 2.0, 2.0, -1.0], [3.0, 3.0, 3.0, 3.0], [0.0, -1.0, -1.0, 5.0]]
)


def _sum_square(x: Any, **options: Any) -> Any:
    return (x * x).sum(**options)


def _log_sum(x: Any, **options: Any) -> Any:
    return x.sum(**options).log()


def _product(x: Any, dim: tuple[int, ...], *, keepdim: bool) -> Any:
    for axis in sorted(dim, reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


def _norm(order: float) -> Callable[..., Any]:
    def function(x: Any, **options: Any) -> Any:
        import torch

        return torch.linalg.vector_norm(x, order, **options)

    return function


def _method(name: str) -> Callable[..., Any]:
    def function(x: Any, **options: Any) -> Any:
        return getattr(x, name)(**options)

    return function


_REDUCTIONS: Final[dict[str, tuple[Array, Callable[..., Any]]]] = {
    "ReduceL1": (_MIXED, _norm(1)),
    "ReduceL2": (_MIXED, _norm(2)),
    "ReduceLogSum": (_POSITIVE, _log_sum),
    "ReduceLogSumExp": (_MIXED, _method("logsumexp")),
    "ReduceMax": (_MIXED, _method("amax")),
    "ReduceMean": (_MIXED, _method("mean")),
    "ReduceMin": (_MIXED, _method("amin")),
    "ReduceProd": (_MIXED, _product),
    "ReduceSum": (_MIXED, _method("sum")),
    "ReduceSumSquare": (_MIXED, _sum_square),
}
# Name of the case, reduced axes, whether they are kept
_FORMS: Final = (
    ("last", (2,), True),
    ("first", (0,), False),
    ("outer", (0, 2), False),
    ("outer kept", (0, 2), True),
    ("all", (0, 1, 2), False),
)


def _reduction(op_type: str, name: str, axes: tuple[int, ...], *, keepdims: bool) -> Case:
    x, reduce = _REDUCTIONS[op_type]
    return Case(
        op_type,
        [x, np.array(axes)],
        {"keepdims": int(keepdims)},
        name=name,
        constants=(1,),
        torch=lambda operand, _: reduce(operand, dim=axes, keepdim=keepdims),
    )


def _reduce_nothing(op_type: str) -> Case:
    return Case(op_type, [_POSITIVE], {"noop_with_empty_axes": 1}, name="nothing")


def _at_kink(op_type: str, x: Array, name: str) -> Case:
    reduce = _REDUCTIONS[op_type][1]
    return Case(
        op_type,
        [x, np.array([1])],
        name=name,
        constants=(1,),
        smooth=False,
        torch=lambda operand, _: reduce(operand, dim=(1,), keepdim=True),
    )


_ZEROS: Final[Array] = np.array([[1.5, 0.0, 2.0, -0.7], [0.0, 3.0, 0.0, 1.2], [2.0, 1.0, 1.0, 3.0]])


def _running(op_type: str, x: Array, axis: int, *, exclusive: int, reverse: int) -> Case:
    """PyTorch has the plain form only; flipping and shifting make the others of it."""

    def function(operand: Any, _: Any) -> Any:
        import torch

        flipped = operand.flip(axis) if reverse else operand
        if exclusive:
            first = torch.full_like(flipped.narrow(axis, 0, 1), float(op_type == "CumProd"))
            flipped = torch.cat([first, flipped.narrow(axis, 0, flipped.shape[axis] - 1)], axis)
        result = getattr(torch, op_type.lower())(flipped, axis)
        return result.flip(axis) if reverse else result

    form = "+".join(name for name, on in (("exclusive", exclusive), ("reverse", reverse)) if on)
    return Case(
        op_type,
        [x, np.array(axis)],
        {"exclusive": exclusive, "reverse": reverse},
        name=f"axis {axis} {form}".strip(),
        opset=26,
        constants=(1,),
        torch=function,
    )


def _topmost(x: Any, *_: Any) -> Any:
    """Where the loss only counts how often something is the largest, nothing changes it."""
    return x * 0


CASES: Final[list[Case]] = [
    *(
        _reduction(op_type, name, axes, keepdims=keepdims)
        for op_type in _REDUCTIONS
        for name, axes, keepdims in _FORMS
    ),
    *(_reduce_nothing(op_type) for op_type in _REDUCTIONS),
    _at_kink("ReduceMax", _TIES, "ties"),
    _at_kink("ReduceMin", _TIES, "ties"),
    _at_kink("ReduceL1", _ZEROS, "zeros"),
    _at_kink("ReduceL2", np.array([[0.0, 0.0], [1.0, 0.0]]), "zero norm"),
    _at_kink("ReduceProd", _ZEROS, "zeros"),
    Case("ReduceProd", [_ZEROS, np.array([0, 1])], name="zeros of all", constants=(1,)),
    *(
        _running(op_type, x, axis, exclusive=exclusive, reverse=reverse)
        for op_type, x in (("CumSum", _MIXED), ("CumProd", _MIXED))
        for axis in (0, 1, 2)
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    _running("CumProd", _ZEROS, 1, exclusive=0, reverse=0),
    _running("CumProd", np.array([2.0, 0.0, 3.0]), 0, exclusive=1, reverse=1),
    *(
        Case(op_type, [_ZEROS, np.array(1)], attributes, name=f"run time {attributes}", opset=26)
        for op_type in ("CumSum", "CumProd")
        for attributes in ({}, {"exclusive": 1, "reverse": 1})
    ),
    Case("Hardmax", [_MIXED], torch=_topmost),
]
