"""The ops that are mere views of their operand, and the places of their results.

An op is a view, and needs no instruction, if all of this holds:

* its spec has a view rule, and the rule yields a view for every output;
* none of its outputs is an output of a nested graph: these are copied over one another's sources
  when the graph ends, so each must have memory of its own;
* each of its outputs is C-contiguous, or everything that reads it can read strided memory.

What reads a tensor can read it strided if it is an op whose spec says so, or a capture whose
readers all can.  Outputs of the top graph, conditions, trip counts, the initial values of states
and the operands of calls cannot be strided, and ops without a spec are not asked.  A view op that
reads a strided tensor decides for itself whether to stay a view: then its own readers must agree;
or not, and then its kernel reads the strided operand.

A Concat of variables that can lie in a row is a view of the first of them: see `Rows`.

None of this depends on the order in which ops run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, NamedTuple

from popc.ir import Graph, Op, Tensor
from popc.ops import OPS, ViewRule
from popc.ops.control import callee_of, captured_as, first_capture
from popc.ops.families import VIEWS
from popc.ops.rows import Rows, is_row_of_operands
from popc.ops.streaming import find_remote
from popc.ops.views import contiguous_strides, normal_strides
from popc_runtime.ground.frozen import frozen

__all__ = ["Aliases", "Place", "find_aliases", "may_have_aliases"]


_PLAIN: Final[Mapping[Tensor, tuple[int, ...]]] = MappingProxyType({})
_MAY_BE_VIEWS: Final = VIEWS | {"Concat"}


class Place(NamedTuple):
    """The place of a tensor in the memory of ``root``, a tensor that has some of its own.

    Offset and strides are in bytes; strides ``None`` means C-contiguous.  What lies in a row of
    variables may reach over the end of the first one.
    """

    root: Tensor
    offset: int = 0
    strides: tuple[int, ...] | None = None

    def is_whole(self, tensor: Tensor) -> bool:
        """True if ``tensor``, which lies here, is all of it."""
        return (
            self.strides is None
            and self.offset == 0
            and tensor.type.nbytes == self.root.type.nbytes
        )


@frozen
class Aliases:
    """The places of all tensors of a graph and of those nested in it, and the ops that are views.

    What a nested graph captures lies where the operand does; the states of a loop have memory of
    their own, and so have the inputs of a graph that is called.  ``rows``: variables that must lie
    one behind the other.  ``remote``: what lies in streaming memory.
    """

    places: dict[Tensor, Place] = field(default_factory=dict[Tensor, Place])
    views: set[Op] = field(default_factory=set[Op])
    rows: list[tuple[Tensor, ...]] = field(default_factory=list[tuple[Tensor, ...]])
    remote: set[Tensor] = field(default_factory=set[Tensor])


def may_have_aliases(graph: Graph) -> bool:
    """False if every tensor of ``graph`` has memory of its own for sure."""
    return any(part.holders or part.may_have(_MAY_BE_VIEWS) for part in graph.walk())


def find_aliases(graph: Graph, formats: Mapping[Tensor, tuple[int, ...]] = _PLAIN) -> Aliases:
    """Decide for one op after the other, operands first.

    ``formats``: byte strides of results that are not C-contiguous in memory of their own.
    """
    finder = _Finder(graph, formats)
    finder.visit(graph)
    finder.found.rows.extend(finder.rows.all)
    finder.found.remote.update(find_remote(graph))
    return finder.found


class _Finder:
    def __init__(self, graph: Graph, formats: Mapping[Tensor, tuple[int, ...]]) -> None:
        graphs = list(graph.walk())
        self._formats = formats
        self.found = Aliases()
        self.rows = Rows()
        self._nested_outputs = frozenset(t for nested in graphs[1:] for t in nested.outputs)
        self._outputs = self._nested_outputs | frozenset(graph.outputs)
        self._accepted: dict[Tensor, bool] = {}
        self._called: set[Graph] = set()

    def visit(self, graph: Graph) -> None:
        """Find the places of a graph's tensors; those of captures are known."""
        places, formats = self.found.places, self._formats
        for tensor in graph.tensors.values():
            if tensor.producer is None:
                places.setdefault(tensor, Place(tensor))
        for op in graph.topological():
            views = self._views(op) if op.op_type in _MAY_BE_VIEWS else None
            if views is None:
                for tensor in op.outputs:
                    places[tensor] = Place(tensor, 0, formats.get(tensor) if formats else None)
                if op.subgraphs:
                    self._enter(op)
            else:
                self.found.views.add(op)
                places.update(zip(op.outputs, views, strict=True))

    def _enter(self, op: Op) -> None:
        callee = callee_of(op)
        if callee is not None:
            if callee not in self._called:
                self._called.add(callee)
                self.visit(callee)
            return
        places = self.found.places
        for index in range(first_capture(op), len(op.inputs)):
            operand = places[op.operand(index)]
            places.update(dict.fromkeys(captured_as(op, index), operand))
        for subgraph in op.subgraphs.values():
            self.visit(subgraph)

    def _views(self, op: Op) -> list[Place] | None:
        """The places of ``op``'s outputs if it is a view of its operand 0, else ``None``."""
        if op.op_type == "Concat":
            return self._row(op) if self._nested_outputs.isdisjoint(op.outputs) else None
        spec, source = OPS.get(op.op_type), op.optional(0)
        if source is None or spec is None or spec.view is None:
            return None
        if not self._nested_outputs.isdisjoint(op.outputs):
            return None
        places: list[Place] = []
        for index, output in enumerate(op.outputs):
            place = _place_of_view(op, index, self.found.places[source], spec.view)
            if place is None or not (place.strides is None or self._accepts_strides(output)):
                return None
            places.append(place)
        return places

    def _row(self, op: Op) -> list[Place] | None:
        places = self.found.places
        if not is_row_of_operands(op) or not self.rows.admit(op, places):
            return None
        first = next(places[tensor] for tensor in op.present_inputs if tensor.type.nbytes)
        return [Place(first.root, first.offset)]

    def _accepts_strides(self, tensor: Tensor) -> bool:
        """True if everything that reads ``tensor`` can read it in strided memory."""
        if tensor not in self._accepted:
            self._accepted[tensor] = tensor not in self._outputs and all(
                self._reads_strided(op, tensor) for op in tensor.uses
            )
        return self._accepted[tensor]

    def _reads_strided(self, op: Op, tensor: Tensor) -> bool:
        if callee_of(op) is not None:
            return False
        if not op.subgraphs:
            spec = OPS.get(op.op_type)
            return spec is not None and spec.strided_input
        return all(
            index >= first_capture(op)
            and all(self._accepts_strides(inner) for inner in captured_as(op, index))
            for index, operand in enumerate(op.inputs)
            if operand is tensor
        )


def _place_of_view(op: Op, index: int, source: Place, rule: ViewRule) -> Place | None:
    """The place of output ``index`` if it is a view of what lies at ``source``."""
    type_ = op.outputs[index].type
    if type_.size == 0:
        return Place(source.root, source.offset)
    source_type = op.operand(0).type
    strides = source.strides or contiguous_strides(source_type)
    view = rule(source_type, strides, type_, index, op.attributes)
    if view is None:
        return None
    offset = source.offset + view.offset
    return Place(source.root, offset, normal_strides(type_, view.strides))
