"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.elementwise import BINARY, select
from popc.cost.rules.common import CostRule, bring_together, scaled_add, steps
from popc.cost.work import Work
from popc.ir import Tensor
from popc.ops.constants import scalar_value

__all__ = ["RULES"]

_HIGHEST_POWER: Final = 16


def _where(work: Work) -> None:
    bring_together(work)
    work.compute("select", select(work.share_of_result()), "Select")


def _pow(work: Work) -> None:
    """By products where the exponent is a small integer that is known, else by logarithms."""
    names = _products(work.op.inputs[1])
    if names is None:
        steps("power")(work)
        return
    bring_together(work)
    for name in names:
        work.binary(name) if name in BINARY else work.unary(name)


def _products(exponent: Tensor | None) -> list[str] | None:
    """The vertices that make a power by squaring and multiplying, from the exponent's top bit."""
    power = scalar_value(exponent)
    if power is None:
        return None
    if power == 0.5:
        return ["sqrt"]
    if not power.is_integer() or not 1 <= abs(power) <= _HIGHEST_POWER:
        return None
    bits = f"{abs(int(power)):b}"[1:]
    names = [name for bit in bits for name in (("square", "add") if bit == "1" else ("square",))]
    return names + ["inverse"] * (power < 0)


def _sum(work: Work) -> None:
    bring_together(work)
    for _ in work.op.present_inputs[1:]:
        work.binary("add")


# Multiplications and subtractions cost what additions do; they appear as "add".
RULES: Final[dict[str, CostRule]] = {
    "Abs": steps("abs"),
    "Acos": steps("asin", "add"),
    "Acosh": steps("square", "add", "sqrt", "add", "log"),
    "Add": steps("add"),
    "And": steps("logical"),
    "Asin": steps("asin"),
    "Asinh": steps("square", "add", "sqrt", "add", "log"),
    "Atan": steps("atan2"),
    "Atan2": steps("atan2"),
    "Atanh": steps("add", "add", "divide", "log", "add"),
    "BitShift": steps("bitwise"),
    "BitwiseAnd": steps("bitwise"),
    "BitwiseNot": steps("bitwise"),
    "BitwiseOr": steps("bitwise"),
    "BitwiseXor": steps("bitwise"),
    "Ceil": steps("round"),
    "Cos": steps("sin"),
    "Cosh": steps("exp", "inverse", "add", "add"),
    "Div": steps("divide"),
    "Equal": steps("compare"),
    "Exp": steps("exp"),
    "Expm1": steps("expm1"),
    "Floor": steps("round"),
    "Greater": steps("compare"),
    "GreaterOrEqual": steps("compare"),
    "IsInf": steps("isinf"),
    "IsNaN": steps("isnan"),
    "Less": steps("compare"),
    "LessOrEqual": steps("compare"),
    "Log": steps("log"),
    "Log1p": steps("log1p"),
    "Max": steps("maximum"),
    "MaxArgGrad": steps("compare", "add"),
    "Min": steps("maximum"),
    "MinArgGrad": steps("compare", "add"),
    "Mod": steps("remainder"),
    "Mul": steps("add"),
    "Neg": steps("negate"),
    "Not": steps("logical_not"),
    "Or": steps("logical"),
    "Pow": _pow,
    "Reciprocal": steps("inverse"),
    "Round": steps("round"),
    "ScaledAdd": scaled_add,
    "Sign": steps("signum"),
    "Sin": steps("sin"),
    "Sinh": steps("exp", "inverse", "add", "add"),
    "Sqrt": steps("sqrt"),
    "Square": steps("square"),
    "Sub": steps("add"),
    "Sum": _sum,
    "Tan": steps("tan"),
    "Where": _where,
    "Xor": steps("logical"),
}
