"""Chains of elementwise ops as one op (see `popc_runtime.kernels.parts.fused_steps`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.ir import TensorType
from popc.ops import activation, activation_grad, cast, elementwise
from popc.ops.infer import operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes
from popc_runtime.ground.tables import merge_families
from popc_runtime.kernels.parts.fused_steps import MOST_INPUTS, steps_of

__all__ = ["OPS", "STEPS"]

STEPS: Final[Mapping[str, OpSpec]] = merge_families(
    (family, family.OPS) for family in (activation, activation_grad, cast, elementwise)
)


def _fused(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Every step has the shape of the result; inputs broadcast to it."""
    known = [operand(inputs, index) for index in range(len(inputs))]
    try:
        steps = steps_of(attributes, len(known))
    except ValueError as error:
        raise ModelError(str(error)) from error
    types = list(known)
    for number, step in enumerate(steps):
        (type_,) = STEPS[step.opcode].infer(
            [types[tensor] for tensor in step.operands], step.attributes
        )
        if type_.dtype is not step.dtype:
            raise ModelError(f"step {number} ({step.opcode}) is {type_.dtype}, not {step.dtype}")
        types.append(type_)
    results = types[len(known) :]
    if any(result.shape != results[-1].shape for result in results):
        raise ModelError(
            f"steps have shapes {', '.join(str(list(result.shape)) for result in results)}"
        )
    return (results[-1],)


# All inputs of a block have been read when its results are written.
OPS: Final[dict[str, OpSpec]] = {
    "FusedElementwise": OpSpec(
        _fused, inplace=tuple(range(MOST_INPUTS)), elementwise=True, strided_output=True
    ),
}
