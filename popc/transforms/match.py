"""Questions that rewrites ask about the neighbourhood of an op."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import numpy as np

from popc.ir import Graph, Op, Tensor
from popc.ops.constants import scalar_value
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import as_stored, floats_of

__all__ = [
    "are_moderate",
    "is_exactly",
    "is_read_once",
    "is_scalar",
    "may_be_one",
    "only_user",
    "other_operand",
    "produced_by",
    "sole_output",
]


def only_user(graph: Graph, tensor: Tensor) -> Op | None:
    """The one op that reads ``tensor``, once, if nothing else does."""
    if len(tensor.uses) != 1 or graph.is_output(tensor):
        return None
    ((op, reads),) = tensor.uses.items()
    return op if reads == 1 else None


def is_read_once(graph: Graph, tensor: Tensor) -> bool:
    """True if one op reads ``tensor``, once, where it is made."""
    user, maker = only_user(graph, tensor), tensor.producer
    return user is not None and maker is not None and user.settings.place == maker.settings.place


def produced_by(tensor: Tensor | None, *op_types: str) -> Op | None:
    """The op behind ``tensor``, if it is of one of the types."""
    if tensor is None or tensor.producer is None or tensor.producer.op_type not in op_types:
        return None
    return tensor.producer


def sole_output(graph: Graph, tensor: Tensor | None, *op_types: str) -> Op | None:
    """`produced_by`, if the op has one output that is read once, where the op runs."""
    op = produced_by(tensor, *op_types)
    if op is None or tensor is None or len(op.outputs) != 1:
        return None
    user = only_user(graph, tensor)
    return op if user is not None and user.settings.place == op.settings.place else None


def is_scalar(tensor: Tensor | None, value: float) -> bool:
    """True if ``tensor`` is a constant of one element that is ``value`` as its type rounds it.

    Of float32 and wider types the last digits may differ: exporters compute constants in them.
    """
    found = scalar_value(tensor)
    if found is None or tensor is None:
        return False
    dtype = tensor.type.dtype
    if dtype in (DType.FLOAT16, DType.BFLOAT16):
        return found == float(floats_of(as_stored(value, dtype), dtype))
    return isclose(found, value, rel_tol=1e-15 if dtype is DType.FLOAT64 else 1e-6)


def is_exactly(tensor: Tensor | None, value: float) -> bool:
    """True if ``tensor`` is a constant of one element that is ``value``; 0 and -0 are the same."""
    return tensor is not None and tensor.data is not None and scalar_value(tensor) == value


def are_moderate(values: Array, dtype: DType, *, tiny: bool = False) -> bool:
    """True if ``values`` may be folded as factors of type ``dtype``.

    They are finite and have all digits of the type, and products with numbers that are no larger
    do not overflow.  So a formula that keeps its numbers in the type does so with them, too.

    Args:
        values: Of any shape and float type.
        dtype: What they are going to be stored as.
        tiny: Digits may get lost that are below the normal numbers, except those of float16, of
            which that is a range that networks use.  Pruned channels have such factors.
    """
    limits = np.finfo(dtype.storage)
    sizes = np.abs(values)
    least = 0.0 if tiny and dtype is not DType.FLOAT16 else float(limits.tiny)
    fit = (sizes <= float(limits.max) ** 0.5) & ((sizes >= least) | (values == 0))
    return bool(fit.all())


def other_operand(op: Op, tensor: Tensor) -> Tensor:
    """The operand of a binary op that is not ``tensor`` (``tensor`` itself if it is both)."""
    return op.operand(1) if op.operand(0) is tensor else op.operand(0)


def may_be_one(graph: Graph, op: Op, earlier: Sequence[Op]) -> bool:
    """True if no op has to run after one of ``earlier`` ops, but before ``op``."""
    if not any(first in graph.ordering for first in earlier):
        return True
    firsts: dict[Op, list[Op]] = {}
    for pair in graph.ordering:
        firsts.setdefault(pair.second, []).append(pair.first)
    before, left = set[Op](), [op]
    while left:
        one = left.pop()
        operands = [tensor.producer for tensor in one.present_inputs if tensor.producer is not None]
        found = {*operands, *firsts.get(one, ())} - before
        before |= found
        left += found
    between = before.difference(earlier)
    return not any(pair.first in earlier and pair.second in between for pair in graph.ordering)
