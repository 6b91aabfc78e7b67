"""Values that may differ from replica to replica, and places where replicas may go apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field
from typing import Final, TypeAlias

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ir.attributes import integer
from popc.ops import OPS
from popc.ops.collectives import group_of_places
from popc.ops.streaming import LOAD, STORE
from popc_runtime.ground.frozen import frozen, mutable

__all__ = ["Divergence", "Groups", "find_divergence"]

# The size and the stride of groups of replicas.
Groups: TypeAlias = tuple[int, int]
_ANYHOW: Final = (0, 0)  # no groups say how

# Collectives after which all members of a group hold the same.
_EQUALISING = frozenset({"ReplicatedAllGather", "ReplicatedAllReduce", "ReplicatedBroadcast"})
# Those after which each has a part, of the same whole if all have given the same.
_SCATTERING = frozenset({"ReplicaPart", "ReplicatedReduceScatter"})
_IO = frozenset({"HostLoad", "HostStore"})


@mutable
class Divergence:
    """The values that may differ between replicas.

    Attributes:
        tensors: Those whose values may differ, of the graph and of those nested in it.
        parts: Of those, the ones that are equal on replicas with the same place in their groups:
            the size of these, smaller than the number of replicas, and their stride.
        ops: Ifs and Loops whose conditions (or numbers of iterations) may differ.
    """

    tensors: set[Tensor] = field(default_factory=set[Tensor])
    parts: dict[Tensor, Groups] = field(default_factory=dict[Tensor, "Groups"])
    ops: dict[Op, None] = field(default_factory=dict[Op, None])

    def meetings(self) -> list[tuple[Op, Op]]:
        """Ops at which replicas have to meet, but may not all arrive; after the op around them."""
        found: list[tuple[Op, Op]] = []
        for outer in self.ops:
            graphs = (inner for subgraph in outer.subgraphs.values() for inner in subgraph.walk())
            ops = (op for graph in graphs for op in graph.ops)
            found += [(outer, op) for op in ops if _is_meeting(op)]
        return found


def find_divergence(
    graph: Graph, replicas: int, equal_inputs: Collection[Tensor] = ()
) -> Divergence:
    """Find the values that may differ between ``replicas`` replicas.

    Inputs of the graph, if it still has any, may, but for ``equal_inputs``; so may random numbers,
    what is loaded without being broadcast, and variables that not all replicas share.
    """
    found = Divergence()
    own = (tensor for tensor in graph.inputs if tensor not in equal_inputs)
    walk = _Walk(found, replicas)
    walk.mark(own, _ANYHOW)
    for variable in graph.variables:
        walk.mark([variable], walk.groups_of(variable))
    walk.graph(graph)
    return found


def _is_meeting(op: Op) -> bool:
    return op.op_type in _IO or (op.op_type in OPS and OPS[op.op_type].collective)


@frozen
class _Walk:
    """Adds to what is known so far; what may differ never becomes equal again.

    How values differ is told by groups: ``None`` if they do not, `_ANYHOW` if it is not known.
    """

    found: Divergence
    replicas: int

    def mark(self, tensors: Iterable[Tensor], how: Groups | None) -> None:
        """Note that ``tensors`` may differ in a way, beside those that are known."""
        if how is None:
            return
        found = self.found
        for tensor in tensors:
            known = how if tensor not in found.tensors else found.parts.get(tensor, _ANYHOW)
            found.tensors.add(tensor)
            if how == known != _ANYHOW:
                found.parts[tensor] = how
            else:
                found.parts.pop(tensor, None)

    def groups_of(self, variable: Tensor) -> Groups | None:
        """The way in which the replicas' values of a variable differ."""
        if not variable.rows:
            return None
        if not variable.whole:
            return _ANYHOW
        return self._parts(*group_of_places(variable.rows))

    def _parts(self, size: int, stride: int) -> Groups:
        """The way in which parts differ of which each group has all."""
        return (size, stride) if size < self.replicas else _ANYHOW

    def _how(self, tensors: Iterable[Tensor | None]) -> Groups | None:
        """The way in which values differ that are made of ``tensors`` alone."""
        found = self.found
        ways = {
            found.parts.get(tensor, _ANYHOW)
            for tensor in tensors
            if tensor is not None and tensor in found.tensors
        }
        return ways.pop() if len(ways) == 1 else _ANYHOW if ways else None

    def graph(self, graph: Graph) -> None:
        """Go through the ops of ``graph``, whose inputs have been judged."""
        for op in graph.topological():
            if op.op_type == "Loop":
                self._loop(op)
            elif op.op_type == "Call":
                self._call(op)
            elif op.subgraphs:
                self._if(op)
            elif op.op_type in (LOAD, STORE):
                self._enter(op.outputs, op.inputs)
            else:
                self.mark(op.outputs, self._result(op))

    def _any(self, tensors: Collection[Tensor | None]) -> bool:
        return any(tensor in self.found.tensors for tensor in tensors if tensor is not None)

    def _result(self, op: Op) -> Groups | None:
        """The way in which the results of an op without subgraphs may differ."""
        spec = OPS[op.op_type]
        if op.op_type == "AssumeEqualAcrossReplicas":
            return None
        if op.op_type == "HostLoad":
            return None if op.attributes.get("broadcast") else _ANYHOW
        if op.op_type in _SCATTERING or op.op_type in _EQUALISING:
            return self._exchanged(op)
        if spec.collective or spec.per_replica or (spec.random and op.op_type != "Accumulate"):
            return _ANYHOW
        return self._how(op.inputs)

    def _exchanged(self, op: Op) -> Groups | None:
        """The way in which results differ that members of a group have in common or in parts.

        Groups whose members have the same parts exchange the same.
        """
        size, stride = integer(op.attributes, "size"), integer(op.attributes, "stride")
        how = self._how(op.inputs)
        if op.op_type in _SCATTERING:
            return self._parts(size, stride) if how is None else _ANYHOW
        everywhere = size == self.replicas or how == (size, stride)
        return None if everywhere and op.attributes.get("op") != "local" else how

    def _if(self, op: Op) -> None:
        if self._any(op.inputs[:1]):
            self.found.ops[op] = None
            self.mark(op.outputs, _ANYHOW)
        for branch in op.subgraphs.values():
            self._enter(branch.inputs, op.inputs[1:])
            self.graph(branch)
            self._enter(op.outputs, branch.outputs)

    def _call(self, op: Op) -> None:
        """Other calls of the same graph, with other operands, have no say in these results."""
        callee = op.subgraphs["callee"]
        inside = {tensor for nested in callee.walk() for tensor in nested.tensors.values()}
        others = {tensor: self._how([tensor]) for tensor in self.found.tensors & inside}
        self.found.tensors.difference_update(others)
        self._enter(callee.inputs, op.inputs)
        self.graph(callee)
        self._enter(op.outputs, callee.outputs)
        for tensor, how in others.items():
            self.mark([tensor], how)

    def _loop(self, op: Op) -> None:
        body = op.subgraphs["body"]
        states = integer(op.attributes, "states")
        self._enter(body.inputs[1:], op.inputs[1:])
        before = (-1, -1)
        while before != (now := (len(self.found.tensors), len(self.found.parts))):
            before = now
            self.graph(body)
            # The condition, then the states; stacked results follow.
            self._enter(body.inputs[1 : 2 + states], body.outputs[: 1 + states])
        count, condition = op.optional(0), body.inputs[1]
        if self._any([count, condition]):
            self.found.ops[op] = None
            self.mark(op.outputs, _ANYHOW)
        # A state is a result as it was, if there is no iteration.
        results = [*body.inputs[2 : 2 + states], *body.outputs[1 + states :]]
        self._enter(op.outputs, results)

    def _enter(self, targets: Collection[Tensor], sources: Collection[Tensor | None]) -> None:
        for target, source in zip(targets, sources, strict=False):
            if target.kind is not TensorKind.CONSTANT:
                self.mark([target], self._how([source]))
