"""Compute in float16 what a model computes in float32, if the options ask for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Final, Self

import numpy as np

from popc.ir import AttributeMap, Graph, Op, StepPart, Tensor, TensorKind, TensorType
from popc.ops.build import build
from popc.options import Precision
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import PassContext
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = ["SetPrecision"]

_WIDE, _NARROW = DType.FLOAT32, DType.FLOAT16
# Ops whose operands and results keep their types: they talk to others, hold graphs, or are about
# the types themselves.
_KEPT: Final = frozenset(
    {
        *("BitCast", "CopyVarUpdate", "HostCall", "HostLoad", "HostStore", "PrintTensor"),
        *("RemoteLoad", "RemoteStore", "RemoteGather", "RemoteScatterAdd"),
        *("DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"),
    }
)
_TYPE_ATTRIBUTES: Final = ("dtype", "to")
_LARGEST: Final = float(np.finfo(np.float16).max)
_SMALLEST: Final = float(np.finfo(np.float16).smallest_subnormal)
_LISTED: Final = 4  # kinds of ops named in a note


@frozen
class SetPrecision(Pass):
    """Ops on float32 become ops on float16; inputs, outputs and what is written keep their types.

    Before::

        graph main(%x: float32[2,3]) {
          @w: float32[3,4]
          %y: float32[2,4] = MatMul(%x, @w)
          return y
        }

    After::

        graph main(%x: float32[2,3]) {
          @w1: float16[3,4]
          %x1: float16[2,3] = Cast(%x) to='float16'
          %y: float16[2,4] = MatMul(%x1, @w1)
          %y1: float32[2,4] = Cast(%y) to='float32'
          return y = %y1
        }

    With MIXED, weights stay float32 variables, of which ops read float16, and lookups rows; with
    FLOAT16, so are they, but for those that the model itself writes.  Constants that float16 does
    not have become the nearest number that it has, other than 0 and infinity.  Bodies of control
    flow are rewritten by themselves, and ops that cannot compute in float16 stay as they are: a
    note tells which.  A backward pass follows the types of the forward pass.
    """

    name: ClassVar[str] = "set_precision"
    optional: ClassVar[bool] = False
    wanted: Precision = Precision.MODEL

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.precision)

    def run(self, graph: Graph) -> int | PassOutcome:
        """Rewrite every graph; how many ops."""
        if self.wanted is Precision.MODEL or _is_trained(graph):
            return 0
        kept: dict[str, int] = defaultdict(int)
        changes = 0
        for nested in tuple(graph.walk()):
            changes += _Narrowing(nested, kept, variables=self.wanted is Precision.FLOAT16).run()
        return PassOutcome(changes, notes=tuple(_notes(kept)))


def _is_trained(graph: Graph) -> bool:
    return any(op.settings.part is not StepPart.FORWARD for op in graph.ops)


def _notes(kept: dict[str, int]) -> Iterator[str]:
    if kept:
        names = sorted(kept)
        more = f" and {len(names) - _LISTED} more kinds" if len(names) > _LISTED else ""
        yield (
            f"precision: {sum(kept.values())} ops stay in float32, as they cannot compute in "
            f"float16: {', '.join(names[:_LISTED])}{more}"
        )


class _Narrowing:
    """One graph, and the float16 values of its float32 tensors."""

    def __init__(self, graph: Graph, kept: dict[str, int], *, variables: bool) -> None:
        self._graph = graph
        self._kept = kept
        self._variables = variables
        self._narrow: dict[Tensor, Tensor] = {}
        # Variables that the model writes, or that are outputs, stay as the host knows them.
        self._fixed = {
            op.operand(0) for nested in graph.walk() for op in nested.ops
            if op.op_type == "CopyVarUpdate"
        }  # fmt: skip
        self._fixed |= set(graph.outputs)

    def run(self) -> int:
        """Rewrite the ops in order; how many."""
        return sum(self._rewrite(op) for op in self._graph.topological())

    def _rewrite(self, op: Op) -> bool:
        tensors = [*op.present_inputs, *op.outputs]
        is_wide = any(tensor.type.dtype is _WIDE for tensor in tensors)
        if not is_wide or op.op_type in _KEPT or op.subgraphs or self._looks_up_weights(op):
            return False
        made = self._made(op)
        if made is None:
            self._kept[op.op_type] += 1
            return False
        results: list[Tensor] = []
        for old, new in zip(op.outputs, made.outputs, strict=True):
            if old.type == new.type:
                results.append(new)
                continue
            wide = self._cast(new, _WIDE, op)
            self._narrow[wide] = new
            results.append(wide)
        names = [tensor.name for tensor in op.outputs]
        self._graph.replace_op(op, results)
        for tensor, name in zip(made.outputs, names, strict=True):
            self._graph.rename(tensor, name)
        return True

    def _looks_up_weights(self, op: Op) -> bool:
        """True for a lookup in a table that stays float32: rows of it are narrowed, not all."""
        is_lookup = op.op_type == "Gather" and op.operand(0).kind is TensorKind.VARIABLE
        return is_lookup and (not self._variables or op.operand(0) in self._fixed)

    def _made(self, op: Op) -> Op | None:
        """The op in float16; ``None`` if there is none that computes the same."""
        attributes = dict(op.attributes)
        for name in _TYPE_ATTRIBUTES:
            if attributes.get(name) == _WIDE.value:
                attributes[name] = _NARROW.value
        before = len(self._graph)
        inputs = [None if tensor is None else self._narrowed(tensor, op) for tensor in op.inputs]
        try:
            made = build(self._graph, op.op_type, inputs, attributes, settings=op.settings)
        except ModelError:
            made = None
        if made is not None and not all(map(_fits, op.outputs, made.outputs)):
            self._graph.remove_op(made)
            made = None
        if made is None:
            for cast in self._graph.newest(len(self._graph) - before):
                if not any(tensor.uses for tensor in cast.outputs):
                    self._forget(cast)
        return made

    def _forget(self, cast: Op) -> None:
        for wide in [wide for wide, narrow in self._narrow.items() if narrow in cast.outputs]:
            del self._narrow[wide]
        self._graph.remove_op(cast)

    def _narrowed(self, tensor: Tensor, reader: Op) -> Tensor:
        if tensor.type.dtype is not _WIDE:
            return tensor
        if tensor not in self._narrow:
            self._narrow[tensor] = self._found(tensor, reader)
        return self._narrow[tensor]

    def _found(self, tensor: Tensor, reader: Op) -> Tensor:
        type_ = tensor.type.with_dtype(_NARROW)
        if tensor.data is not None:
            return self._graph.add_constant(tensor.name, type_, _halves(tensor.data))
        is_variable = tensor.kind is TensorKind.VARIABLE
        if is_variable and self._variables and tensor not in self._fixed:
            return self._variable(tensor, type_)
        return self._cast(tensor, _NARROW, reader)

    def _variable(self, tensor: Tensor, type_: TensorType) -> Tensor:
        """A variable in place of a wide one, which float32 readers see through a Cast."""
        name, role = tensor.name, tensor.role
        assert role is not None, tensor
        initial = None if tensor.initial is None else _halves(tensor.initial)
        self._graph.rename(tensor, f"{name}_float32")
        narrow = self._graph.add_variable(name, type_, role, initial, tensor.rows)
        wide = build(self._graph, "Cast", [narrow], {"to": _WIDE.value}).output
        self._graph.replace_uses(tensor, wide)
        self._graph.remove_tensor(tensor)
        self._narrow[wide] = narrow
        return narrow

    def _cast(self, tensor: Tensor, dtype: DType, beside: Op) -> Tensor:
        attributes: AttributeMap = {"to": dtype.value}
        settings = replace(beside.settings, cut=None, inplace=(), available_memory=None)
        return build(self._graph, "Cast", [tensor], attributes, settings=settings).output


def _fits(old: Tensor, new: Tensor) -> bool:
    wanted = _NARROW if old.type.dtype is _WIDE else old.type.dtype
    return new.type == old.type.with_dtype(wanted)


def _halves(data: Array) -> Array:
    """Numbers as float16: finite ones stay finite, and those that are not 0 stay so."""
    finite = np.where(np.isfinite(data), np.clip(data, -_LARGEST, _LARGEST), data)
    lost = (finite != 0) & (np.abs(finite) < _SMALLEST)
    kept: Array = np.where(lost, np.copysign(_SMALLEST, finite), finite).astype(np.float16)
    return kept
