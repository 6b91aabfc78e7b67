"""Let convolutions and matrix products do what follows them while their result is in the cache."""

from __future__ import annotations

from typing import ClassVar, Final

from popc.ir import Graph, Op, Tensor
from popc.ops.build import infer_types
from popc.transforms.base import RewritePass
from popc.transforms.match import may_be_one, sole_output
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels.core.families import ACTIVATION_NAMES

__all__ = ["FuseEpilogues"]

_PRODUCERS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_WITH_RESIDUAL: Final = ("Conv", "Gemm", "MatMul")
_BIAS, _RESIDUAL = 2, 3  # numbers of operands


@frozen
class FuseEpilogues(RewritePass):
    """A following bias, residual addition or activation becomes part of the op.

    Before::

        %p = MatMul(%x, @w)
        %b = Add(%p, @bias)
        %y = Gelu(%b) approximate='none'

    After::

        %y = MatMul(%x, @w, @bias) activation='Gelu' activation_approximate='none'
    """

    name: ClassVar[str] = "fuse_epilogues"
    rewrites: ClassVar[frozenset[str]] = frozenset({*ACTIVATION_NAMES, "Add"})
    needs: ClassVar[frozenset[str]] = frozenset(_PRODUCERS)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Fuse ``op`` into the op that produces its operand."""
        if op.op_type in ACTIVATION_NAMES and len(op.present_inputs) == 1:
            return _fuse_activation(graph, op)
        if op.op_type == "Add":
            return _fuse_addition(graph, op, op.operand(0), op.operand(1)) or _fuse_addition(
                graph, op, op.operand(1), op.operand(0)
            )
        return False


def _fuse_activation(graph: Graph, op: Op) -> bool:
    producer = sole_output(graph, op.operand(0), *_PRODUCERS)
    if producer is None or producer.attributes.get("activation"):
        return False
    if not may_be_one(graph, op, [producer]):
        return False
    producer.attributes["activation"] = op.op_type
    for name, value in op.attributes.items():
        producer.attributes[f"activation_{name}"] = value
    _take_place(graph, producer, op)
    return True


def _fuse_addition(graph: Graph, op: Op, product: Tensor, addend: Tensor) -> bool:
    producer = sole_output(graph, product, *_PRODUCERS)
    if producer is None or producer.attributes.get("activation") or addend is product:
        return False
    if op.output.type != product.type:
        return False
    index = _free_operand(producer, addend)
    if index is None or not may_be_one(graph, op, [producer]):
        return False
    while len(producer.inputs) <= index:
        graph.append_input(producer, None)
    graph.set_input(producer, index, addend)
    if producer.op_type == "Gemm" and index == _BIAS:
        producer.attributes["beta"] = 1.0
    _take_place(graph, producer, op)
    return True


def _take_place(graph: Graph, producer: Op, op: Op) -> None:
    """Let ``producer`` give the results of ``op``, and wait for what had to come before it."""
    producer.settings = producer.settings.fused(op.settings)
    graph.ordering.replace(op, producer)
    graph.replace_op(op, producer.outputs)


def _free_operand(producer: Op, addend: Tensor) -> int | None:
    """The operand of ``producer`` that can take ``addend``: bias, residual, or none."""
    places = (_BIAS, _RESIDUAL) if producer.op_type in _WITH_RESIDUAL else (_BIAS,)
    for index in places:
        if producer.optional(index) is None and _fits(producer, index, addend):
            return index
    return None


def _fits(producer: Op, index: int, addend: Tensor) -> bool:
    """True if the op's type rule accepts ``addend`` as operand ``index``."""
    if index == _BIAS and producer.op_type in ("Gemm", "MatMul") and not addend.is_constant:
        # A bias broadcasts over rows; what has the full shape is a residual.
        return False
    types = [None if tensor is None else tensor.type for tensor in producer.inputs]
    types += [None] * (index + 1 - len(types))
    types[index] = addend.type
    try:
        return infer_types(producer.op_type, types, producer.attributes) == (producer.output.type,)
    except ModelError:
        return False
