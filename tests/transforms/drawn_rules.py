"""Graphs on which the local rules may fire, with everything that decides whether they do drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from popc.ir import Tensor
from popc_runtime.format import DType
from tests.transforms.drawing import FLOATS, INTEGERS, Drawing

__all__ = ["GRAPHS_OF_RULES"]


def _binary(d: Drawing, op_types: tuple[str, ...], *values: float) -> Tensor:
    dtype = d.dtype()
    x = d.input(d.shape(), dtype)
    operands = [x, d.scalar(dtype, *values)]
    return d(d.of(*op_types), *(operands if d.flag() else operands[::-1]))


def _identity(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS, *INTEGERS, DType.BOOL)
    shape = d.shape(smallest=1)
    return d.of(*_IDENTITIES)(d, d.input(shape, dtype))


def _cast(d: Drawing, x: Tensor) -> Tensor:
    same = d.flag()
    return d("Cast", x, to=(x.type.dtype if same else d.dtype(*FLOATS)).value)


def _expand(d: Drawing, x: Tensor) -> Tensor:
    same = d.flag()
    return d("Expand", x, shape=x.type.shape if same else d.beside(x.type.shape))


def _reshape(d: Drawing, x: Tensor) -> Tensor:
    same = d.flag()
    return d("Reshape", x, shape=x.type.shape if same else (1, *x.type.shape))


def _tile(d: Drawing, x: Tensor) -> Tensor:
    same = d.flag()
    return d("Tile", x, repeats=tuple(1 if same else d.number(0, 2) for _ in x.type.shape))


def _concat(d: Drawing, x: Tensor) -> Tensor:
    same = d.flag()
    parts = [x] if same else [x, x]
    return d("Concat", *parts, axis=d.number(0, x.type.rank - 1)) if x.type.rank else x


def _one_addend(d: Drawing, x: Tensor) -> Tensor:
    same = d.flag()
    if x.type.dtype not in FLOATS:
        return d("Copy", x)
    return d("Sum", x, *([] if same else [d.input(d.beside(x.type.shape), x.type.dtype)]))


def _pad(d: Drawing, x: Tensor) -> Tensor:
    same = d.flag()
    pads = tuple(0 if same else d.number(-1, 1) for _ in (*x.type.shape, *x.type.shape))
    fits = all(dim + 2 * -1 >= 0 for dim in x.type.shape) or min(pads, default=0) >= 0
    return d("Pad", x, pads=pads, mode="constant", value=0.0) if fits else d("Detach", x)


def _slice(d: Drawing, x: Tensor) -> Tensor:
    starts: list[int] = []
    sizes: list[int] = []
    steps: list[int] = []
    for dim in x.type.shape:
        step = d.of(1, 1, -1, 2, -2)
        start = d.number(0, dim - 1)
        room = start // -step + 1 if step < 0 else (dim - start - 1) // step + 1
        starts, sizes, steps = [*starts, start], [*sizes, d.number(1, room)], [*steps, step]
    return d("Slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


_IDENTITIES: Final[tuple[Callable[[Drawing, Tensor], Tensor], ...]] = (
    _cast, _expand, _reshape, _tile, _concat, _one_addend, _pad,
    _slice,
    lambda d, x: d("Copy", x),
    lambda d, x: d("Detach", x),
)  # fmt: skip


def _sliced(d: Drawing) -> Tensor:
    x = d.input(tuple(4 * dim for dim in d.shape(smallest=1, most=4)), d.dtype())
    return _slice(d, _slice(d, x))


def _with_empty(d: Drawing) -> Tensor:
    shape = d.shape(least=1)
    axis = d.number(0, len(shape) - 1)
    dtype = d.dtype()
    parts = [
        d.input((*shape[:axis], d.number(0, 2), *shape[axis + 1 :]), dtype)
        for _ in range(d.number(1, 4))
    ]
    return d("Concat", *parts, axis=axis)


def _shape_of(d: Drawing, size: int) -> tuple[int, ...]:
    """Some shape of ``size`` elements."""
    shape: tuple[int, ...] = ()
    for factor in (2, 3, 2, 3):
        if size and size % factor == 0 and d.flag():
            shape, size = (*shape, factor), size // factor
    return (*shape, size, *(1 for _ in range(d.number(0, 1))))


def _reshapes(d: Drawing) -> Tensor:
    x = d.input(d.shape(), d.dtype())
    inner = d("Reshape", x, shape=_shape_of(d, x.type.size))
    return d("Reshape", inner, shape=d.of(x.type.shape, _shape_of(d, x.type.size)))


def _transpose(d: Drawing, x: Tensor) -> Tensor:
    perm = list(range(x.type.rank))
    for axis in range(len(perm)):
        other = d.number(0, len(perm) - 1)
        perm[axis], perm[other] = perm[other], perm[axis]
    return d("Transpose", x, perm=tuple(perm))


def _transposes(d: Drawing) -> Tensor:
    return _transpose(d, _transpose(d, d.input(d.shape(), d.dtype())))


def _casts(d: Drawing) -> Tensor:
    types = (*FLOATS, *INTEGERS, DType.INT16, DType.UINT16, DType.UINT64, DType.BOOL)
    x = d.input(d.shape(), d.dtype(*types))
    return d("Cast", d("Cast", x, to=d.of(*types).value), to=d.of(*types, x.type.dtype).value)


def _expanded_cast(d: Drawing) -> Tensor:
    shape = d.shape()
    dtype = d.dtype()
    thin = d.below(shape)
    expanded = d("Expand", d.input(thin, dtype), shape=shape)
    # What numbers outside of uint32 become in numpy depends on their strides.
    steady = [each for each in INTEGERS if each is not DType.UINT32]
    return d("Cast", expanded, to=d.dtype(*FLOATS, *steady).value)


def _pads(d: Drawing) -> Tensor:
    """Parts of a sum that lie side by side, or nearly, between zeros; and more addends."""
    dtype = d.dtype(*FLOATS, DType.INT32, DType.INT64)
    shape = d.shape(least=1, smallest=1, most=4)
    axis = d.number(0, len(shape) - 1)
    sizes = [d.number(1, 2) for _ in range(d.number(2, 3))]
    whole = sum(sizes) + d.number(0, 1)
    begin, addends = d.of(0, 0, whole - sum(sizes)), []
    for size in sizes:
        x = d.input((*shape[:axis], size, *shape[axis + 1 :]), dtype)
        pads = [0] * (2 * len(shape))
        pads[axis], pads[axis + len(shape)] = begin, whole - begin - size
        value = d.of(0.0, 0.0, 0.0, -0.0, 1.0)
        addends.append(d("Pad", x, pads=tuple(pads), mode="constant", value=value))
        begin += size
    full = (*shape[:axis], whole, *shape[axis + 1 :])
    addends += [d.input(d.of(full, d.beside(full)), dtype) for _ in range(d.number(0, 1))]
    addends = addends[:2] if dtype not in FLOATS else addends
    pair = len(addends) == 2 and d.flag()
    return d(
        "Add" if pair or dtype not in FLOATS else "Sum", *(addends if d.flag() else addends[::-1])
    )


def _sum(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    shape = d.shape()
    others = [d.input(d.of(shape, d.beside(shape)), dtype) for _ in range(d.number(0, 2))]
    return d("Sum", d.input(shape, dtype), *others)


def _tied(d: Drawing) -> Tensor:
    rows, places = d.number(1, 4), d.shape(most=2, smallest=1)
    width = d.shape(most=2, smallest=1)
    dtype = d.dtype(*FLOATS)
    indices = np.asarray(np.random.default_rng(d.number(0, 9)).integers(-rows, rows, places))
    grad = d(
        "GatherGrad", d.input((*places, *width), dtype), d.constant(indices, DType.INT64),
        axis=0, size=rows,
    )  # fmt: skip
    dense = d.input(d.of((rows, *width), (rows, *width), (1,)), dtype)
    return d(d.of("Add", "Sum"), *((grad, dense) if d.flag() else (dense, grad)))


def _bags(d: Drawing) -> Tensor:
    rows, count, width = d.number(1, 4), d.number(1, 3), d.shape(most=2, smallest=1)
    tables = [d.input((rows, *width)) for _ in range(d.of(1, 1, 2))]
    numbers = np.random.default_rng(d.number(0, 9)).integers(-rows, rows, 2 * count)
    places, fold = d.constant(numbers, DType.INT64), d.of("ReduceSum", "ReduceMean", "ReduceMax")
    bags = []
    for start in (0, d.of(count, 0)):
        part = d("Slice", places, starts=(start,), sizes=(count,), steps=(1,))
        found = d("Gather", tables[start % len(tables)], part, axis=0)
        kept = d.of(0, 1)
        bag = d(fold, found, axes=(0,), keepdims=kept)
        bags.append(bag if kept else d("Reshape", bag, shape=(1, *width)))
    return d("Concat", *bags, axis=0)


def _gather(d: Drawing) -> Tensor:
    shape = tuple(2 * dim for dim in d.shape(least=1, most=4, smallest=1))
    axis = d.number(0, len(shape) - 1)
    x = d.input(shape, d.dtype())
    dim = shape[axis]
    places: object = d.number(-dim, dim - 1)
    if d.flag():
        start, step = d.number(0, dim - 1), d.of(1, -1, 2, 0)
        row = [start + step * index for index in range(d.number(0, 3))]
        places = [place for place in row if 0 <= place < dim]
    if d.flag():
        places = [places]
    return d("Gather", x, d.constant(places, d.of(DType.INT32, DType.INT64)), axis=axis)


def _large_gather(d: Drawing) -> Tensor:
    axis = d.number(0, 1)
    columns = 1 << 17
    x = d.input((4, columns) if axis == 0 else (columns, 4))
    places = np.random.default_rng(d.number(0, 9)).integers(
        -4, 4, (d.number(1, 5), 1)[: d.number(1, 2)]
    )
    return d("Gather", x, d.constant(places, DType.INT64), axis=axis)


def _convolved(d: Drawing) -> Tensor:
    dtype = d.dtype(DType.FLOAT32, DType.FLOAT64)
    spatial = d.number(1, 2)
    x = d.input((d.number(1, 2), 2, *(d.number(2, 4) for _ in range(spatial))), dtype)
    least = d.of(0, 0, -1)
    of_channels = (0, d.of(0, 0, 0, 1))
    pads = tuple(d.number(least, 2) for _ in range(2 * spatial))
    around = (*of_channels, *pads[:spatial], 0, 0, *pads[spatial:])
    x = d("Pad", x, pads=around, mode="constant", value=d.of(0.0, 0.0, 1.0))
    taps = tuple(d.number(1, min(2, size)) for size in x.type.shape[2:])
    own = tuple(d.number(0, 1) for _ in pads)
    steps = tuple(d.number(1, 2) for _ in taps)
    return d("Conv", x, d.input((3, x.type.shape[1], *taps), dtype), pads=own, strides=steps)


def _quotient(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    x = d.input(d.shape(least=1, smallest=1), dtype)
    below = d.below(x.type.shape)
    y = d("Exp", d.input(below, dtype)) if d.flag() else d.scalar(dtype, 3, -0.7, 2, 0.1)
    return d("Div", x, y)


def _two_constants(d: Drawing) -> Tensor:
    dtype, op_type = d.dtype(*FLOATS), d.of("Add", "Mul")
    x = d.input(d.shape(), dtype)
    for _ in range(2):
        operands = [x, d.scalar(dtype, 3, -0.7, 0.1)]
        x = d(op_type, *(operands if d.flag() else operands[::-1]))
    return x


def _factored(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    shape = d.shape()
    factor = d.input(d.below(shape), dtype)
    parts = [(d.input(shape, dtype), factor) for _ in range(2)]
    products = [d("Mul", *(part if d.flag() else part[::-1])) for part in parts]
    return d(d.of("Add", "Sub"), *products)


def _known(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    x = d.input(d.shape(), dtype)
    if d.flag():
        return d("Mul", x, d.scalar(dtype, 0, 1))
    x = d("Exp", x)
    return d(d.of("Sub", "Div"), x, x)


def _reshaped_product(d: Drawing) -> Tensor:
    dtype = d.dtype(DType.FLOAT32, DType.FLOAT64)
    if d.flag():
        sizes = (d.of(1, 3), d.number(1, 4))
        kernel = d.input((d.of(1, 3), 2, 1, 1), dtype)
        x = d("Conv", d.input((d.number(1, 2), 2, *sizes), dtype), kernel)
    else:
        rows, columns = d.of((), (4,), (1, 4), (3, 4)), d.number(1, 3)
        weights = d.constant(np.arange(2 * columns).reshape(2, columns), dtype)
        x = d("MatMul", d.input((*rows, 2), dtype), weights)
    for _ in range(d.number(0, 1)):
        x = d("Mul", x, d.scalar(dtype, 3, -0.7))
    shape = x.type.shape
    left = [size for size in shape if size != 1]
    x = d("Reshape", x, shape=d.of((*left, 1), (1, *left), (*left,), (x.type.size,), shape[::-1]))
    if d.flag():
        return d(d.of("Relu", "Tanh", "Clip"), x)
    below = d.below(x.type.shape)
    operands = [x, d.constant(np.resize([3, -0.7, 0.1], below), dtype)]
    return d(d.of("Add", "Sub", "Mul", "Div"), *(operands if d.flag() else operands[::-1]))


GRAPHS_OF_RULES: Final[Mapping[str, Callable[[Drawing], Tensor]]] = {
    "add_pads": _pads,
    "common_factors": _factored,
    "drop_detach": lambda d: d("Detach", d.input(d.shape(smallest=1), d.dtype(*FLOATS))),
    "drop_empty_operands": _with_empty,
    "drop_identities": _identity,
    "drop_neutral_elements": lambda d: _binary(d, ("Add", "Sub", "Mul", "Div"), 0, 1, 0, 1, -0.0),
    "expand_casts": _expanded_cast,
    "gathers_of_ranges": _gather,
    "inverse_factors": _quotient,
    "join_casts": _casts,
    "join_reshapes": _reshapes,
    "join_slices": _sliced,
    "join_transposes": _transposes,
    "joined_constants": _two_constants,
    "known_values": _known,
    "late_reshapes": _reshaped_product,
    "lookups_of_bags": _bags,
    "negative_ones": lambda d: _binary(d, ("Mul",), -1, -1, -1),
    "pad_windows": _convolved,
    "split_gathers": _large_gather,
    "split_slices": _sliced,
    "sums_of_two": _sum,
    "tied_gradients": _tied,
    "trivial_transposes": _transposes,
}
