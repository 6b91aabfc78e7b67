"""Layers that work element by element."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.layers.common import Layer, broadcasts
from tools.campaigns.random_models.value import Value

__all__ = ["LAYERS"]

_UNARY = (
    *("Relu", "Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Erf", "Softplus", "Elu", "Selu"),
    *("Celu", "LeakyRelu", "HardSigmoid", "HardSwish", "Softsign", "Floor", "Ceil", "Round"),
    *("Sign", "Mish", "Gelu", "Sin", "Cos", "Identity"),
)


def _unary(builder: Builder) -> None:
    builder.put(builder.choice(_UNARY), [builder.pick_float().name])


def _binary(builder: Builder) -> None:
    """Two tensors, or a tensor and a constant that is spread over it."""
    x = builder.pick_float()
    kind = builder.choice(["Add", "Add", "Mul", "Mul", "Sub", "Max", "Min"])
    if builder.chance(0.5):
        other = builder.like(x, lambda y: broadcasts(x, y)).name
    else:
        other = spread(builder, x)
    operands = [x.name, other][:: builder.choice([1, 1, -1])]
    builder.put(kind, operands)


def spread(builder: Builder, x: Value) -> str:
    """A constant that can be added to ``x``: with ones, or fewer dimensions."""
    shape = [dim if builder.chance(0.5) else 1 for dim in x.shape]
    kept = shape[builder.number(0, len(shape)) :]
    return builder.constant(builder.normal(*kept, dtype=x.array.dtype))


def _divide(builder: Builder) -> None:
    x = builder.pick_float()
    size = np.abs(builder.normal(*x.shape[-1:])) + 0.5
    builder.put("Div", [x.name, builder.constant(size.astype(x.array.dtype))])


def _square(builder: Builder) -> None:
    x = builder.pick_float()
    power = builder.choice([2.0, 3.0, 2.0])
    builder.put("Pow", [x.name, builder.constant(power, x.array.dtype)])


def _root(builder: Builder) -> None:
    x = builder.pick_float()
    positive = builder.do("Abs", [x.name])
    shifted = builder.do("Add", [positive, builder.constant(0.5, x.array.dtype)])
    builder.put(builder.choice(["Sqrt", "Log", "Reciprocal"]), [shifted])


def _neutral(builder: Builder) -> None:
    """Something that changes little: rewrites look for it."""
    x = builder.pick_float()
    kind, number = builder.choice([("Mul", 1), ("Add", 0), ("Mul", -1), ("Mul", 2), ("Add", 3)])
    shape = (1,) * builder.number(0, len(x.shape))
    other = builder.constant(np.full(shape, number), x.array.dtype)
    builder.put(kind, [x.name, other][:: builder.choice([1, -1])])


def _select(builder: Builder) -> None:
    x = builder.pick_float()
    other = builder.like(x, lambda y: broadcasts(x, y))
    kind = builder.choice(["Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    condition = builder.do(kind, [x.name, spread(builder, x)])
    if builder.chance(0.2):
        condition = builder.do("Not", [condition])
    builder.put("Where", [condition, x.name, other.name])


def _clip(builder: Builder) -> None:
    x = builder.pick_float()
    low = builder.constant(builder.choice([-1.0, 0.0, -0.3]), x.array.dtype)
    high = builder.constant(builder.choice([0.5, 1.0, 6.0]), x.array.dtype)
    choices: list[list[str | None]] = [[low, high], [low], [None, high]]
    limits = builder.choice(choices)
    builder.put("Clip", [x.name, *limits])


def _cast(builder: Builder) -> None:
    """To another type, and back now and then."""
    x = builder.pick(lambda _: True)
    kinds = [
        onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT32,
        onnx.TensorProto.INT8, onnx.TensorProto.INT64, onnx.TensorProto.BOOL,
        onnx.TensorProto.DOUBLE,
    ]  # fmt: skip
    there = builder.put("Cast", [x.name], to=builder.choice(kinds))
    if builder.chance(0.7):
        back = onnx.helper.np_dtype_to_tensor_dtype(builder.dtype)
        builder.put("Cast", [there.name], to=back)


def _integers(builder: Builder) -> None:
    x = builder.pick(lambda y: y.array.dtype.kind in "iu" and len(y.shape) > 0)
    other = builder.like(x, lambda y: broadcasts(x, y))
    builder.put(builder.choice(["Add", "Sub", "Mul", "Max", "Min"]), [x.name, other.name])


def _logic(builder: Builder) -> None:
    """Comparisons, and what is made of them, as numbers."""
    x = builder.pick_float()
    first = builder.do(builder.choice(["Less", "Greater"]), [x.name, spread(builder, x)])
    second = builder.do(builder.choice(["LessOrEqual", "Equal"]), [x.name, spread(builder, x)])
    both = builder.put(builder.choice(["And", "Or", "Xor"]), [first, second])
    builder.put("Cast", [both.name], to=onnx.helper.np_dtype_to_tensor_dtype(x.array.dtype))


def _remainder(builder: Builder) -> None:
    x = builder.pick(lambda y: y.array.dtype.kind in "iu" and y.array.dtype.itemsize >= 4)
    divisor = builder.constant(builder.choice([2, 3, 8, -3]), x.array.dtype)
    builder.put(builder.choice(["Mod", "Div"]), [x.name, divisor])


def _parametric(builder: Builder) -> None:
    x = builder.pick_float()
    slope = builder.normal(*(1 for _ in x.shape[1:]), scale=0.3, dtype=x.array.dtype)
    builder.put("PRelu", [x.name, builder.constant(slope)])


def _variadic(builder: Builder) -> None:
    x = builder.pick_float()
    others = [builder.like(x, lambda y: broadcasts(x, y)).name for _ in range(builder.number(0, 3))]
    builder.put(builder.choice(["Sum", "Max", "Min", "Mean"]), [x.name, *others])


LAYERS: Final[tuple[Layer, ...]] = (
    *(_unary,) * 4,
    *(_binary,) * 5,
    *(_neutral, _neutral, _divide, _square, _root, _select, _clip, _cast, _cast, _integers),
    *(_parametric, _variadic, _logic, _remainder),
)
