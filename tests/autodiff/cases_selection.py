"""Gradient cases of small families: conversions, TopK, dropout, dequantising."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]

_RNG: Final = np.random.default_rng(5)
_X: Final[Array] = _RNG.permutation(24).reshape(2, 3, 4) / 7 - 1.5
_INTEGERS: Final[Array] = _RNG.integers(-128, 128, (2, 5, 3)).astype(np.int8)


def _top_k(k: int, axis: int, *, largest: bool) -> Case:
    def function(x: Any, _: Any) -> Any:
        import torch

        return torch.topk(x, k, dim=axis, largest=largest).values

    return Case(
        "TopK",
        [_X, np.array([k])],
        {"axis": axis, "largest": int(largest)},
        name=f"{k} of axis {axis}",
        constants=(1,),
        outputs=2,
        torch=function,
    )


def _to_float(x: Any) -> Any:
    return x.float()


def _dequantize(zero: Array, view: Callable[[Any], Any]) -> Callable[..., Any]:
    """``view`` makes the scale and the zero point broadcast."""

    def function(x: Any, scale: Any, *_: Any) -> Any:
        import torch

        return (x.to(torch.float64) - view(torch.from_numpy(zero))) * view(scale)

    return function


def _scaled(name: str, scale: Array, zero: Array, view: Callable[[Any], Any], **more: int) -> Case:
    return Case(
        "DequantizeLinear",
        [_INTEGERS, scale, zero],
        {"dtype": "float64", "axis": 1, "block_size": 0, **more},
        name=name,
        ir=True,
        torch=_dequantize(zero, view),
    )


CASES: Final[list[Case]] = [
    _top_k(2, 2, largest=True),
    _top_k(1, 0, largest=False),
    _top_k(3, 1, largest=True),
    Case("Cast", [_X], {"to": onnx.TensorProto.FLOAT}, smooth=False, torch=_to_float),
    Case("Cast", [_X], {"to": onnx.TensorProto.DOUBLE}, name="wider"),
    Case(
        "Dropout",
        [_X, np.array(0.3, np.float32), np.array(True)],  # noqa: FBT003 - the value
        constants=(1, 2),
        name="training",
    ),
    Case(
        "Dropout",
        [_X, np.array(0.3, np.float32), np.array(True)],  # noqa: FBT003 - the value
        {"seed": 5},
        constants=(1, 2),
        name="sequence",
    ),
    Case("Dropout", [_X, np.array(0.3), np.array(False)], frozen=(1,), name="run time"),  # noqa: FBT003
    Case("Dropout", [_X, np.array(1.0), np.array(True)], frozen=(1,), name="of all"),  # noqa: FBT003
    _scaled("tensor", np.array(0.3), np.array(5, np.int8), lambda v: v),
    _scaled("axis", np.arange(1, 6) / 3, np.arange(5, dtype=np.int8), lambda v: v[:, None]),
    _scaled(
        "blocks",
        _RNG.uniform(0.5, 2, (2, 3, 3)),
        _RNG.integers(-5, 5, (2, 3, 3)).astype(np.int8),
        lambda v: v.repeat_interleave(2, dim=1)[:, :5],
        block_size=2,
    ),
]
