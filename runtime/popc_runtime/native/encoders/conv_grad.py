"""Transposed convolutions, which are the gradients of data, and the gradients of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any, Final
from popc_runtime.kernels.parts.windows import WindowAxis, window_axes
from popc_runtime.native.algorithms import copies_fit
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import contiguous_copy, move_record
from popc_runtime.native.encoders.conv import DIRECT, WINOGRAD, kernel_of_windows
from popc_runtime.native.epilogues import epilogue_activation
from popc_runtime.native.folded import folded_transposed
from popc_runtime.native.forms import NO_ACTIVATION, product_record
from popc_runtime.native.record import (
    MAX_RANK,
    MOST_AXES,
    Encoder,
    Record,
    activation_words,
    is_float32,
    tensor_words,
)
from popc_runtime.native.transposed import transposed_at_once
from popc_runtime.native.views import View, broadcast_to, filled, merged_view
from popc_runtime.native.winograd import as_image, winograd_adds, winograd_axes

__all__ = ["ENCODERS"]

# Kernels that read weights wherever they lie when they pack them, mirrored ones among them.
_READ_TURNED: Final = (DIRECT, WINOGRAD)
_MOST_PHASES: Final = 16  # MOST_PHASES of csrc/kernels/movement/weave.c


def _weights_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY [N, M, *windows], X [N, C, *sizes]: the gradient of W [M, C / group, *kernel]."""
    del numbers
    dy, x, out = binding.input(0), binding.input(1), binding.output()
    if not _is_plain(binding, x) or 0 in (dy.size, x.size, out.size):
        return None
    if not dy.is_contiguous:
        return None
    axes = window_axes(binding, x.shape[2:], out.shape[2:], dy.shape[2:])
    group = binding.integer("group", 1)
    if group == 1 and binding.integer("winograd", 1) and winograd_adds(x, out, dy, axes):
        words = [word for view in (x, out, dy) for word in tensor_words(view)]
        return Record("WinogradConvWeights_f32", (*words, *(axis.begin for axis in axes)))
    words = [*tensor_words(x), *tensor_words(out), *tensor_words(dy)]
    words += [*tensor_words(None), *tensor_words(None), group]
    for axis in axes:
        words += (axis.stride, axis.dilation, axis.begin)
    depthwise = x.shape[1] == group > 1 and len(axes) <= 2 and copies_fit(out.shape, dy.shape)
    kernel = "DepthwiseConvWeights_f32" if depthwise else "ConvWeights_f32"
    return Record(kernel, (*words, *activation_words(0, ())))


def _is_plain(binding: NativeBinding, x: View) -> bool:
    floats = is_float32(binding) and binding.text("partials", "float") == "float"
    return floats and 1 <= x.ndim - 2 <= MOST_AXES


