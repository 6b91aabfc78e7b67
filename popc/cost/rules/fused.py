"""Chains of elementwise ops, which are fused on the host only."""

from __future__ import annotations

from typing import Final

from popc.cost.rules import activation, activation_grad, cast, elementwise
from popc.cost.rules.common import CostRule, bring_together
from popc.cost.work import Work
from popc.ir import Op, OpSettings, Tensor, TensorKind, TensorType
from popc_runtime.ground.tables import merge_families
from popc_runtime.kernels.parts.fused_steps import steps_of

__all__ = ["RULES"]

_STEPS: Final = merge_families(
    (family, family.RULES) for family in (activation, activation_grad, cast, elementwise)
)


def _fused(work: Work) -> None:
    """Add the vertices of the steps, one after another, as the device runs them.

    Nothing between them is moved.
    """
    bring_together(work)
    values = list(work.op.present_inputs)
    layout = work.layout_of(values[0])
    layouts = {tensor: work.layout_of(tensor) for tensor in values}
    steps = steps_of(work.op.attributes, len(values))
    work.steps = ", ".join(step.opcode for step in steps)
    for step in steps:
        result = Tensor("", TensorType(step.dtype, work.result().shape), TensorKind.ACTIVATION)
        layouts[result] = layout
        operands: list[Tensor | None] = [values[operand] for operand in step.operands]
        op = Op(step.opcode, operands, [result], dict(step.attributes), OpSettings(), {})
        single = Work(op, work.machine, layouts)
        _STEPS[step.opcode](single)
        work.phases += single.phases
        values.append(result)


RULES: Final[dict[str, CostRule]] = {"FusedElementwise": _fused}
