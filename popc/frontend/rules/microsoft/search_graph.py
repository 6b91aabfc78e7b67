"""Graphs that a search becomes: nodes of its own, and those of its decoder, in one scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from popc.frontend import messages as onnx
from popc.frontend.functions import FunctionBody, FunctionTable
from popc.frontend.walk import free_names

__all__ = ["SearchGraph"]


class SearchGraph:
    """Nodes of a search.

    A decoder finds its operands by the names of its inputs.  Names of the search itself are parted
    from those that it takes from around it.
    """

    def __init__(self, decoder: onnx.GraphProto, functions: FunctionTable) -> None:
        self._decoder = decoder
        self._functions = functions
        self._nodes: list[onnx.NodeProto] = []
        self._prefix = "search."
        while any(name.startswith(self._prefix) for name in free_names(decoder)):
            self._prefix += "_"

    def own(self, names: Iterable[str]) -> list[str]:
        """Names of the search itself."""
        return [self._prefix + name for name in names]

    def add(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """Add a node."""
        from onnx import helper

        self._nodes.append(helper.make_node(op_type, inputs, outputs, **attributes))

    def call(
        self, function: onnx.FunctionProto, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """Add a call of a function, which gets a name that no other has."""
        function.name += str(len(self._functions.bodies))
        self._functions.add(FunctionBody(function))
        self.add(function.name, inputs, outputs, domain=function.domain)

    def run_decoder(self, outputs: Sequence[str], first: onnx.GraphProto | None = None) -> None:
        """Add the nodes of the decoder, as a branch that is always taken: a scope of its own.

        ``first`` takes its place, with weights of its own.
        """
        from onnx import helper

        decoder = self._decoder if first is None else first
        branch = onnx.GraphProto(node=decoder.node, output=decoder.output)
        if first is not None:
            branch.initializer.extend(first.initializer)
            branch.sparse_initializer.extend(first.sparse_initializer)
        (true,) = self.own(["true"])
        always = helper.make_tensor("true", onnx.TensorProto.BOOL, (), [True])
        self.add("Constant", [], [true], value=always)
        self.add("If", [true], outputs, then_branch=branch, else_branch=onnx.GraphProto())

    def loop(self) -> SearchGraph:
        """The body of a loop of this graph."""
        return SearchGraph(self._decoder, self._functions)

    def finished(
        self, inputs: Sequence[str], outputs: Sequence[str], *, weights: bool = False
    ) -> onnx.GraphProto:
        """The graph; with the ``weights`` of the decoder, or within one that has them."""
        kept = self._decoder.initializer if weights else ()
        sparse = self._decoder.sparse_initializer if weights else ()
        return onnx.GraphProto(
            name="search",
            node=self._nodes,
            input=[onnx.ValueInfoProto(name=name) for name in inputs],
            output=[onnx.ValueInfoProto(name=name) for name in outputs],
            initializer=kept,
            sparse_initializer=sparse,
        )