@frozen
class _Phase:
    """Every ``stride``-th element of an axis of the result, which has taps of its own.

    Attributes:
        first: Of its elements; there are ``count``.
        taps: Which it has, mirrored.
        begin: The padding of the convolution that gives it.
    """

    first: int
    count: int
    taps: slice
    begin: int

    @classmethod
    def of(cls, axis: WindowAxis) -> Iterator[_Phase]:
        """All phases of an axis, whose ``size`` is that of the result.

        Element i gets tap t of window o where o * stride + t * dilation = i + begin.
        """
        for first in range(min(axis.stride, axis.size)):
            place = (first + axis.begin) % axis.stride
            taps = [t for t in range(axis.kernel) if t * axis.dilation % axis.stride == place]
            count = len(range(first, axis.size, axis.stride))
            step = taps[1] - taps[0] if len(taps) > 1 else 1
            last = taps[-1] if taps else 0
            mirrored = slice(last, taps[0] - 1 if taps and taps[0] else None, -step)
            # Mirrored tap 0 reads window (first + begin - last * dilation) / stride.
            begin = -((first + axis.begin - last * axis.dilation) // axis.stride)
            yield cls(first, count, mirrored if taps else slice(0, 0), begin)

    def window(self, axis: WindowAxis, kernel: int) -> WindowAxis:
        """The windows of so many taps that give the phase; ``axis`` is that of the result."""
        step = -self.taps.step if self.taps.step else 1
        dilation = max(1, int(step) * axis.dilation // axis.stride)  # of windows of the input
        return WindowAxis(axis.out, kernel, dilation=dilation, begin=self.begin, out=self.count)


def _conv_transpose(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, *sizes], W [C, M / group, *kernel], [B [M]]: convolutions with mirrored weights."""
    x, w, out, bias = binding.input(0), binding.input(1), binding.output(), binding.optional(2)
    activation = epilogue_activation(binding, numbers)
    group = binding.integer("group", 1)
    if not _is_plain(binding, x) or activation is None or 0 in (x.size, w.size, out.size):
        return None
    if binding.optional(3) is not None or w.ndim + 1 > MAX_RANK:
        return None
    if bias is not None and not bias.is_contiguous:
        return None
    axes = window_axes(binding, out.shape[2:], w.shape[2:], x.shape[2:])
    for way in (_of_single_pixels, folded_transposed, transposed_at_once):
        record = way(binding, axes, activation)
        if record is not None:
            return record
    grouped = w.reshape(group, -1, *w.shape[1:]).transpose(0, 2, 1, *range(3, w.ndim + 1))
    problem = _Transposed(binding, grouped, axes, (bias, group, activation))
    phases = [tuple(_Phase.of(axis)) for axis in axes]
    *before, last = problem.woven(phases) if problem.weaves(phases) else problem.moved(phases)
    return Record(last.kernel, last.words, last.keeps_alive, None, tuple(before))


def _of_single_pixels(
    binding: NativeBinding, axes: Sequence[WindowAxis], activation: tuple[int, ...]
) -> Record | None:
    """[N, C] by [C, M * taps], where each image is a pixel and its window the whole result.

    As convolutions, most of what it multiplies would be padding.
    """
    x, w, out, bias = binding.input(0), binding.input(1), binding.output(), binding.optional(2)
    whole = out.shape[2:] == w.shape[2:] and all(axis.begin == 0 for axis in axes)
    plain = w.is_contiguous and out.is_contiguous and prod(x.shape[2:]) == 1
    if not (whole and plain and binding.integer("group", 1) == 1):
        return None
    columns = prod(w.shape[1:])
    if bias is not None:
        if not binding.is_constant(2):
            return None
        each = broadcast_to(bias.reshape(-1, 1), (len(bias), prod(w.shape[2:])))
        bias = contiguous_copy(each).reshape(columns)
    return product_record(
        x.of_memory(x.shape[:2], x.strides[:2]),
        w.reshape(len(w), columns),
        out.reshape(len(out), columns),
        bias=bias,
        constant=binding.is_constant(1),
        activation=activation,
    )


@frozen
class _Transposed:
    """A transposed convolution: one convolution for each phase of each axis of its result.

    Attributes:
        binding: Its operands.
        w: [groups, outputs, channels, *kernel].
        axes: Of the result.
        rest: Its bias, groups and activation.
    """

    binding: NativeBinding
    w: View
    axes: Sequence[WindowAxis]
    rest: tuple[View | None, int, tuple[int, ...]]

    @property
    def winograd(self) -> bool:
        """True if Winograd's algorithm may be used."""
        return bool(self.binding.integer("winograd", 1))

    def weaves(self, phases: Sequence[tuple[_Phase, ...]]) -> bool:
        """True if phases are computed one by one, and then woven to the result."""
        counts = [len(phase) for phase in phases]
        flat = all(count == 1 for count in counts[:-2])
        return self.binding.output().is_contiguous and flat and 1 < prod(counts) <= _MOST_PHASES

    def woven(self, phases: Sequence[tuple[_Phase, ...]]) -> Iterator[Record]:
        """Records of the phases, each to memory of its own, and of what weaves them."""
        out, scratch = self.binding.output(), self.binding.scratch
        results: list[View | None] = []
        for some in product(*phases):
            empty = any(phase.taps.step is None for phase in some)  # no window reaches it
            if empty and self.rest[0] is None and self.rest[2] == NO_ACTIVATION:
                results.append(None)
                continue
            result = scratch.take((*out.shape[:2], *(phase.count for phase in some)), DType.FLOAT32)
            results.append(result)
            mark = scratch.mark()
            yield from self._phase(some, result)
            scratch.rewind(mark)
        counts = [1, *(len(phase) for phase in phases)][-2:]
        words = (*tensor_words(out), *counts, *(n for part in results for n in tensor_words(part)))
        yield Record("Weave_f32", words, tuple(part for part in results if part is not None))

    def moved(self, phases: Sequence[tuple[_Phase, ...]]) -> Iterator[Record]:
        """Records of the phases, each moved to its places in the result."""
        out, scratch = self.binding.output(), self.binding.scratch
        mark = scratch.mark()
        for some in product(*phases):
            scratch.rewind(mark)
            pairs = zip(some, self.axes, strict=True)
            steps = (slice(phase.first, None, axis.stride) for phase, axis in pairs)
            target = out[(..., *steps)]
            contiguous = target.is_contiguous
            result = target if contiguous else scratch.take(target.shape, DType.FLOAT32)
            yield from self._phase(some, result)
            if not contiguous:
                yield move_record(target, result)

    def _phase(self, phases: Sequence[_Phase], result: View) -> Iterator[Record]:
        """The records of one phase of each axis."""
        x, (bias, group, activation) = self.binding.input(0), self.rest
        taps: tuple[Any, ...] = (..., *(phase.taps for phase in phases))
        chosen = self.w[taps]
        if chosen.size == 0:
            chosen = filled((*self.w.shape[:3], *(1 for _ in self.axes)), DType.FLOAT32, 0.0)
            phases = [_Phase(p.first, p.count, slice(0, 1, 1), p.begin) for p in phases]
        pairs = zip(phases, self.axes, chosen.shape[3:], strict=True)
        axes = [phase.window(axis, kernel) for phase, axis, kernel in pairs]
        shape = (chosen.shape[0] * chosen.shape[1], *chosen.shape[2:])
        laid_out = (x, chosen.of_memory(shape), None)
        kernel = kernel_of_windows(laid_out, result, axes, group, winograd=self.winograd)
        weights = merged_view(chosen, shape)
        final = self.binding.is_constant(1)
        if final:
            weights = contiguous_copy(chosen).reshape(shape)
        elif weights is None or kernel not in _READ_TURNED:
            turned = self.binding.scratch.take(chosen.shape, DType.FLOAT32)
            yield move_record(turned, chosen)
            weights = turned.reshape(shape)
        read, by, made = (as_image(v) if kernel == WINOGRAD else v for v in (x, weights, result))
        words = [*tensor_words(read), *tensor_words(by, constant=final), *tensor_words(made)]
        words += [*tensor_words(bias), *tensor_words(None)]
        if kernel == WINOGRAD:
            words += winograd_axes(axes)
        else:
            words.append(group)
            words += [word for axis in axes for word in (axis.stride, axis.dilation, axis.begin)]
        yield Record(kernel, (*words, *activation), (weights, result))


ENCODERS: Final[dict[str, Encoder]] = {
    "ConvTranspose": _conv_transpose,
    "ConvWeightsGrad": _weights_grad,
}
