"""Convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from popc_runtime.format.program import Packing
from popc_runtime.frozen import replace
from popc_runtime.hints import Final
from popc_runtime.kernels.windows import window_axes
from popc_runtime.native.algorithms import direct_wins, lines_win
from popc_runtime.native.binding import Binding
from popc_runtime.native.epilogues import epilogue_activation
from popc_runtime.native.forms import is_channels_last, product_record
from popc_runtime.native.packing import contiguous_copy
from popc_runtime.native.record import Record, is_float32, tensor_words
from popc_runtime.native.views import View
from popc_runtime.native.winograd import winograd_record

__all__ = ["ENCODERS"]

_MOST_AXES: Final = 3
_FEW_CHANNELS: Final = 16  # of a group: less than a vector has


def _conv(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, *sizes], W [M, C / group, *kernel], [B [M]], [residual]."""
    x, w, out = binding.input(0), binding.input(1), binding.output()
    bias, residual = binding.optional(2), binding.optional(3)
    group = binding.integer("group", 1)
    activation = epilogue_activation(binding, numbers)
    plain = is_float32(binding) and binding.text("partials", "float") == "float"
    if not plain or activation is None or not 1 <= x.ndim - 2 <= _MOST_AXES or out.size == 0:
        return None
    if group == 1 and _is_product(binding):
        return _product(binding, activation)
    kept = []
    if not w.is_contiguous:
        if not binding.is_constant(1):
            return None
        w = contiguous_copy(w)
        kept.append(w)
    if (bias is not None and not bias.is_contiguous) or w.size == 0:
        return None
    axes = window_axes(binding, x.shape[2:], w.shape[2:], out.shape[2:])
    if group == 1 and x.ndim == 4 and binding.integer("winograd", 1):
        record = winograd_record(
            (x, w, bias, residual), out, axes, activation, constant=binding.is_constant(1)
        )
        if record is not None:
            return replace(record, kept=tuple(kept))
    words = [
        *tensor_words(x),
        *tensor_words(w, constant=binding.is_constant(1)),
        *tensor_words(out),
        *tensor_words(bias),
        *tensor_words(residual),
        group,
    ]
    for axis in axes:
        words += (axis.stride, axis.dilation, axis.begin)
    return Record(_kernel(x, w, out, residual, group), (*words, *activation), tuple(kept))


def _kernel(x: View, w: View, out: View, residual: View | None, group: int) -> str:
    """Which kernel takes operands that lie in memory as these do."""
    plain = out.is_contiguous and (residual is None or residual.is_contiguous)
    last = is_channels_last(x) and not x.is_contiguous
    if x.shape[1] == group == w.shape[0] and (last or not plain):
        return "DepthwiseLast_f32"
    if plain and x.shape[1] == group and w.shape[0] // group <= 2:
        return "DepthwiseConv_f32"
    few = group > 1 and min(w.shape[0] // group, w.shape[1]) < _FEW_CHANNELS
    if not plain or (not few and (last or direct_wins(w.shape, out.shape))):
        return "ConvDirect_f32"
    return "ConvLines_f32" if lines_win(x.shape, w.shape, out.shape) else "Conv_f32"


def _is_product(binding: Binding) -> bool:
    """Whether a single window is the whole input."""
    x, w, out = binding.input(0), binding.input(1), binding.output()
    whole = x.shape[1:] == w.shape[1:] and prod(out.shape[2:]) == 1
    operands = (x, w, out, binding.optional(2), binding.optional(3))
    plain = all(one is None or one.is_contiguous for one in operands)
    return whole and plain and x.size > 0 and not any(binding.integers("pads", ()))


def _product(binding: Binding, activation: tuple[int, ...]) -> Record:
    """[N, C] by [C, M]: fewer numbers to move than by windows."""
    x, w, out = binding.input(0), binding.input(1), binding.output()
    residual = binding.optional(3)
    panels = binding.panels(1, Packing.ROWS) if prod(w.shape[2:]) == 1 else None
    right = w if panels is None else panels
    return product_record(
        x.reshape(len(x), -1),
        right.reshape(len(w), -1).T,
        out.reshape(len(x), -1),
        bias=binding.optional(2),
        residual=None if residual is None else residual.reshape(len(x), -1),
        constant=binding.is_constant(1),
        packed=panels is not None,
        activation=activation,
    )


ENCODERS: Final = {"Conv": _conv}
