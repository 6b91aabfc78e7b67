"""Gradient cases of elementwise ops."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]


def _between(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    """Numbers spread over the open interval, none near its ends."""
    return np.random.default_rng(seed).uniform(low, high, shape)


def _away_from_zero(*shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.uniform(0.3, 2.0, shape) * rng.choice([-1.0, 1.0], shape))


def _torch(name: str) -> Any:
    def function(*operands: Any) -> Any:
        import torch

        return getattr(torch, name)(*operands)

    return function


_UNARY: Final = {
    "Abs": _away_from_zero(3, 4),
    "Acos": _between(-0.9, 0.9, 3, 4),
    "Acosh": _between(1.2, 3.0, 3, 4),
    "Asin": _between(-0.9, 0.9, 3, 4),
    "Asinh": _between(-2.0, 2.0, 3, 4),
    "Atan": _between(-2.0, 2.0, 3, 4),
    "Atanh": _between(-0.9, 0.9, 3, 4),
    "Cos": _between(-2.0, 2.0, 3, 4),
    "Cosh": _between(-2.0, 2.0, 3, 4),
    "Exp": _between(-2.0, 2.0, 3, 4),
    "Log": _between(0.3, 3.0, 3, 4),
    "Neg": _between(-2.0, 2.0, 3, 4),
    "Reciprocal": _away_from_zero(3, 4),
    "Sin": _between(-2.0, 2.0, 3, 4),
    "Sinh": _between(-2.0, 2.0, 3, 4),
    "Sqrt": _between(0.3, 3.0, 3, 4),
    "Tan": _between(-1.2, 1.2, 3, 4),
}
_FLAT: Final = {"Ceil": "ceil", "Floor": "floor", "Round": "round", "Sign": "sign"}
_BINARY: Final = {
    "Add": "add",
    "Div": "div",
    "Max": "maximum",
    "Min": "minimum",
    "Mul": "mul",
    "Sub": "sub",
}
_SHAPES: Final = {
    "equal": ((2, 3), (2, 3)),
    "row": ((2, 3), (3,)),
    "column": ((2, 1, 3), (4, 1)),
    "scalar": ((), (2, 3)),
}

CASES: Final[list[Case]] = [
    *(Case(name, [x], torch=_torch(name.lower())) for name, x in _UNARY.items()),
    *(Case(name, [_away_from_zero(3, 4)], torch=_torch(it)) for name, it in _FLAT.items()),
    *(
        Case(
            op_type,
            [_away_from_zero(*shapes[0], seed=1), _away_from_zero(*shapes[1], seed=2)],
            name=name,
            torch=_torch(it),
        )
        for op_type, it in _BINARY.items()
        for name, shapes in _SHAPES.items()
    ),
    *(
        Case(
            op_type, [np.array([1.0, 2.0, -3.0, 0.0]), it], name=name, smooth=False, torch=_torch(f)
        )
        for name, it in (("ties", np.array([1.0, 1.0, -3.0, 0.5])), ("scalar ties", np.array(1.0)))
        for op_type, f in (("Max", "maximum"), ("Min", "minimum"))
    ),
    Case("Max", [_away_from_zero(3, 4), np.array(0.0)], name="constant", constants=(1,)),
    *(
        Case(
            "Sum",
            [_between(-1, 1, 2, 3), _between(-1, 1, 3, seed=1), _between(-1, 1, 2, 1, seed=2)],
            ir=ir,
            name="variadic" if ir else "",
        )
        for ir in (False, True)
    ),
    Case(
        "Pow",
        [_between(0.3, 2, 2, 3), _between(-2, 2, 3, seed=1)],
        name="positive",
        torch=_torch("pow"),
    ),
    Case("Pow", [_away_from_zero(2, 3), np.array(3.0)], name="cube", frozen=(1,)),
    *(
        Case(
            "Pow",
            [_between(0.3, 2, 2, 3) * (1 if exponent % 1 else -1), np.array(exponent)],
            name=f"to {exponent}",
            constants=(1,),
            torch=_torch("pow"),
        )
        for exponent in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.7, 2.0, 3.0)
    ),
    Case("Pow", [np.array(0.7), _between(-2, 2, 2, 3)], name="scalar base", torch=_torch("pow")),
    Case("Pow", [_away_from_zero(2, 3), np.array([1, 2, 3])], name="int64", torch=_torch("pow")),
    Case("Pow", [_away_from_zero(3), np.array([[2.0]])], name="higher rank", constants=(1,)),
    Case("Pow", [_between(0.3, 2, 2, 3), np.array([0.0, 1.0, 2.0])], name="integers"),
    Case(
        "Pow",
        [np.zeros((5,)), np.array([1.0, 2.0, 0.0, 0.5, -1.0])],
        name="zero",
        smooth=False,
        torch=_torch("pow"),
    ),
    Case(
        "Mod",
        [np.array([5.3, -5.3, 2.2]), np.array([3.0, 3.0, -1.5])],
        {"fmod": 1},
        torch=_torch("fmod"),
    ),
    Case(
        "Mod",
        [np.array([5.3, -5.3, 2.2]), np.array([[3.0], [-1.5]])],
        name="floor",
        ir=True,
        torch=_torch("remainder"),
    ),
    Case(
        "Where",
        [np.array([[True], [False]]), _between(-1, 1, 2, 3), _between(-1, 1, 3, seed=1)],
        torch=_torch("where"),
    ),
    Case("Mean", [_between(-1, 1, 2, 3), _between(-1, 1, 3, seed=1)]),
]
