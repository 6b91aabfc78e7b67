"""Softmax and LogSoftmax along one axis."""

from __future__ import annotations

from typing import Final

from popc.ops.infer import same_along_axis
from popc.ops.spec import OpSpec

__all__ = ["OPS"]

_SOFTMAX: Final = OpSpec(same_along_axis, strided_input=False)

OPS: Final[dict[str, OpSpec]] = {
    "LogSoftmax": _SOFTMAX,
    "Softmax": _SOFTMAX,
}
