"""Products of floats of eight bits, where the target multiplies these as they are stored."""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op
from popc.ops.float8 import widens_device_float

__all__ = ["keeps_float8", "parts_of_products"]

_PRODUCTS: Final = frozenset({"Conv", "Gemm", "MatMul"})


def keeps_float8(graph: Graph, target: str) -> bool:
    """True if ``target`` multiplies what ``graph`` has of floats of eight bits."""
    if not target or not any(inner.may_have({"CastThenPow2Scale"}) for inner in graph.walk()):
        return False
    from popc.target import find_target

    return find_target(target).conv.fp8_in_fp16_out_units > 0


def parts_of_products(graph: Graph, target: str) -> set[Op]:
    """The conversions to wider floats that are part of the products that read them."""
    if not keeps_float8(graph, target):
        return set()
    return {op for inner in graph.walk() for op in inner.ops if _belongs(inner, op)}


def _belongs(graph: Graph, op: Op) -> bool:
    if not widens_device_float(op) or graph.is_output(op.output):
        return False
    scales = op.present_inputs[1:]
    users = op.output.users
    return all(scale.is_constant for scale in scales) and all(
        user.op_type in _PRODUCTS for user in users
    )
