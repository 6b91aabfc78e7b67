"""Borders around operands."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.borders import border_runs
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.moves import moves
from popc_runtime.native.record import Encoder, Record
from popc_runtime.native.views import View, broadcast_to, filled

__all__ = ["ENCODERS"]


def _pad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, value? {pads, mode, value}; negative pads crop first.

    Borders are filled axis by axis.  Those of a later axis span the borders of the earlier ones,
    so that corners come out as numpy.pad defines them.
    """
    del numbers
    x, out, pads = binding.input(0), binding.output(), binding.integers("pads")
    mode = binding.text("mode", "constant")
    value = _pad_value(binding) if mode == "constant" else None
    if mode == "constant" and value is None:
        return None
    begins, ends = pads[: x.ndim], pads[x.ndim :]
    inner = (
        slice(max(-begin, 0), dim - max(-end, 0))
        for begin, end, dim in zip(begins, ends, x.shape, strict=True)
    )
    cropped = x[tuple(inner)]
    firsts = [max(begin, 0) for begin in begins]
    window = [slice(at, at + dim) for at, dim in zip(firsts, cropped.shape, strict=True)]
    if any(side.stop > dim for side, dim in zip(window, out.shape, strict=True)):
        return None
    pairs = [(out[tuple(window)], cropped)]
    for axis, dim in enumerate(cropped.shape):
        if dim != out.shape[axis]:
            pairs += _borders(out, window, axis, mode, value)
        window[axis] = slice(None)
    return moves(pairs)


def _borders(
    out: View, window: list[slice], axis: int, mode: str, value: View | None
) -> list[tuple[View, View]]:
    """Targets and sources of the borders along one axis; the ``window`` is filled already."""
    front, back = tuple(window[:axis]), tuple(window[axis + 1 :])
    inner, total = window[axis], out.shape[axis]
    if value is not None:
        sides = (slice(0, inner.start), slice(inner.stop, total))
        targets = [out[(*front, side, *back)] for side in sides]
        return [(target, broadcast_to(value, target.shape)) for target in targets]
    pairs: list[tuple[View, View]] = []
    for to, source in border_runs(mode, inner.start, inner.stop, total):
        target = out[(*front, to, *back)]
        pairs.append((target, broadcast_to(out[(*front, source, *back)], target.shape)))
    return pairs


def _pad_value(binding: NativeBinding) -> View | None:
    """A scalar to fill with; ``None`` if its type does not hold it."""
    operand, dtype = binding.optional(1), binding.output_dtypes[0]
    if operand is not None:
        return operand.reshape(())
    value = binding.attributes.get("value", 0)
    if dtype is None or not isinstance(value, int | float) or (dtype is DType.BFLOAT16 and value):
        return None
    try:
        return filled((), dtype.stored, value if dtype.is_float else int(value))
    except (ArithmeticError, ValueError, struct.error):
        return None


ENCODERS: Final[dict[str, Encoder]] = {
    "Pad": _pad,
}
