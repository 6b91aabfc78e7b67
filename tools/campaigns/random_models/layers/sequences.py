"""Layers of networks for sequences [batch, time, features]."""

from __future__ import annotations

from math import sqrt
from typing import Any, Final

import numpy as np

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.layers.common import Layer, scaled
from tools.campaigns.random_models.layers.images import activate
from tools.campaigns.random_models.value import Value

__all__ = ["LAYERS"]


def _sequence(builder: Builder) -> Value:
    return builder.pick(lambda x: x.is_float and len(x.shape) == 3 and min(x.shape) > 0)


def _rows(builder: Builder) -> Value:
    return builder.pick(
        lambda x: x.is_float and len(x.shape) >= 2 and min(x.shape) >= builder.least
    )


def _linear(builder: Builder, x: Value, outputs: int) -> Value:
    shape = (x.shape[-1], outputs)
    weights = builder.weight(scaled(builder, shape, shape[0], x))
    return builder.emit("MatMul", [x.name, weights])[0]


def _project(builder: Builder) -> None:
    """A product with a matrix of weights, perhaps with a bias and an activation."""
    x = _rows(builder)
    y = _linear(builder, x, builder.channels())
    builder.keep(y)
    if builder.chance(0.6):
        bias = builder.constant(builder.normal(y.shape[-1], dtype=x.array.dtype))
        activate(builder, builder.put("Add", [y.name, bias][:: builder.choice([1, -1])]))


def _product(builder: Builder) -> None:
    """A product of two tensors."""
    x = _rows(builder)
    other = builder.like(
        x,
        lambda y: len(y.shape) >= 2 and y.shape[-1] == x.shape[-1] and y.shape[:-2] == x.shape[:-2],
    )
    perm = [*range(len(other.shape) - 2), len(other.shape) - 1, len(other.shape) - 2]
    turned = builder.do("Transpose", [other.name], perm=perm)
    scale = builder.constant(1 / sqrt(max(x.shape[-1], 1)), x.array.dtype)
    builder.put("Mul", [builder.do("MatMul", [x.name, turned]), scale])


def _einsum(builder: Builder) -> None:
    """A product that swaps axes."""
    x = _sequence(builder)
    weights = builder.weight(scaled(builder, (x.shape[2], builder.channels()), x.shape[2], x))
    equation = builder.choice(["btf,fg->btg", "btf,fg->bgt", "btf,fg->tbg"])
    builder.put("Einsum", [x.name, weights], equation=equation)


def _gemm(builder: Builder) -> None:
    x = builder.pick(lambda y: y.is_float and len(y.shape) == 2 and min(y.shape) > 0)
    turn_x, turn_w = builder.number(0, 1), builder.number(0, 1)
    count, outputs = x.shape[0 if turn_x else 1], builder.channels()
    shape = (outputs, count) if turn_w else (count, outputs)
    operands = [x.name, builder.weight(scaled(builder, shape, count, x))]
    if builder.chance(0.6):
        rows = x.shape[1 if turn_x else 0]
        bias = builder.choice([(outputs,), (1, outputs), (rows, 1), (), (rows, outputs)])
        operands.append(builder.weight(builder.normal(*bias, dtype=x.array.dtype)))
    factors = {"alpha": builder.choice([1.0, 1.0, 0.5]), "beta": builder.choice([1.0, 1.0, 0.25])}
    activate(builder, builder.put("Gemm", operands, transA=turn_x, transB=turn_w, **factors))


def _layer_norm(builder: Builder) -> None:
    x = _rows(builder)
    axis = builder.choice([-1, -1, -1, len(x.shape) - 2])
    shape = x.shape[axis:]
    parameters = [
        builder.constant(builder.around(centre, *shape).astype(x.array.dtype)) for centre in (1, 0)
    ]
    if builder.opset >= 23 and builder.chance(0.4):
        builder.put("RMSNormalization", [x.name, parameters[0]], axis=axis)
    else:
        count = builder.number(1, 2)
        builder.put("LayerNormalization", [x.name, *parameters[:count]], axis=axis)


def _composed_norm(builder: Builder) -> None:
    """LayerNormalization as exporters of old wrote it."""
    x = _rows(builder)
    axes = {"axes": [-1]} if builder.opset < 18 else {}
    operand = [] if axes else [builder.ints(-1)]
    mean = builder.do("ReduceMean", [x.name, *operand], **axes)
    centred = builder.do("Sub", [x.name, mean])
    square = builder.do("Pow", [centred, builder.constant(2, x.array.dtype)])
    variance = builder.do("ReduceMean", [square, *operand], **axes)
    shifted = builder.do("Add", [variance, builder.constant(1e-3, x.array.dtype)])
    builder.put("Div", [centred, builder.do("Sqrt", [shifted])])


