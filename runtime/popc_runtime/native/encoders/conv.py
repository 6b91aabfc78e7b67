"""Convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from popc_runtime.format.program import Packing
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.core.operands import Operands
from popc_runtime.kernels.parts.windows import WindowAxis, window_axes
from popc_runtime.native.algorithms import direct_wins, fits_rows, lines_win, rows_win
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import contiguous_copy
from popc_runtime.native.epilogues import epilogue_activation
from popc_runtime.native.folded import FOLDED, conv_folds, folded_conv
from popc_runtime.native.forms import is_channels_last, product_record
from popc_runtime.native.record import MOST_AXES, Record, is_float32, tensor_words
from popc_runtime.native.views import View
from popc_runtime.native.winograd import as_image, winograd_axes, winograd_suits

__all__ = ["DIRECT", "ENCODERS", "WINOGRAD", "kernel_of_windows", "packing_of_weights"]

_FEW_CHANNELS: Final = 16  # of a group: less than a vector has
_PANEL: Final = 16  # channels
DIRECT: Final = "ConvDirect_f32"
_PRODUCT: Final = "Product_f32"
WINOGRAD: Final = "WinogradConv_f32"


def _conv(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, *sizes], W [M, C / group, *kernel], [B [M]], [residual]."""
    activation = epilogue_activation(binding, numbers)
    kernel = _kernel(binding)
    if activation is None or not kernel:
        return None
    panels = binding.panels(1, _packing(binding, kernel))
    if kernel == _PRODUCT:
        return _product(binding, activation, panels)
    if kernel == FOLDED:
        return folded_conv(binding, _axes(binding), activation)
    x, w, out = binding.input(0), binding.input(1), binding.output()
    bias, residual = binding.optional(2), binding.optional(3)
    copies = []
    if panels is not None:
        w = panels
    elif not w.is_contiguous:
        if not binding.is_constant(1):
            return None
        w = contiguous_copy(w)
        copies.append(w)
    axes = _axes(binding)
    if kernel == WINOGRAD:
        x, w, out = as_image(x), as_image(w), as_image(out)
        residual = None if residual is None else as_image(residual)
    words = [
        *tensor_words(x),
        *tensor_words(w, constant=binding.is_constant(1), packed=panels is not None),
        *tensor_words(out),
        *tensor_words(bias),
        *tensor_words(residual),
    ]
    if kernel == WINOGRAD:
        words += winograd_axes(axes)
    else:
        words.append(binding.integer("group", 1))
        for axis in axes:
            words += (axis.stride, axis.dilation, axis.begin)
    return Record(kernel, (*words, *activation), tuple(copies))


def packing_of_weights(conv: Operands[View]) -> Packing:
    """The panels from which the kernel of a Conv reads its weights, if they are constant.

    It depends on attributes, shapes and strides alone, not on the processor: the compiler asks too,
    with views of no memory.
    """
    return _packing(conv, _kernel(conv))


def _packing(conv: Operands[View], kernel: str) -> Packing:
    w, group = conv.input(1), conv.integer("group", 1)
    if kernel == _PRODUCT:
        reads = prod(w.shape[2:]) == 1
    elif kernel == DIRECT:  # panels of archives do not end where a group does
        reads = group == 1 or (group > 1 and w.shape[0] % (group * _PANEL) == 0)
    else:
        reads = kernel == WINOGRAD
    return Packing.ROWS if reads else Packing.NONE


def _kernel(conv: Operands[View]) -> str:
    """The kernel for operands that lie in memory as these do; "" if there is none."""
    x, w, out = conv.input(0), conv.input(1), conv.output()
    bias, residual = conv.optional(2), conv.optional(3)
    group = conv.integer("group", 1)
    plain = is_float32(conv) and conv.text("partials", "float") == "float"
    if not plain or not 1 <= x.ndim - 2 <= MOST_AXES or out.size == 0:
        return ""
    if group == 1 and _is_product(conv):
        return _PRODUCT
    if (bias is not None and not bias.is_contiguous) or w.size == 0:
        return ""
    axes = _axes(conv)
    winograd = bool(conv.integer("winograd", 1))
    kernel = kernel_of_windows((x, w, residual), out, axes, group, winograd=winograd)
    folds = group == 1 and residual is None and kernel != WINOGRAD
    return FOLDED if folds and conv_folds(x, w, out, axes) else kernel


def _axes(conv: Operands[View]) -> tuple[WindowAxis, ...]:
    x, w, out = conv.input(0), conv.input(1), conv.output()
    return window_axes(conv, x.shape[2:], w.shape[2:], out.shape[2:])


def kernel_of_windows(
    operands: tuple[View, View, View | None],
    out: View,
    axes: Sequence[WindowAxis],
    group: int,
    *,
    winograd: bool,
) -> str:
    """The kernel that goes by windows, whatever `packing_of_weights` says of the weights.

    Args:
        operands: X [N, C, *sizes], W [M, C / group, *kernel], and a residual, if there is one.
        out: [N, M, *results].
        axes: Of the windows.
        group: How many groups of channels there are.
        winograd: Whether Winograd's algorithm may be used.
    """
    x, w, residual = operands
    if group == 1 and winograd and winograd_suits(operands, out, axes):
        return WINOGRAD
    return _kernel_of_sums(x, w, out, residual, group, axes)


def _kernel_of_sums(
    x: View, w: View, out: View, residual: View | None, group: int, axes: Sequence[WindowAxis]
) -> str:
    """The kernel that adds up products."""
    plain = out.is_contiguous and (residual is None or residual.is_contiguous)
    last = is_channels_last(x) and not x.is_contiguous
    strides = [a.stride for a in axes]
    windows = w.shape, out.shape, strides, [a.dilation for a in axes]
    grouped = group > 1 and x.shape[1] == out.shape[1] and fits_rows(*windows)
    depthwise = x.shape[1] == group == w.shape[0]
    if (grouped or depthwise) and (last or not plain):
        return "DepthwiseLast_f32"
    if plain and x.shape[1] == group and w.shape[0] // group <= 2:
        return "DepthwiseConv_f32"
    few = group > 1 and min(w.shape[0] // group, w.shape[1]) < _FEW_CHANNELS
    if not plain or (not few and (last or direct_wins(w.shape, out.shape, strides))):
        return DIRECT
    if rows_win(w.shape, out.shape, group):
        return "ConvRows_f32"
    return "ConvLines_f32" if lines_win(x.shape, w.shape, out.shape) else "Conv_f32"


def _is_product(conv: Operands[View]) -> bool:
    """True if a single window is the whole input."""
    x, w, out = conv.input(0), conv.input(1), conv.output()
    whole = x.shape[1:] == w.shape[1:] and prod(out.shape[2:]) == 1
    operands = (x, w, out, conv.optional(2), conv.optional(3))
    plain = all(operand is None or operand.is_contiguous for operand in operands)
    return whole and plain and x.size > 0 and not any(conv.integers("pads", ()))


def _product(binding: NativeBinding, activation: tuple[int, ...], panels: View | None) -> Record:
    """[N, C] by [C, M]: fewer numbers to move than by windows."""
    x, w, out = binding.input(0), binding.input(1), binding.output()
    residual = binding.optional(3)
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
