"""Subgraphs of the backward pass: what they recompute, and what they are handed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeAlias

from popc.autodiff.backward import Backward
from popc.autodiff.copying import copy_graph, is_repeatable, prune
from popc.autodiff.exporting import original_of
from popc.ir import Graph, Tensor

__all__ = ["BackwardSubgraph", "Reader", "Walk"]

Reader: TypeAlias = Callable[[Tensor], Tensor]


class Walk(Protocol):
    """Adds the backward pass to a graph: gradients of ``wanted`` from those of seeds."""

    def __call__(
        self,
        graph: Graph,
        seeds: Iterable[tuple[Tensor, Tensor]],
        wanted: Collection[Tensor],
        independent: Collection[Tensor] = (),
    ) -> dict[Tensor, Tensor]:
        """See `popc.autodiff.differentiate`; a tensor may be seeded more than once."""
        ...


class BackwardSubgraph:
    """Begins as a copy of a forward subgraph, to be differentiated.

    Attributes:
        graph: The copy, and what is added to it.
        emit: Emits into it.
        captures: Inputs of ``graph`` -> tensors outside that they stand for.
    """

    def __init__(self, b: Backward, name: str, captures: Sequence[Tensor | None]) -> None:
        """Copy subgraph ``name`` of ``b.op``, whose last inputs are ``captures``."""
        self.forward = b.op.subgraphs[name]
        self.results = list(self.forward.outputs)  # as they are now: it may get more
        self.copied = copy_graph(self.forward)
        self.graph = self.copied.graph
        self.emit = b.inside(self.graph)
        formals = self.graph.inputs[len(self.graph.inputs) - len(captures) :]
        pairs = zip(formals, captures, strict=True)
        self.captures = {inner: outer for inner, outer in pairs if outer is not None}
        self._inner: dict[Tensor, Tensor] = {}

    def copy_of(self, tensor: Tensor) -> Tensor:
        """The copy of a tensor of the forward subgraph."""
        return self.copied.tensors[tensor]

    def capture(self, outer: Tensor) -> Tensor:
        """A tensor of the graph around this one, as seen from inside."""
        if outer.data is not None:
            return self.graph.add_constant(outer.name, outer.type, outer.data)
        if outer not in self._inner:
            inner = self.graph.add_input(outer.name, outer.type)
            self.captures[inner] = outer
            self._inner[outer] = inner
        return self._inner[outer]

    # Reading from the forward pass what must not, or need not, be computed again.  ``read`` makes
    # a tensor of the forward subgraph a tensor of this graph.

    def recall_results(self, results: Iterable[Tensor], read: Reader) -> None:
        """Read ``results`` of the forward subgraph."""
        for tensor in results:
            copy = self.copy_of(tensor)
            if self.is_computed(copy):
                self.graph.replace_uses(copy, read(tensor))

    def recall_unrepeatable(self, read: Reader) -> None:
        """Read what random ops, and ops with effects, have given."""
        prune(self.graph)
        for op in self.graph.ops:
            if is_repeatable(op):
                continue
            for copy in op.outputs:
                if self.is_computed(copy):
                    self.graph.replace_uses(copy, read(original_of(copy, self.copied)))
        prune(self.graph)

    def is_computed(self, tensor: Tensor) -> bool:
        """True if ``tensor`` is computed here, and is of use."""
        return (
            tensor.producer is not None and tensor.producer in self.graph and self.is_read(tensor)
        )

    def is_read(self, tensor: Tensor) -> bool:
        """True if ``tensor`` is of use."""
        return bool(tensor.uses) or self.graph.is_output(tensor)

    def close(self, header: Sequence[Tensor]) -> list[Tensor]:
        """Make ``header`` and what is captured the only inputs; the captures, as seen outside."""
        first: dict[Tensor, Tensor] = {}
        for inner, outer in self.captures.items():
            if first.setdefault(outer, inner) is not inner:
                self.graph.replace_uses(inner, first[outer])
        used = {outer: inner for outer, inner in first.items() if self.is_read(inner)}
        inputs = [*header, *used.values()]
        for tensor in tuple(self.graph.inputs):  # it shrinks on the way
            if tensor not in inputs:
                self.graph.remove_input(tensor)
        self.graph.inputs = inputs
        return list(used)
