"""Values that may differ from replica to replica, and places where replicas may go apart."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ir.attributes import integer
from popc.ops import OPS
from popc.ops.streaming import LOAD, STORE
from popc_runtime.ground.frozen import frozen

__all__ = ["Divergence", "find_divergence"]

# Collectives after which all members of a group hold the same.
_EQUALISING = frozenset({"ReplicatedAllGather", "ReplicatedAllReduce", "ReplicatedBroadcast"})
_IO = frozenset({"HostLoad", "HostStore"})


@dataclass(slots=True)
class Divergence:
    """The values that may differ between replicas.

    Attributes:
        tensors: Those whose values may differ, of the graph and of those nested in it.
        ops: Ifs and Loops whose conditions (or numbers of iterations) may differ.
    """

    tensors: set[Tensor] = field(default_factory=set[Tensor])
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
    found.tensors.update(own, (variable for variable in graph.variables if variable.rows))
    _Walk(found, replicas).graph(graph)
    return found


def _is_meeting(op: Op) -> bool:
    return op.op_type in _IO or (op.op_type in OPS and OPS[op.op_type].collective)


@frozen
class _Walk:
    """Adds to what is known so far; nothing is ever taken back."""

    found: Divergence
    replicas: int

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
            elif self._differs(op):
                self.found.tensors.update(op.outputs)

    def _any(self, tensors: Collection[Tensor | None]) -> bool:
        return any(tensor in self.found.tensors for tensor in tensors if tensor is not None)

    def _differs(self, op: Op) -> bool:
        """True if the results of an op without subgraphs may differ."""
        spec = OPS[op.op_type]
        if op.op_type == "AssumeEqualAcrossReplicas":
            return False
        if op.op_type == "HostLoad":
            return not op.attributes.get("broadcast")
        if spec.per_replica or (spec.random and op.op_type != "Accumulate"):
            return True
        if not spec.collective:
            return self._any(op.inputs)
        if op.op_type not in _EQUALISING:
            return True
        everywhere = op.attributes["size"] == self.replicas and op.attributes.get("op") != "local"
        return not everywhere and self._any(op.inputs)

    def _if(self, op: Op) -> None:
        if self._any(op.inputs[:1]):
            self.found.ops[op] = None
            self.found.tensors.update(op.outputs)
        for branch in op.subgraphs.values():
            self._enter(branch.inputs, op.inputs[1:])
            self.graph(branch)
            self._enter(op.outputs, branch.outputs)

    def _call(self, op: Op) -> None:
        """Other calls of the same graph, with other operands, have no say in these results."""
        callee = op.subgraphs["callee"]
        inside = {tensor for nested in callee.walk() for tensor in nested.tensors.values()}
        others = self.found.tensors & inside
        self.found.tensors -= others
        self._enter(callee.inputs, op.inputs)
        self.graph(callee)
        self._enter(op.outputs, callee.outputs)
        self.found.tensors |= others

    def _loop(self, op: Op) -> None:
        body = op.subgraphs["body"]
        states = integer(op.attributes, "states")
        self._enter(body.inputs[1:], op.inputs[1:])
        before = -1
        while before != len(self.found.tensors):
            before = len(self.found.tensors)
            self.graph(body)
            # The condition, then the states; stacked results follow.
            self._enter(body.inputs[1 : 2 + states], body.outputs[: 1 + states])
        count, condition = op.optional(0), body.inputs[1]
        if self._any([count, condition]):
            self.found.ops[op] = None
            self.found.tensors.update(op.outputs)
        # A state is a result as it was, if there is no iteration.
        results = [*body.inputs[2 : 2 + states], *body.outputs[1 + states :]]
        self._enter(op.outputs, results)

    def _enter(self, targets: Collection[Tensor], sources: Collection[Tensor | None]) -> None:
        for target, source in zip(targets, sources, strict=False):
            if source in self.found.tensors and target.kind is not TensorKind.CONSTANT:
                self.found.tensors.add(target)
