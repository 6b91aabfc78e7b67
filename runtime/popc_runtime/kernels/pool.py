"""Pooling and unpooling.

Maxima and sums over a window are separable: first along one axis, then along the next, each step a
ufunc per tap over whole planes.  Rows come first, because they are read in the order of memory and
leave less for the axes that are not.  Blocks of channels keep the steps in the cache, and
a window around each element moves over the block as over one line (`_shifted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.parts.windows import Span, WindowAxis, tap_places, window_axes

__all__ = ["KERNELS", "Block", "along", "block_by_block", "lowest", "one_image", "shares"]

_BLOCK_BYTES: Final = 1 << 18  # of the input in one block
_FEW_TAPS: Final = 5  # of windows whose borders are cheap to mend


def _axes(binding: Binding) -> tuple[WindowAxis, ...]:
    x, out = binding.input(0), binding.output()
    return window_axes(binding, x.shape[2:], binding.integers("kernel_shape"), out.shape[2:])


def one_image(*arrays: Array) -> tuple[Array, ...]:
    """Arrays [N, C, *sizes] as [1, N * C, *sizes] if all can be: small images then share blocks."""
    shapes = [(1, array.shape[0] * array.shape[1], *array.shape[2:]) for array in arrays]
    views = [merged_view(array, shape) for array, shape in zip(arrays, shapes, strict=True)]
    return (
        arrays if any(view is None for view in views) else tuple(v for v in views if v is not None)
    )


# From the number of an image and a slice of channels, the calls for these.
Block: TypeAlias = Callable[[int, slice], Iterable[Call]]


def block_by_block(
    binding: Binding, x: Array, axes: Sequence[WindowAxis], block: Block
) -> tuple[Call, ...]:
    """The calls for all channels of all images of ``x``, in blocks that stay in the cache."""
    images, channels, *sizes = x.shape
    length = max(1, _BLOCK_BYTES // max(1, prod(sizes) * x.itemsize))
    places = [
        (image, part)
        for image in range(images)
        for part in even_slices(channels, -(-channels // length))
    ]
    count = share_count(elements=x.size * sum(axis.kernel for axis in axes), most=len(places))
    chunks = [partial(_blocks, block, places[part]) for part in even_slices(len(places), count)]
    return parallel_calls(binding.scratch, chunks)


def _blocks(block: Block, places: Iterable[tuple[int, slice]]) -> Iterator[Call]:
    for image, channels in places:
        yield from block(image, channels)


# -- one axis after the other ----------------------------------------------------------------------


def _pooled(
    binding: Binding,
    x: Array,
    out: Array,
    axes: Sequence[WindowAxis],
    ufunc: np.ufunc,
    neutral: Any,
) -> Iterator[Call]:
    """The ``ufunc`` over each window of x [channels, *sizes], in out [channels, *outs]."""
    numbers = [number for number, axis in enumerate(axes, start=1) if not axis.is_plain]
    if not numbers:
        yield partial(np.copyto, out, x)
    mark = binding.scratch.mark()
    for number in numbers:
        shape = (*x.shape[:number], axes[number - 1].out, *x.shape[number + 1 :])
        target = out if number == numbers[-1] else binding.scratch.take(shape, x.dtype)
        yield from along(x, target, number, axes[number - 1], ufunc, neutral)
        x = target
    binding.scratch.rewind(mark)


def along(
    x: Array, out: Array, number: int, axis: WindowAxis, ufunc: np.ufunc, neutral: Any
) -> Iterator[Call]:
    """The ``ufunc`` over each window along dimension ``number`` alone."""
    if _is_around_each(axis) and x.flags.c_contiguous and out.flags.c_contiguous:
        return _shifted(x, out, number, axis, ufunc)
    return _tap_by_tap(x, out, number, axis, ufunc, neutral)


def _is_around_each(axis: WindowAxis) -> bool:
    """True if there is a window for each element, which it is a tap of, and taps are few."""
    reads_itself = 0 <= axis.begin < axis.extent and axis.begin % axis.dilation == 0
    for_each = axis.stride == 1 and axis.out == axis.size
    return reads_itself and for_each and 2 <= axis.kernel <= _FEW_TAPS


def _tap_by_tap(
    x: Array, out: Array, number: int, axis: WindowAxis, ufunc: np.ufunc, neutral: Any
) -> Iterator[Call]:
    lead = (slice(None),) * number

    def operands(span: Span) -> tuple[Array, Array]:
        return out[(*lead, span.outputs)], x[(*lead, span.inputs)]

    spans = [axis.span(tap) for tap in range(axis.kernel)]
    whole = [span for span in spans if span.size == axis.out]
    rest = [span for span in spans if 0 < span.size < axis.out] + whole[2:]
    if len(whole) > 1:
        yield partial(ufunc, operands(whole[0])[1], operands(whole[1])[1], out=out)
    elif whole:
        yield partial(np.copyto, out, operands(whole[0])[1])
    else:
        yield partial(out.fill, neutral)
    for span in rest:
        target, source = operands(span)
        yield partial(ufunc, target, source, out=target)


def _shifted(
    x: Array, out: Array, number: int, axis: WindowAxis, ufunc: np.ufunc
) -> Iterator[Call]:
    """For windows around each element: shift the whole block as one line, then mend its borders.

    Shifted so, the first and last elements of an axis meet those of the next row or plane.
    """
    inner = prod(x.shape[number + 1 :])
    taps = [tap * axis.dilation - axis.begin for tap in range(axis.kernel)]
    low, high = -taps[0] * inner, taps[-1] * inner
    flat, line = x.reshape(-1), out.reshape(-1)
    stop = max(flat.size - high, low)
    if stop > low:
        parts = [flat[low + tap * inner : stop + tap * inner] for tap in taps]
        yield partial(ufunc, parts[0], parts[1], out=line[low:stop])
        for part in parts[2:]:
            yield partial(ufunc, line[low:stop], part, out=line[low:stop])
    lead = (slice(None),) * number
    ends = {*range(min(axis.begin, axis.size)), *range(max(axis.size - taps[-1], 0), axis.size)}
    for place in sorted(ends):
        target = out[(*lead, place)]
        sources = [x[(*lead, place + tap)] for tap in taps if 0 <= place + tap < axis.size]
        yield partial(np.copyto, target, sources[0])
        for source in sources[1:]:
            yield partial(ufunc, target, source, out=target)


def lowest(dtype: np.dtype[Any]) -> Any:
    """The lowest value of a type: no element is below it."""
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def shares(binding: Binding, axes: Sequence[WindowAxis], dtype: np.dtype[Any]) -> Array:
    """The weight of each element of a window in an average, [*windows]; [] if all weigh the same.

    Attribute ``count_include_pad`` says whether padding is counted.
    """
    include = bool(binding.integer("count_include_pad", 0))
    pairs = [np.array(axis.counts(include_padding=include)) for axis in axes]
    counts = [np.repeat(np.maximum(sizes, 1), times) for sizes, times in (p.T for p in pairs)]
    share = (1 / reduce(np.multiply.outer, counts)).astype(dtype)
    return share.reshape(-1)[0].reshape(()) if (share == share.flat[0]).all() else share


def _average_pool(binding: Binding) -> Calls:
    """ONNX AveragePool-22."""
    x, out, axes = binding.input(0), binding.output(), _axes(binding)
    if out.size == 0:
        return ()
    share = shares(binding, axes, out.dtype)
    if _in_pixels(x) or _in_pixels(out):
        return _pixels_pooled(binding, axes, np.add, 0, share)
    x, out = one_image(x, out)

    def block(image: int, channels: slice) -> Iterator[Call]:
        part = out[image, channels]
        yield from _pooled(binding, x[image, channels], part, axes, np.add, 0)
        yield partial(np.multiply, part, share, out=part)

    return block_by_block(binding, x, axes, block)


def _in_pixels(image: Array) -> bool:
    """True if an image [N, C, *sizes] has its channels side by side."""
    return image.shape[1] > 1 and image.strides[1] == image.itemsize and image.ndim > 2


def _pixels_pooled(
    binding: Binding,
    axes: Sequence[WindowAxis],
    ufunc: np.ufunc,
    neutral: Any,
    share: Array | None = None,
) -> tuple[Call, ...]:
    """The calls for images that lie pixel by pixel: each step takes rows with all channels."""
    x, out = (np.moveaxis(image, 1, -1) for image in (binding.input(0), binding.output()))

    def images(part: slice) -> Iterator[Call]:
        target = out[part]
        yield from _pooled(binding, x[part], target, axes, ufunc, neutral)
        if share is not None:
            yield partial(np.multiply, target, share[..., None], out=target)

    count = share_count(elements=x.size * sum(axis.kernel for axis in axes), most=len(x))
    chunks = [partial(images, part) for part in even_slices(len(x), count)]
    return parallel_calls(binding.scratch, chunks)


def _lp_pool(binding: Binding) -> Calls:
    """(sum of |x| ** p) ** (1 / p); padding counts as zero."""
    x, out, axes = binding.input(0), binding.output(), _axes(binding)
    if out.size == 0:
        return ()
    x, out = one_image(x, out)
    p = binding.integer("p", 2)

    def block(image: int, channels: slice) -> Iterator[Call]:
        source, part = x[image, channels], out[image, channels]
        mark = binding.scratch.mark()
        powers = binding.scratch.take(source.shape, source.dtype)
        yield from _power(source, powers, p)
        yield from _pooled(binding, powers, part, axes, np.add, 0)
        yield from _root(part, p)
        binding.scratch.rewind(mark)

    return block_by_block(binding, x, axes, block)


def _power(x: Array, out: Array, p: int) -> Iterator[Call]:
    if p == 2:
        yield partial(np.square, x, out=out)
        return
    yield partial(np.absolute, x, out=out)
    if p > 1:
        yield partial(np.power, out, out.dtype.type(p), out=out)


def _root(x: Array, p: int) -> Iterator[Call]:
    if p == 2:
        yield partial(np.sqrt, x, out=x)
    elif p > 1:
        yield partial(np.power, x, x.dtype.type(1 / p), out=x)


# -- maxima ----------------------------------------------------------------------------------------


def _max_pool(binding: Binding) -> Calls:
    """Maxima and, if wanted, where they are: see `_positions`."""
    x, out, axes = binding.input(0), binding.output(), _axes(binding)
    if out.size == 0:
        return ()
    indices, least = binding.optional_output(1), lowest(x.dtype)
    if indices is None and (_in_pixels(x) or _in_pixels(out)):
        return _pixels_pooled(binding, axes, np.maximum, least)
    if indices is None:
        x, out = one_image(x, out)
    else:
        x, out, indices = one_image(x, out, indices)

    def block(image: int, channels: slice) -> Iterator[Call]:
        source, part = x[image, channels], out[image, channels]
        if indices is None:
            yield from _pooled(binding, source, part, axes, np.maximum, least)
        else:
            where = indices[image, channels]
            yield from _located(binding, source, part, where, axes)
            first = (image * x.shape[1] + channels.start) * prod(x.shape[2:])
            yield partial(np.add, where, _plane_starts(source, first), out=where)

    return block_by_block(binding, x, axes, block)


def _located(
    binding: Binding, x: Array, out: Array, where: Array, axes: Sequence[WindowAxis]
) -> Iterator[Call]:
    """Maxima and their positions within the plane; of equals, or NaNs, which win, the first.

    The taps are visited last to first, and a later maximum replaces an equal one.
    """
    positions = _positions(x.shape[1:], column_major=bool(binding.integer("storage_order", 0)))
    mark = binding.scratch.mark()
    larger = binding.scratch.take(out.shape, np.bool_)
    nans = binding.scratch.take(out.shape, np.bool_)
    binding.scratch.rewind(mark)
    yield partial(out.fill, lowest(x.dtype))
    yield partial(where.fill, 0)
    for _, windows, elements in reversed(list(tap_places(axes))):
        source, target = x[elements], out[windows]
        mask, index, is_nan = larger[windows], positions[elements], nans[windows]
        if target.size:
            yield partial(np.greater_equal, source, target, out=mask)
            yield partial(np.not_equal, source, source, out=is_nan)
            yield partial(np.logical_or, mask, is_nan, out=mask)
            yield partial(np.copyto, target, source, where=mask)
            yield partial(np.copyto, where[windows], index, where=mask)


def _positions(sizes: tuple[int, ...], *, column_major: bool) -> Array:
    """The number of each element of a plane."""
    numbers = np.arange(prod(sizes), dtype=np.int64)
    return numbers.reshape(sizes, order="F" if column_major else "C")


def _plane_starts(x: Array, first: int) -> Array:
    """The start of each plane of ``x`` in the whole input, over which indices count."""
    planes, *sizes = x.shape
    starts = first + np.arange(planes, dtype=np.int64) * prod(sizes)
    return starts.reshape(planes, *(1 for _ in sizes))


def _max_unpool(binding: Binding) -> Calls:
    """Values back at the indices they were taken from; zero elsewhere."""
    x, indices, out = binding.input(0), binding.input(1), binding.output()
    flat = out.reshape(-1)
    return (partial(out.fill, 0), partial(flat.__setitem__, indices, x))


KERNELS: Final[dict[str, Kernel]] = {
    "AveragePool": in_float32(_average_pool),
    "LpPool": in_float32(_lp_pool),
    "MaxPool": in_float32(_max_pool),
    "MaxUnpool": _max_unpool,
}
