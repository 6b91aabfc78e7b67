"""Elements that move to places known beforehand: copies, views made real, joins, borders."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.borders import border_runs
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import move_record
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import View, broadcast_to, filled, is_same_memory, merged_view

__all__ = ["ENCODERS"]


def _moves(pairs: Iterable[tuple[View, View]]) -> Record | None:
    """Copies of the second of each pair to the first, in this order; ``None`` if there are none."""
    wanted = [(to, source) for to, source in pairs if to.size > 0]
    if not wanted or any(to.ndim >= MAX_RANK for to, _ in wanted):
        return None
    *before, last = (move_record(to, source) for to, source in wanted)
    return Record(last.kernel, last.words, last.kept, before=tuple(before))


def _copy(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Each operand to the result of its number, unless that has taken over its memory."""
    del numbers
    pairs = ((binding.output(i), binding.input(i)) for i in range(len(binding.outputs)))
    return _moves((to, source) for to, source in pairs if not is_same_memory(to, source))


def _bit_cast(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    x, out = binding.input(0), binding.output()
    if x.itemsize != out.itemsize:
        return None
    return _moves([(out, x.of_memory(x.shape, x.strides, dtype=out.dtype))])


def _reshape(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    x, out = binding.input(0), binding.output()
    target, source = merged_view(out, x.shape), merged_view(x, out.shape)
    if target is not None:
        return _moves([(target, x)])
    if source is not None:
        return _moves([(out, source)])
    copy = binding.scratch.take(x.shape, x.dtype)
    return _moves([(copy, x), (out, copy.reshape(out.shape))])


def _transpose(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {perm}."""
    del numbers
    return _moves([(binding.output(), binding.input(0).transpose(*binding.integers("perm")))])


def _expand(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    out = binding.output()
    return _moves([(out, broadcast_to(binding.input(0), out.shape))])


def _tile(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {repeats}: each dimension n becomes (repeats, n)."""
    del numbers
    x, out, repeats = binding.input(0), binding.output(), binding.integers("repeats")
    if not out.is_contiguous or out.size == 0:
        return None
    shape: list[int] = []
    strides: list[int] = []
    for repeat, dim, stride in zip(repeats, x.shape, x.strides, strict=True):
        shape += (repeat, dim)
        strides += (0, stride)
    kept = [axis for axis, dim in enumerate(shape) if dim != 1]
    wide = tuple(shape[axis] for axis in kept)
    source = x.of_memory(wide, tuple(strides[axis] for axis in kept))
    return _moves([(out.reshape(wide), source)])


def _slice(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {starts, steps}."""
    del numbers
    out = binding.output()
    places = zip(binding.integers("starts"), out.shape, binding.integers("steps"), strict=True)
    window = tuple(_window(start, size, step) for start, size, step in places)
    return _moves([(out, binding.input(0)[window])])


def _window(start: int, size: int, step: int) -> slice:
    """``size`` elements from ``start`` on; a slice cannot name the place before index 0."""
    stop = start + size * step
    return slice(start, stop if stop >= 0 else None, step)


def _parts(whole: View, axis: int, sizes: list[int]) -> list[View]:
    """Consecutive parts of the given sizes along ``axis``."""
    front = (slice(None),) * axis
    ends = accumulate(sizes)
    return [whole[(*front, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _concat(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Operands of any number {axis}."""
    del numbers
    axis = binding.integer("axis")
    operands = [binding.input(index) for index in range(len(binding.inputs))]
    parts = _parts(binding.output(), axis, [operand.shape[axis] for operand in operands])
    return _moves(zip(parts, operands, strict=True))


def _split(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X to parts, some of which may not be wanted {axis, split}."""
    del numbers
    parts = _parts(binding.input(0), binding.integer("axis"), list(binding.integers("split")))
    pairs = zip(binding.outputs, parts, strict=True)
    return _moves((out, part) for out, part in pairs if out is not None)


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
    kept = (
        slice(max(-begin, 0), dim - max(-end, 0))
        for begin, end, dim in zip(begins, ends, x.shape, strict=True)
    )
    cropped = x[tuple(kept)]
    firsts = [max(begin, 0) for begin in begins]
    window = [slice(at, at + dim) for at, dim in zip(firsts, cropped.shape, strict=True)]
    pairs = [(out[tuple(window)], cropped)]
    for axis, dim in enumerate(cropped.shape):
        if dim != out.shape[axis]:
            pairs += _borders(out, window, axis, mode, value)
        window[axis] = slice(None)
    return _moves(pairs)


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
    "BitCast": _bit_cast,
    "Boundary": _copy,
    "Concat": _concat,
    "Copy": _copy,
    "Detach": _copy,
    "Expand": _expand,
    "IoTileCopy": _copy,
    "IpuCopy": _copy,
    "Pad": _pad,
    "RemoteLoad": _copy,
    "RemoteStore": _copy,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Transpose": _transpose,
}