def _heads(builder: Builder, x: Value, heads: int) -> str:
    shape = builder.ints(x.shape[0], x.shape[1], heads, x.shape[2] // heads)
    return builder.do("Transpose", [builder.do("Reshape", [x.name, shape])], perm=[0, 2, 1, 3])


def _composed_attention(builder: Builder) -> None:
    """Attention as products, a mask perhaps, and a softmax."""
    x = _sequence(builder)
    memory = builder.like(x, lambda y: len(y.shape) == 3 and y.shape[0] == x.shape[0])
    heads = builder.choice([1, 2, 4])
    width = heads * builder.choice([1, 4, 8, 16])
    q, k, v = (_linear(builder, source, width) for source in (x, memory, memory))
    turned = builder.do("Transpose", [_heads(builder, k, heads)], perm=[0, 1, 3, 2])
    scores = builder.do("MatMul", [_heads(builder, q, heads), turned])
    kind, factor = builder.choice(
        [("Mul", 1 / sqrt(width // heads)), ("Div", sqrt(width // heads))]
    )
    scores = builder.do(kind, [scores, builder.constant(factor, x.array.dtype)])
    if builder.chance(0.4):
        mask = np.triu(np.full((x.shape[1], memory.shape[1]), -100.0), 1)
        scores = builder.do("Add", [scores, builder.constant(mask, x.array.dtype)])
    shares = builder.do("Softmax", [scores], axis=-1)
    mixed = builder.do("MatMul", [shares, _heads(builder, v, heads)])
    back = builder.do("Transpose", [mixed], perm=[0, 2, 1, 3])
    joined = builder.put("Reshape", [back, builder.ints(x.shape[0], x.shape[1], width)])
    if width == x.shape[2]:
        builder.put("Add", [x.name, joined.name])


def _attention(builder: Builder) -> None:
    """The operator Attention of opset 23."""
    if builder.opset < 23:
        raise RefusedError("Attention is of opset 23")
    x = _sequence(builder)
    memory = builder.like(x, lambda y: len(y.shape) == 3 and y.shape[0] == x.shape[0])
    heads, groups = builder.choice([1, 2]), builder.choice([1, 1, 2])
    width = builder.choice([4, 8, 16])
    q = _linear(builder, x, heads * groups * width)
    k, v = (_linear(builder, memory, heads * width) for _ in range(2))
    operands = [q.name, k.name, v.name]
    if builder.chance(0.4):
        mask = builder.normal(x.shape[1], memory.shape[1], dtype=x.array.dtype)
        operands.append(builder.constant(mask))
    attributes = {"q_num_heads": heads * groups, "kv_num_heads": heads}
    builder.put("Attention", operands, is_causal=builder.number(0, 1), **attributes)


def _recurrence(builder: Builder) -> None:
    """LSTM, GRU or RNN in one or both directions."""
    x = _sequence(builder)
    kind, gates = builder.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    direction = builder.choice(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    size = builder.choice([1, 3, 7, 8, 16, 17])
    shapes = [(count, gates * size, x.shape[2]), (count, gates * size, size)]
    operands: list[str | None] = [x.name]
    operands += [builder.constant(scaled(builder, shape, shape[2], x)) for shape in shapes]
    bias = builder.normal(count, 2 * gates * size, scale=0.3, dtype=x.array.dtype)
    operands.append(builder.constant(bias) if builder.chance(0.6) else None)
    lengths = builder.random.integers(1, x.shape[0] + 1, (x.shape[1],))
    operands.append(builder.constant(lengths, np.int32) if builder.chance(0.2) else None)
    if builder.chance(0.4):
        state = builder.normal(count, x.shape[1], size, dtype=x.array.dtype)
        operands += [builder.weight(state)] * (2 if kind == "LSTM" else 1)
    extra: dict[str, Any] = {"linear_before_reset": builder.number(0, 1)} if kind == "GRU" else {}
    outputs = builder.emit(
        kind, operands, 3 if kind == "LSTM" else 2, direction=direction, hidden_size=size, **extra
    )
    builder.keep(*outputs)
    order = builder.do("Transpose", [outputs[0].name], perm=[0, 2, 1, 3])
    builder.put("Reshape", [order, builder.ints(x.shape[0], x.shape[1], count * size)])


def _embedding(builder: Builder) -> None:
    """Rows of a table, added to a sequence."""
    x = _sequence(builder)
    count = builder.choice([2, 7, 16, 33])
    table = builder.weight(builder.normal(count, x.shape[2], dtype=x.array.dtype))
    tokens = builder.random.integers(0, count, x.shape[:2])
    rows = builder.emit("Gather", [table, builder.add_input(tokens)])[0]
    builder.put("Add", [x.name, rows.name])


def _residual(builder: Builder) -> None:
    x = _rows(builder)
    builder.put("Add", [x.name, builder.like(x, lambda y: y.shape == x.shape).name])


def _gate(builder: Builder) -> None:
    """Halves of the features: one by a function of the other."""
    x = _rows(builder)
    if x.shape[-1] % 2:
        raise RefusedError("odd")
    half = x.shape[-1] // 2
    parts = builder.emit("Split", [x.name, builder.ints(half, half)], 2, axis=-1)
    kind = builder.choice(["Sigmoid", "Tanh", "Gelu" if builder.opset >= 20 else "Relu"])
    builder.put("Mul", [parts[0].name, builder.do(kind, [parts[1].name])])


LAYERS: Final[tuple[Layer, ...]] = (
    *(_project,) * 5,
    *(_residual,) * 3,
    *(_einsum, _gemm, _product, _layer_norm, _layer_norm, _composed_norm, _composed_attention),
    *(_composed_attention, _attention, _attention, _recurrence, _recurrence, _embedding, _gate),
)
