"""Options about checks, of programs and of results."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Names, Truth
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["CheckOptions", "FloatingPointException"]


class FloatingPointException(StrEnum):
    """The exceptions to look for in results; NAN_ON_OVERFLOW says what becomes of some of them."""

    DIV0 = "div0"
    INVALID = "invalid"
    NAN_ON_OVERFLOW = "nan_on_overflow"
    OVERFLOW = "overflow"


@inheritable
class CheckOptions:
    """The checks while a program is compiled, and while it runs."""

    enable_floating_point_checks: bool = option(
        Truth(),
        False,
        "Stop at the first op whose result shows a floating-point exception, and name it. "
        "floating_point_exceptions says which exceptions count. Runs take longer: they do "
        "without native kernels, so that results may differ in the last bit. Checks can also "
        "be switched on or off when the archive is loaded.",
        popart="enableFloatingPointChecks",
    )
    floating_point_exceptions: tuple[FloatingPointException, ...] = option(
        Names(tuple(FloatingPointException)),
        (
            FloatingPointException.DIV0,
            FloatingPointException.INVALID,
            FloatingPointException.OVERFLOW,
        ),
        "Exceptions that enable_floating_point_checks looks for. Invalid is a NaN of operands "
        "without any, div0 an infinity of an op with a pole, such as Div or Log, of finite "
        "operands, and overflow any other infinity of finite operands. With nan_on_overflow, "
        "finite results that are too large for float16 or bfloat16 become NaN rather than "
        "infinite.",
    )
    verify_ir: bool = option(
        Truth(),
        False,
        "Check the graph after every pass, and schedule and memory plan with independent checkers.",
    )
