"""Functions that a model defines, for stages that call them on tensors of its graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from popc.frontend import messages as onnx
from popc.frontend.context import ImportContext
from popc.frontend.functions import FunctionBody
from popc.frontend.importer import GraphImporter
from popc.frontend.load import LoadedModel
from popc.frontend.names import did_you_mean, shown
from popc.ir import Graph, Op, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen

__all__ = ["ModelFunctions"]


@frozen
class ModelFunctions:
    """The functions of a model by name, with its domain ("local.decay") or without.

    Attributes:
        bodies: The functions; only one of each name can be called without its domain.
        opsets: Opset versions of the model, by domain.
        context: Makes what the import of a call keeps.
    """

    bodies: tuple[FunctionBody, ...] = ()
    opsets: tuple[tuple[str, int], ...] = ()
    context: Callable[[], ImportContext] | None = None

    @classmethod
    def of(cls, loaded: LoadedModel, context: Callable[[], ImportContext]) -> Self:
        """The functions of a model that has been read."""
        bodies = tuple(map(FunctionBody, loaded.proto.functions))
        return cls(bodies, tuple(loaded.opsets.items()), context)

    def call(self, name: str, graph: Graph, inputs: Sequence[Tensor]) -> tuple[Tensor, list[Op]]:
        """Add the ops of a function with one result to ``graph``.

        Returns: the result, and the ops; the last one first.

        Raises:
            ModelError: there is no such function, it takes another number of operands, or they do
                not fit what it computes.
        """
        body = self._find(name)
        if len(body.inputs) != len(inputs) or len(body.outputs) != 1:
            raise ModelError(
                f"the function {shown(name)!r} has {len(body.inputs)} inputs and "
                f"{len(body.outputs)} outputs, but is called with {len(inputs)} and for 1"
            )
        assert self.context is not None, "there are functions"
        importer = GraphImporter(self.context(), graph, dict(self.opsets))
        before = len(graph)
        call = onnx.NodeProto(op_type=body.proto.name, domain=body.proto.domain)
        (result,) = importer.expand(body, inputs, call)
        importer.context.problems.raise_if_any()
        if not isinstance(result, Tensor):
            raise ModelError(f"the result of the function {shown(name)!r} is no tensor")
        return result, graph.newest(len(graph) - before)

    def _find(self, name: str) -> FunctionBody:
        known = {body.full_name: body for body in self.bodies}
        found = [body for full, body in known.items() if name in (full, full.rpartition(".")[2])]
        if len(found) == 1:
            return found[0]
        if found:
            of = ", ".join(full for full, body in known.items() if body in found)
            raise ModelError(f"several functions are called {shown(name)!r}: {of}")
        advice = did_you_mean(name, [*known, *(body.proto.name for body in self.bodies)])
        there = f": there are {', '.join(map(shown, known))}" if known else ", nor any other"
        raise ModelError(f"the model has no function {shown(name)!r}{advice or there}")
