"""Operators of users, in place of the C++ libraries that programs for PopART load."""

from __future__ import annotations

from popc.popart.translation import popart_errors
from popc_runtime.custom import Compute, Gradient, TypeRule, register

__all__ = ["registerCustomOp"]


def registerCustomOp(
    opName: str,
    opVersion: int,
    domain: str,
    types: TypeRule,
    compute: Compute,
    gradient: Gradient | None = None,
) -> None:
    """Make an operator known that `Builder.customOp` adds; `popc.custom.register` says how.

    Args:
        opName, opVersion, domain: As `Builder.customOp` has them.
        types: Gives the types of the results, from those of the operands and the attributes.
        compute: Gives the results, from arrays and attributes.
        gradient: Gives the gradients of the operands, from operands, results, gradients of the
            results, and attributes.

    Raises:
        popart_exception: there is one already, or the domain is that of ONNX.
    """
    with popart_errors():
        register(
            *(domain, opName),
            types=types,
            compute=compute,
            gradient=gradient,
            version=opVersion,
        )
