"""Layers that move elements: views, joins, windows, gathers and scatters."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.layers.common import Layer
from tools.campaigns.random_models.value import Value

__all__ = ["LAYERS"]


def _ranked(builder: Builder) -> Value:
    return builder.pick(lambda x: len(x.shape) > 0 and min(x.shape) >= builder.least)


def _filled(builder: Builder) -> Value:
    """With elements to choose from."""
    return builder.pick(lambda x: len(x.shape) > 0 and min(x.shape) > 0)


def _axis(builder: Builder, x: Value) -> int:
    """An axis of ``x``, counted from either end."""
    axis = builder.number(0, len(x.shape) - 1)
    return axis - len(x.shape) if builder.chance(0.3) else axis


def _reshape(builder: Builder) -> None:
    x = _ranked(builder)
    sizes = list(x.shape)
    for _ in range(builder.number(1, 3)):
        if len(sizes) > 1 and builder.chance(0.5):
            at = builder.number(0, len(sizes) - 2)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif len(sizes) < 5 and all(sizes):
            at = builder.number(0, len(sizes) - 1)
            divisor = builder.choice([d for d in range(1, sizes[at] + 1) if sizes[at] % d == 0])
            sizes[at : at + 1] = [divisor, sizes[at] // divisor]
    if builder.chance(0.4) and all(sizes):
        sizes[builder.number(0, len(sizes) - 1)] = -1
    builder.put("Reshape", [x.name, builder.ints(*sizes)])


def _transpose(builder: Builder) -> None:
    x = _ranked(builder)
    perm = [int(axis) for axis in builder.random.permutation(len(x.shape))]
    builder.put("Transpose", [x.name], perm=perm)


def _flat(builder: Builder) -> None:
    x = _ranked(builder)
    builder.put("Flatten", [x.name], axis=builder.number(0, len(x.shape)))


def _unsqueeze(builder: Builder) -> None:
    x = _ranked(builder)
    if 1 in x.shape and builder.chance(0.5):
        builder.put("Squeeze", [x.name, builder.ints(x.shape.index(1))])
    elif len(x.shape) < 5:
        builder.put("Unsqueeze", [x.name, builder.ints(builder.number(0, len(x.shape)))])


def _slice(builder: Builder) -> None:
    """Along some axes, forwards with steps or backwards."""
    x = _ranked(builder)
    axes = [axis for axis in range(len(x.shape)) if builder.chance(0.5)] or [len(x.shape) - 1]
    starts, ends, steps = [], [], []
    for axis in axes:
        dim = x.shape[axis]
        start = builder.number(0, max(dim - builder.least, 0))
        end = builder.number(min(start + builder.least, dim), dim)
        step = builder.choice([1, 1, 1, 2, 3])
        if builder.chance(0.2) and end > start:
            start, end, step = end - 1, start - 1 - dim, -step
        elif builder.chance(0.3):
            start, end = start - dim, end + builder.choice([0, 1 << 40])
        starts.append(start)
        ends.append(end)
        steps.append(step)
    operands = [builder.ints(*numbers) for numbers in (starts, ends, axes, steps)]
    builder.put("Slice", [x.name, *operands])


def _split(builder: Builder) -> None:
    x = _ranked(builder)
    axis = _axis(builder, x)
    dim = x.shape[axis]
    if dim < 2:
        raise RefusedError("nothing to split")
    low, high = builder.least, dim - builder.least
    cuts = sorted({builder.number(low, high) for _ in range(builder.number(1, 3))})
    sizes = [int(size) for size in np.diff([0, *cuts, dim])]
    parts = builder.emit("Split", [x.name, builder.ints(*sizes)], len(sizes), axis=axis)
    builder.keep(*parts)
    if builder.chance(0.3):
        builder.put("Concat", [part.name for part in parts[::-1]], axis=axis)


def _concat(builder: Builder) -> None:
    """Tensors that are equal but for one axis; some of them perhaps several times."""
    x = _ranked(builder)
    axis = builder.number(0, len(x.shape) - 1)

    def fits(y: Value) -> bool:
        without = [shape[:axis] + shape[axis + 1 :] for shape in (x.shape, y.shape)]
        return len(x.shape) == len(y.shape) and without[0] == without[1]

    names = [x.name, *(builder.like(x, fits).name for _ in range(builder.number(1, 3)))]
    if builder.chance(0.2) and x.is_float:
        names.append(builder.constant(builder.normal(*x.shape, dtype=x.array.dtype)))
    order = [names[int(i)] for i in builder.random.permutation(len(names))]
    builder.put("Concat", order, axis=axis)


def _expand(builder: Builder) -> None:
    x = _ranked(builder)
    shape = [builder.choice([2, 3, 8]) if dim == 1 else dim for dim in x.shape]
    if len(shape) < 4 and builder.chance(0.3):
        shape = [builder.number(1, 3), *shape]
    builder.put("Expand", [x.name, builder.ints(*shape)])


def _tile(builder: Builder) -> None:
    x = _ranked(builder)
    repeats = [builder.choice([1, 1, 2, 3]) for _ in x.shape]
    if prod(repeats) * x.array.size > 1 << 14:
        raise RefusedError("too large")
    builder.put("Tile", [x.name, builder.ints(*repeats)])


def _gather(builder: Builder) -> None:
    x = _filled(builder)
    axis = _axis(builder, x)
    dim = x.shape[axis]
    shape = builder.choice([(), (1,), (3,), (2, 2), (dim,), (8,)])
    indices = builder.random.integers(-dim, dim, shape)
    kind = np.dtype(builder.choice([np.int64, np.int32]))
    given = np.asarray(indices).astype(kind)
    name = builder.add_input(given) if builder.chance(0.3) else builder.constant(given)
    builder.put("Gather", [x.name, name], axis=axis)


def _gather_elements(builder: Builder) -> None:
    x = _filled(builder)
    axis = builder.number(0, len(x.shape) - 1)
    shape = [builder.number(1, dim) for dim in x.shape]
    indices = builder.random.integers(-x.shape[axis], x.shape[axis], shape)
    builder.put("GatherElements", [x.name, builder.ints_of(indices)], axis=axis)


def _gather_nd(builder: Builder) -> None:
    x = _filled(builder)
    depth = builder.number(1, len(x.shape))
    rows = builder.number(1, 5)
    columns = [builder.random.integers(0, dim, (rows,)) for dim in x.shape[:depth]]
    builder.put("GatherND", [x.name, builder.ints_of(np.stack(columns, axis=-1))])


def _scatter_elements(builder: Builder) -> None:
    x = builder.pick_float()
    if not x.shape or min(x.shape) == 0:
        raise RefusedError("nothing to scatter to")
    axis = builder.number(0, len(x.shape) - 1)
    shape = [builder.number(1, dim) for dim in x.shape]
    order = builder.random.permutation(x.shape[axis])[: shape[axis]]
    along = [1] * len(shape)
    along[axis] = shape[axis]
    indices = np.broadcast_to(order.reshape(along), shape)
    updates = builder.constant(builder.normal(*shape, dtype=x.array.dtype))
    reduction = builder.choice(["none", "none", "add"]) if builder.opset >= 16 else None
    operands = [x.name, builder.ints_of(indices), updates]
    builder.put("ScatterElements", operands, axis=axis, reduction=reduction)


def _scatter_nd(builder: Builder) -> None:
    x = builder.pick_float()
    if not x.shape or min(x.shape) == 0:
        raise RefusedError("nothing to scatter to")
    rows = builder.number(1, x.shape[0])
    indices = builder.random.permutation(x.shape[0])[:rows].reshape(rows, 1)
    updates = builder.constant(builder.normal(rows, *x.shape[1:], dtype=x.array.dtype))
    builder.put("ScatterND", [x.name, builder.ints_of(indices), updates])


def _pad(builder: Builder) -> None:
    x = _ranked(builder)
    low, high = builder.choice([(0, 2), (0, 1), (-1, 2)])
    least = [0 if dim < 2 else low for dim in x.shape] * 2  # no end takes more than there is
    pads = [builder.number(low, high) for low in least]
    modes = ["constant", "constant", "edge", "reflect"]
    operands = [x.name, builder.ints(*pads)]
    mode = builder.choice(modes)
    if mode == "constant" and builder.chance(0.5):
        operands.append(builder.constant(1, x.array.dtype))
    builder.put("Pad", operands, mode=mode)


def _triangle(builder: Builder) -> None:
    x = builder.pick(lambda y: len(y.shape) >= 2 and min(y.shape) > 0)
    builder.put(
        "Trilu",
        [x.name, builder.ints_of(np.array(builder.number(-2, 2)))],
        upper=builder.number(0, 1),
    )


def _reversed(builder: Builder) -> None:
    x = builder.pick(lambda y: len(y.shape) >= 2 and min(y.shape) > 0)
    lengths = builder.random.integers(1, x.shape[1] + 1, (x.shape[0],))
    builder.put("ReverseSequence", [x.name, builder.ints_of(lengths)], batch_axis=0, time_axis=1)


def _one_hot(builder: Builder) -> None:
    depth = builder.choice([3, 8, 17])
    indices = builder.random.integers(-depth, depth + 1, (builder.number(1, 9),))
    values = builder.constant(np.array([0.25, 1.5], builder.dtype))
    operands = [builder.ints_of(indices), builder.constant(np.array(depth)), values]
    builder.put("OneHot", operands, axis=builder.choice([-1, 0]))


def _computed_shape(builder: Builder) -> None:
    """Reshape to a shape that nodes compute."""
    x = builder.pick(lambda y: len(y.shape) >= 2 and min(y.shape) > 0)
    shape = builder.do("Shape", [x.name])
    first = builder.do("Gather", [shape, builder.ints(0)], axis=0)
    whole = builder.do("Concat", [first, builder.ints(-1)], axis=0)
    builder.put("Reshape", [x.name, whole])


LAYERS: Final[tuple[Layer, ...]] = (
    *(_reshape, _reshape, _transpose, _transpose, _transpose, _slice, _slice, _slice, _split),
    *(_concat, _concat, _concat, _concat, _expand, _tile, _gather, _gather, _gather_elements),
    *(_gather_nd, _scatter_elements, _scatter_nd, _pad, _pad, _triangle, _computed_shape, _flat),
    *(_unsqueeze, _unsqueeze, _reversed, _one_hot),
)
