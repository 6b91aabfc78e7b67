"""Add ops to a graph with their output types inferred, and compute ops on known values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popc.ir import AttributeMap, Graph, Op, OpSettings, Tensor, TensorType
from popc.ops import OPS
from popc.ops.float8 import check_float8
from popc.ops.shared import shared
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attributes
from popc_runtime.kernels import KERNELS

__all__ = ["build", "can_evaluate", "evaluate", "infer_types"]


def infer_types(
    op_type: str, inputs: Sequence[TensorType | None], attributes: Attributes
) -> tuple[TensorType, ...]:
    """The output types of an op.

    Raises:
        ModelError: the operands or attributes do not fit the op.
    """
    try:
        check_float8(op_type, inputs)
        types = OPS[op_type].infer(inputs, attributes)
    except ModelError as error:
        operands = ", ".join("-" if type_ is None else str(type_) for type_ in inputs)
        raise ModelError(f"{op_type}({operands}): {error.message}") from error
    return types


def build(
    graph: Graph,
    op_type: str,
    inputs: Sequence[Tensor | None],
    attributes: AttributeMap | None = None,
    *,
    output_names: Sequence[str] = (),
    settings: OpSettings | None = None,
) -> Op:
    """Add an op to ``graph``; its output types follow from the op's type rule."""
    types = [None if tensor is None else tensor.type for tensor in inputs]
    output_types = infer_types(op_type, types, attributes or {})
    return graph.add_op(
        op_type,
        inputs,
        output_types,
        attributes,
        output_names=output_names,
        settings=settings,
    )


def can_evaluate(op: Op) -> bool:
    """True if ``op`` gives the same value whenever it is computed, and has a kernel to do so."""
    spec = OPS.get(op.op_type)
    return (
        spec is not None
        and not spec.random
        and not spec.side_effect
        and not spec.collective
        and not spec.per_replica
        and not spec.transfer
        and not spec.foreign
        and not op.subgraphs
        and op.op_type in KERNELS
    )


def evaluate(op: Op, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The values of ``op``'s outputs for given input values, computed by the runtime's kernel.

    Raises:
        ModelError: an index among the values is out of range.
    """
    what = (op.op_type, repr(sorted(op.attributes.items())), _types(op.inputs), _types(op.outputs))
    return shared(what, inputs, lambda: _evaluate(op, inputs))


def _types(tensors: Sequence[Tensor | None]) -> tuple[TensorType | None, ...]:
    return tuple(None if tensor is None else tensor.type for tensor in tensors)


def _evaluate(op: Op, inputs: Sequence[Array | None]) -> tuple[Array, ...]:

    outputs = tuple(np.empty(t.type.shape, t.type.dtype.storage) for t in op.outputs)
    from popc_runtime.kernels import Binding, RandomState, Scratch, prepare

    binding = Binding(
        inputs=tuple(inputs),
        outputs=outputs,
        input_dtypes=tuple(None if t is None else t.type.dtype for t in op.inputs),
        output_dtypes=tuple(t.type.dtype for t in op.outputs),
        attributes=op.attributes,
        constant=(True,) * len(inputs),
        scratch=Scratch(),
        random=RandomState(),
    )
    try:
        with np.errstate(all="ignore"):  # IEEE results are the ONNX results
            for call in prepare(KERNELS[op.op_type], binding):
                call()
    except IndexError as error:
        raise ModelError(f"{op.op_type}: {error}") from error
    return outputs
