"""The operands that an op may overwrite with its result, the preferred one first."""

from __future__ import annotations

from popc.ir import Op
from popc.ops import OPS

__all__ = ["overwritable"]


def overwritable(op: Op) -> tuple[int, ...]:
    """Operands that output 0 may take over, as the op's spec allows and its settings want it.

    Those with priorities come first, the highest before the others; those whose priority is 0 or
    less are left out.
    """
    spec = OPS.get(op.op_type)
    if spec is None:
        return ()
    if not op.settings.inplace:
        return spec.inplace
    priorities = dict(op.settings.inplace)
    allowed = [index for index in spec.inplace if priorities.get(index, 1) > 0]
    return tuple(sorted(allowed, key=lambda index: -priorities.get(index, 0)))
