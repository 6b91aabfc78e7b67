"""Gradients of elementwise ops: gradient times derivative, summed over broadcast dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from popc.autodiff.backward import Backward, GradientRule, no_gradient
from popc.ir import Tensor
from popc.ir.attributes import number

__all__ = ["GRADIENTS"]

# From the context, x = f's argument and y = f(x): the gradient of x, given that of y.
_Unary: TypeAlias = Callable[[Backward, Tensor, Tensor, Tensor], Tensor]


def _unary(derive: _Unary) -> GradientRule:
    def rule(b: Backward) -> Sequence[Tensor | None]:
        return [derive(b, b.grad(), b.input(0), b.output())]

    return rule


def _one_plus_square(b: Backward, x: Tensor) -> Tensor:
    return b.plus(b.square(x), 1.0)


def _one_minus_square(b: Backward, x: Tensor) -> Tensor:
    return b.sub(b.scalar(1.0, x), b.square(x))


_UNARY: Final[dict[str, _Unary]] = {
    "Abs": lambda b, g, x, _: b.mul(g, b.emit("Sign", [x])),
    "Acos": lambda b, g, x, _: b.neg(b.div(g, b.emit("Sqrt", [_one_minus_square(b, x)]))),
    "Acosh": lambda b, g, x, _: b.div(g, b.emit("Sqrt", [b.plus(b.square(x), -1.0)])),
    "Asin": lambda b, g, x, _: b.div(g, b.emit("Sqrt", [_one_minus_square(b, x)])),
    "Asinh": lambda b, g, x, _: b.div(g, b.emit("Sqrt", [_one_plus_square(b, x)])),
    "Atan": lambda b, g, x, _: b.div(g, _one_plus_square(b, x)),
    "Atanh": lambda b, g, x, _: b.div(g, _one_minus_square(b, x)),
    "Cos": lambda b, g, x, _: b.neg(b.mul(g, b.emit("Sin", [x]))),
    "Cosh": lambda b, g, x, _: b.mul(g, b.emit("Sinh", [x])),
    "Exp": lambda b, g, _, y: b.mul(g, y),
    "Expm1": lambda b, g, _, y: b.mul(g, b.plus(y, 1.0)),
    "Log": lambda b, g, x, _: b.div(g, x),
    "Log1p": lambda b, g, x, _: b.div(g, b.plus(x, 1.0)),
    "Neg": lambda b, g, _x, _y: b.neg(g),
    "Reciprocal": lambda b, g, _, y: b.neg(b.mul(g, b.square(y))),
    "Sin": lambda b, g, x, _: b.mul(g, b.emit("Cos", [x])),
    "Sinh": lambda b, g, x, _: b.mul(g, b.emit("Cosh", [x])),
    "Sqrt": lambda b, g, _, y: b.div(b.scaled(g, 0.5), y),
    "Square": lambda b, g, x, _: b.mul(b.scaled(g, 2.0), x),
    "Tan": lambda b, g, _, y: b.mul(g, _one_plus_square(b, y)),
}


def _add(b: Backward) -> Sequence[Tensor | None]:
    return [
        b.sum_to(b.grad(), tensor.type) if b.wants(index) else None
        for index, tensor in enumerate(b.op.present_inputs)
    ]


def _sub(b: Backward) -> Sequence[Tensor | None]:
    g = b.grad()
    first = b.sum_to(g, b.input(0).type) if b.wants(0) else None
    second = b.neg(b.sum_to(g, b.input(1).type)) if b.wants(1) else None
    return [first, second]


def _mul(b: Backward) -> Sequence[Tensor | None]:
    return [
        b.sum_to(b.mul(b.grad(), b.input(1 - index)), b.input(index).type)
        if b.wants(index)
        else None
        for index in range(2)
    ]


def _div(b: Backward) -> Sequence[Tensor | None]:
    """x / y: g / y and -(g / y) * (x / y)."""
    share = b.div(b.grad(), b.input(1))
    first = b.sum_to(share, b.input(0).type) if b.wants(0) else None
    second = None
    if b.wants(1):
        second = b.neg(b.sum_to(b.mul(share, b.output()), b.input(1).type))
    return [first, second]


# -- powers ----------------------------------------------------------------------------------------

_POWERS: Final[dict[float, _Unary]] = {
    -1.0: _UNARY["Reciprocal"],
    0.5: _UNARY["Sqrt"],
    1.0: lambda _b, g, _x, _y: g,
    2.0: _UNARY["Square"],
}


def _pow(b: Backward) -> Sequence[Tensor | None]:
    g, x, exponent = b.grad(), b.input(0), b.input(1)
    first = b.sum_to(_power_of_base(b, g, x), x.type) if b.wants(0) else None
    second = None
    if b.wants(1):
        partial = _power_of_exponent(b, g, x)
        partial = b.sum_to(partial, exponent.type.with_dtype(x.type.dtype))
        second = b.cast(partial, exponent.type.dtype)
    return [first, second]


def _power_of_base(b: Backward, g: Tensor, x: Tensor) -> Tensor:
    """g * p * x ** (p - 1)."""
    fixed = b.known(1)
    if fixed in _POWERS:
        return _POWERS[fixed](b, g, x, b.output())
    if fixed == 0:
        return b.zeros(g.type)
    if fixed is not None:
        lower = b.emit("Pow", [x, b.scalar(fixed - 1, x)])
        return b.mul(b.scaled(g, fixed), lower)
    power = b.cast(b.input(1), x.type.dtype)
    slope = b.mul(power, b.emit("Pow", [x, b.plus(power, -1.0)]))
    # 0 * inf: x ** 0 is constant, at 0 too.
    is_constant = b.emit("Equal", [power, b.scalar(0.0, power)])
    return b.mul(g, b.where(is_constant, b.scalar(0.0, x), slope))


def _power_of_exponent(b: Backward, g: Tensor, x: Tensor) -> Tensor:
    """g * y * log(x), but 0 where x is 0 and p is not negative, as PyTorch has it."""
    power = b.cast(b.input(1), x.type.dtype)
    product = b.mul(b.mul(g, b.output()), b.emit("Log", [x]))
    is_zero = b.emit("Equal", [x, b.scalar(0.0, x)])
    is_bounded = b.emit("GreaterOrEqual", [power, b.scalar(0.0, power)])
    return b.where(b.emit("And", [is_zero, is_bounded]), b.scalar(0.0, x), product)


# -- others ----------------------------------------------------------------------------------------


def _atan2(b: Backward) -> Sequence[Tensor | None]:
    """The angle of (x, y): g * x / (x^2 + y^2) for y and -g * y / (x^2 + y^2) for x."""
    y, x = b.input(0), b.input(1)
    share = b.div(b.grad(), b.add(b.square(x), b.square(y)))
    first = b.sum_to(b.mul(share, x), y.type) if b.wants(0) else None
    second = b.sum_to(b.neg(b.mul(share, y)), x.type) if b.wants(1) else None
    return [first, second]


def _scaled_add(b: Backward) -> Sequence[Tensor | None]:
    """x * scale0 + y * scale1, where a scale is an operand or an attribute."""
    g = b.grad()
    terms: list[Tensor | None] = []
    scales: list[Tensor | None] = []
    for index in range(2):
        x, scale = b.input(index), b.optional(index + 2)
        if scale is None:
            term = b.scaled(g, number(b.attributes, f"scale{index}", 1.0))
        else:
            term = b.mul(g, b.reshape(b.cast(scale, g.type.dtype), ()))
        terms.append(b.sum_to(term, x.type) if b.wants(index) else None)
        wanted = scale is not None and b.wants(index + 2)
        scales.append(_scale_gradient(b, x, b.input(index + 2)) if wanted else None)
    return [*terms, *scales]


def _scale_gradient(b: Backward, x: Tensor, scale: Tensor) -> Tensor:
    """The inner product of the gradient and the operand that ``scale`` multiplies."""
    product = b.mul(b.grad(), x)
    total = b.sum(product, range(product.type.rank))
    return b.cast(b.reshape(total, scale.type.shape), scale.type.dtype)


def _extremum(b: Backward) -> Sequence[Tensor | None]:
    """The gradient goes to the operand that is the result; operands that are equal share it."""
    g, pair = b.grad(), (b.input(0), b.input(1))
    return [
        b.sum_to(b.emit(f"{b.op.op_type}ArgGrad", [g, this, other]), this.type)
        if b.wants(index)
        else None
        for index, (this, other) in enumerate((pair, pair[::-1]))
    ]


def _mod(b: Backward) -> Sequence[Tensor | None]:
    """x - y * trunc(x / y), or with floor for ``fmod=0``: g and -g * trunc(x / y)."""
    g, x, y = b.grad(), b.input(0), b.input(1)
    second = None
    if b.wants(1):
        quotient = b.div(b.sub(x, b.output()), y)
        second = b.sum_to(b.neg(b.mul(g, b.emit("Round", [quotient]))), y.type)
    return [b.sum_to(g, x.type) if b.wants(0) else None, second]


def _where(b: Backward) -> Sequence[Tensor | None]:
    g, condition = b.grad(), b.input(0)
    zero = b.scalar(0.0, g)
    first = b.sum_to(b.where(condition, g, zero), b.input(1).type) if b.wants(1) else None
    second = b.sum_to(b.where(condition, zero, g), b.input(2).type) if b.wants(2) else None
    return [None, first, second]


def _flat(b: Backward) -> Sequence[Tensor | None]:
    """Zeros: there is a gradient, as in PopART and PyTorch."""
    return [b.zeros(b.input(0).type)]


_CONSTANT: Final = (
    *("And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Equal"),
    *("Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or"),
    "Xor",
)

GRADIENTS: Final[dict[str, GradientRule]] = {
    "Add": _add,
    "Atan2": _atan2,
    "Div": _div,
    "Max": _extremum,
    "Min": _extremum,
    "Mod": _mod,
    "Mul": _mul,
    **dict.fromkeys(("Ceil", "Floor", "Round", "Sign"), _flat),
    "Pow": _pow,
    "ScaledAdd": _scaled_add,
    "Sub": _sub,
    "Sum": _add,
    "Where": _where,
    **{name: _unary(derive) for name, derive in _UNARY.items()},
    **dict.fromkeys(_CONSTANT, no_gradient),
}
